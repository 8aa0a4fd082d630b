"""Overlays: machines that choose neighbours and tell their watchers who comes and goes; one file a paper.

`libweft.overlays.overlay` is the contract. An overlay knows nothing of what is published above it, and stands on `peer` alone.
"""

if __name__ != "libweft.overlays":
    raise ImportError("import libweft.overlays, not overlays: the second name would load every module twice")
