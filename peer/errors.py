"""Who is to blame: every error that weft raises on purpose says whether the local program or a peer is at fault."""

from __future__ import annotations


class WeftError(Exception):
    """Root of all errors raised on purpose; its text says what to do."""


class UsageError(WeftError):
    """The local program asked for something impossible; raised at once, at the call."""


class PeerError(WeftError):
    """A peer broke the protocol. Caught in one place by whoever drives the machine; it costs one link, never the process."""
