"""The options of HyParView, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND

LIST_LIMIT = 64  # peers in a message: eight times the paper's, for peers that are set otherwise


@dataclass(frozen=True)
class HyParViewConfig:
    """Sizes and walks as in the paper's experiments; it counts time in cycles, so all times are guesses, in microseconds."""

    active_size: int = 5  # neighbours: section 5.1, fanout 4, and one for the link of arrival
    passive_size: int = 30  # peers known in reserve: section 5.1
    arwl: int = 6  # steps of a FORWARDJOIN: section 5.1
    prwl: int = 3  # steps left of it where it enters a passive view: section 5.1
    ka: int = 3  # neighbours in a shuffle: section 5.1
    kp: int = 4  # peers in reserve in a shuffle: section 5.1
    shuffle_ttl: int = 6  # steps of a shuffle, a guess: the paper names a time to live but no number; that of its other walk
    shuffle_every: int = 10 * SECOND  # a guess: the paper's cycle, often enough to know of joins within a minute
    patience: int = 3 * SECOND  # a guess: how long an ask may take, dial and answer; a few slow round trips
    keepalive_every: int = 20 * SECOND  # a guess: how long a one-sided neighbour may stay unnoticed
    probe_every: int = 30 * SECOND  # a guess: one dial, rare enough to cost nothing; 0 never probes, as in the paper
    remember: int = 3_600 * SECOND  # a guess: how long a lost neighbour is worth a probe
    refill_at_once: bool = True  # the paper's algorithm fills a slot when its peer has failed, and else in the next cycle
    faded: int = 30  # peers that gave way in reserve, a guess: as many again; 0 forgets them, as in the paper
    refusals: int = 8  # in a row, then a slot may stay empty, a guess: where all others are full, asking all of them costs more
    first_retry: int = SECOND  # until a contact is dialled again: a guess, as in `libweft.overlays.static`
    last_retry: int = 60 * SECOND  # the most that this grows to: a guess, as in `libweft.overlays.static`

    def __post_init__(self) -> None:
        least = {"active_size": 1, "passive_size": 1, "shuffle_every": 1, "patience": 1, "keepalive_every": 1}
        least |= {"remember": 1, "first_retry": 1, "last_retry": self.first_retry, "arwl": self.prwl}
        for name in self.__dataclass_fields__:
            if getattr(self, name) < least.get(name, 0):
                raise UsageError(f"hyparview: {name} is {getattr(self, name)}; it must be at least {least.get(name, 0)}")
        if self.ka + self.kp >= LIST_LIMIT:
            raise UsageError(f"hyparview: ka + kp is {self.ka + self.kp}; it must be below {LIST_LIMIT}")


DEFAULTS = HyParViewConfig()
