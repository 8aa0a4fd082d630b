"""Benchmarks of weft: of the simulator, of links, of live nodes and of lookups, beside other libraries."""
