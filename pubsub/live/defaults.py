"""What a live node does unless it is told otherwise; apart, so that a command's help need not import the rest."""

from __future__ import annotations

STACK = "hyparview/plumtree"
LISTEN = ("/ip4/0.0.0.0/tcp/0",)
