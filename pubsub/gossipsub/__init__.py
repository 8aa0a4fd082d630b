"""GossipSub, libp2p's pub/sub router: a mesh of a few peers a topic carries payloads, and gossip to others mends what it lost.

The router is one machine. What it remembers of peers and messages stands beside it in tables of their own, one a file, that
know neither IO nor clock nor chance: time and `Rng` are arguments.
"""
