"""The trace: what happened in a run, in one schema for simulated and live runs."""
