"""HyParView: a small symmetric active view, and a larger passive view to repair it from (DSN 2007)."""
