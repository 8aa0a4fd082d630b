"""Groups of kinds of faults. The description of a protocol says with them which faults the protocol withstands.

The kinds are those of `libweft.peer.sim.faults`, and `churn`, which a scenario has in a table of its own.
"""

from __future__ import annotations

DELAYS = frozenset({"duplicate", "reorder", "delay_spike", "slow_node", "skew"})
LOSSES = frozenset({"loss", "burst_loss"})
BREAKS = frozenset({"cut", "partition", "reset"})
CRASHES = frozenset({"crash", "mass_crash", "restart", "churn"})
CHANGED_BYTES = frozenset({"corrupt", "truncate"})
"""A changed byte may make another message of one that nobody signed. Live nodes sign all messages, simulated ones sign none."""
TRANSIENT = DELAYS | LOSSES | BREAKS
"""Faults that end, and leave every node up."""
HONEST = TRANSIENT | CRASHES | {"nat"}
"""All faults that change no bytes."""
