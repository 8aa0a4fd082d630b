"""The protocols of libp2p as pure functions and machines: ids, addresses, frames, encryption, streams. No IO."""
