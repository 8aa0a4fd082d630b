"""`weft bench swarm`: live peers in several processes, some of which are killed, and the same plan simulated."""
