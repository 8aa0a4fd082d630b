"""Kademlia, libp2p's kad-dht: places, the table, lookups, records, and the overlay of links over it."""
