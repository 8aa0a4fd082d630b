"""Publish/subscribe: routers, which spread a publication over an overlay and deliver it once to each subscriber.

The modules of this package are what all routers share, and the small routers:

    router          the contract of a router
    description     all that others need to know of a router, as data; `promises` are a part of it
    message         a publication, interests, verdicts; `carrier` lays a publication into the message that carries it
    seen, claims    ids that were seen; checks of what a message says
    signing         signatures of publications; `numbering` puts a source's numbers under its signature
    rpc             libp2p's pub/sub RPC as a codec; `encoding_cache` holds its latest results
    flood           flooding, and on live links libp2p's floodsub
    plumtree        epidemic broadcast trees
    stacks          the registry: an overlay and a router under one name, such as `static/flood`; `options` describes them

The folders:

    gossipsub       libp2p's GossipSub, versions 1.0 to 1.3
    kadpubsub       subscribers registered in Kademlia, near their topic
    vcube_ps        VCube-PS: a tree from each publisher, computed from the hypercube
    vcube_pb        VCube-PB: reliable broadcast over such trees
    scribe          SRPT-S and SRPT-B: a single root per topic
    ordering        FIFO and causal order, over any router
    live            the API for applications, and the commands of a live peer

This package stands on `overlays` and `peer`.
"""

if __name__ != "libweft.pubsub":
    raise ImportError("import libweft.pubsub, not pubsub: the second name would load every module twice")
