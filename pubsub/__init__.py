"""Publish/subscribe: routers that spread publications over an overlay and deliver each once; one file a paper.

`libweft.pubsub.router` is the contract, `libweft.pubsub.message` what travels, and `libweft.pubsub.stacks` the registry in which
an overlay and a router are named together, such as `static/flood`. Stands on `overlays` and `peer`. The package named PyPubSub
takes the import name `pubsub` too: do not install both in one environment.
"""

if __name__ != "libweft.pubsub":
    raise ImportError("import libweft.pubsub, not pubsub: the second name would load every module twice")
