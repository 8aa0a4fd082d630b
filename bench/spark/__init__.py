"""Traces to figures, by Apache Spark.

`session` starts it, `traces` reads, `facts` joins; the measures count, `analysis` shows.
"""
