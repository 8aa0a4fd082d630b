"""Publish/subscribe: routers that spread publications over an overlay and deliver each once; one file a paper.

`pubsub.router` is the contract, `pubsub.message` what travels, and `pubsub.stacks` the registry in which an overlay and a
router are named together, such as `static/flood`. Stands on `overlays` and `peer`. The package named PyPubSub takes the
import name `pubsub` too: do not install both in one environment.
"""
