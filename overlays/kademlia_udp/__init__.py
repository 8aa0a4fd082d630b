"""Kademlia as the PyPI package `kademlia` speaks it, over UDP."""
