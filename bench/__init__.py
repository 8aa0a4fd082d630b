"""The bench: scenarios read from TOML or flags, runs of them, what is measured, and the command `weft`.

Stands on everything below and is imported by nothing of it: a program that only wants to publish and subscribe need not
load it.
"""

if __name__ != "libweft.bench":
    raise ImportError("import libweft.bench, not bench: the second name would load every module twice")
