"""Overlays: machines that choose neighbours and tell their watchers who comes and goes; one file a paper.

`overlays.overlay` is the contract. An overlay knows nothing of what is published above it, and stands on `peer` alone.
"""
