"""Overlays: machines that choose a node's neighbours, and notify their watchers when neighbours come and go.

The modules of this package:

    overlay         the contract of an overlay
    powers          what an overlay may be able to do beyond neighbours, and a router may need
    description     all that others need to know of an overlay, as data; `fault_groups` are a part of it
    claims          checks of what a peer says of other peers
    static, graphs  neighbours given from outside; the graphs from which the simulator draws them
    xbot            X-BOT: HyParView that exchanges far neighbours for near ones

The folders:

    hyparview       HyParView: a small symmetric view, and a larger one to repair it from
    kademlia        libp2p's kad-dht, and neighbours over its contacts
    kademlia_udp    a node in a network of the PyPI package `kademlia`, over UDP; it is no overlay of a stack
    vcube           VCube: a virtual hypercube whose nodes test each other

An overlay knows nothing of publications. This package stands only on `peer`.
"""

if __name__ != "libweft.overlays":
    raise ImportError("import libweft.overlays, not overlays: the second name would load every module twice")
