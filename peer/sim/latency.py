"""How long a copy takes from one node to another: latency models of the simulator, as data.

Each model is a frozen Struct that a scenario file can name by its `kind`; times in the files are milliseconds, inside
they are whole microseconds. A model whose delays are independent of the two nodes gives a `stream` of draws, made in
blocks because a draw a call would cost more than the rest of a send. `occupancy` is how long a copy keeps its sender
busy (copies then leave one at a time), `service` how long one keeps its receiver busy, but for those of `free` lanes.

Sources: VCube-PS section 4 (t_pc + t_q + t_t + t_pp) and the figures its authors' program yields; VCube-PB section 5
(hop U(10,20), one message a unit of time); one unit of either paper is 1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat
from math import exp, isfinite
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, Lane, Rng

BLOCK = 4_096
LONGEST_MS = 3_600_000.0


class Model(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """`draw` "send" takes one delay for all copies of a send call, which share one queue entry then."""

    draw: Literal["copy", "send"] = "copy"

    def stream(self, rng: Rng) -> Iterator[int] | None:
        """Draws for any pair of nodes; None when the delay depends on who they are."""
        raise UsageError(f"the latency model {type(self).__name__} defines no stream")

    def delay(self, source: int, target: int) -> int:
        raise UsageError(f"the latency model {type(self).__name__} defines no delay between two given nodes")

    def occupancy(self, lane: Lane) -> int:
        return 0

    @property
    def service(self) -> int:
        return 0

    def serves(self, lane: Lane) -> int:
        """How long a message of that lane keeps its receiver busy."""
        return self.service

    @property
    def dials(self) -> bool:
        """Whether a new link takes its time, or is as if it had always been there."""
        return True


class Constant(Model, frozen=True, tag="constant"):
    ms: float = 50.0

    def __post_init__(self) -> None:
        _within("ms", self.ms)

    def stream(self, rng: Rng) -> Iterator[int]:
        return repeat(_us(self.ms))


class Uniform(Model, frozen=True, tag="uniform"):
    low: float = 10.0
    high: float = 100.0

    def __post_init__(self) -> None:
        _within("low", self.low)
        _within("high", self.high)
        if self.high < self.low:
            raise ValueError(f"high ({self.high}) is below low ({self.low})")

    def stream(self, rng: Rng) -> Iterator[int]:
        low, width, draw = _us(self.low), _us(self.high) - _us(self.low) + 1, rng.random
        return _in_blocks(lambda: [low + int(draw() * width) for _ in range(BLOCK)])


class Normal(Model, frozen=True, tag="normal"):
    """Cut off at zero."""

    mean: float = 50.0
    sd: float = 10.0

    def __post_init__(self) -> None:
        _within("mean", self.mean)
        _within("sd", self.sd)

    def stream(self, rng: Rng) -> Iterator[int]:
        mean, sd, draw = self.mean * MS, self.sd * MS, rng.gauss
        return _in_blocks(lambda: [max(0, int(draw(mean, sd))) for _ in range(BLOCK)])


class LogNormal(Model, frozen=True, tag="lognormal"):
    """`sigma` is that of the logarithm; the longest draw is an hour."""

    median: float = 50.0
    sigma: float = 0.5

    def __post_init__(self) -> None:
        _within("median", self.median)
        if not 0 <= self.sigma <= 10:
            raise ValueError(f"sigma is {self.sigma}; it must be from 0 to 10")

    def stream(self, rng: Rng) -> Iterator[int]:
        median, sigma, draw, longest = self.median * MS, self.sigma, rng.gauss, _us(LONGEST_MS)
        return _in_blocks(lambda: [min(longest, int(median * exp(sigma * draw(0.0, 1.0)))) for _ in range(BLOCK)])


class Matrix(Model, frozen=True, kw_only=True, tag="matrix"):
    """Milliseconds from row to column, read from a file of numbers; node i sits at place i modulo the size."""

    file: str
    draw: Literal["copy"] = "copy"
    rows: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.rows:
            msgspec.structs.force_setattr(self, "rows", _read_matrix(Path(self.file)))

    def stream(self, rng: Rng) -> None:
        return None

    def delay(self, source: int, target: int) -> int:
        size = len(self.rows)
        return self.rows[source % size][target % size]


class VCubePS(Model, frozen=True, tag="vcube-ps"):
    """The queueing model of VCube-PS: one copy leaves a node at a time.

    `paper`: a copy is processed for t_pc = 1, waits t_q, is transmitted for t_t = 1, travels for t_pp; acknowledgements
    are free, as Table 1 of the paper needs. `program`: what the authors' program does: one unit a copy for processing
    and transmission together, every lane charged, the first copy of an idle node leaving at once or a unit later, and
    t_pp drawn as t_pp - 1 or t_pp. `free` overrides which lanes cost the sender nothing. All channels are there in both.
    """

    setting: Literal["paper", "program"] = "paper"
    t_pp: float = 100.0
    t_pc: float = 1.0
    t_t: float = 1.0
    free: tuple[Literal["urgent", "control", "payload", "lazy"], ...] | None = None
    draw: Literal["copy"] = "copy"

    def __post_init__(self) -> None:
        for name in ("t_pp", "t_pc", "t_t"):
            _within(name, getattr(self, name))

    def stream(self, rng: Rng) -> Iterator[int]:
        longest = _us(self.t_pp)
        if self.setting == "paper":
            return repeat(longest + _us(self.t_pc))
        return _in_blocks(lambda: rng.choices((max(0, longest - MS), longest), k=BLOCK))

    @property
    def dials(self) -> bool:
        return False

    def occupancy(self, lane: Lane) -> int:
        free = self.free if self.free is not None else ("urgent", "control") if self.setting == "paper" else ()
        return 0 if lane.name.lower() in free else _us(self.t_t)


class VCubePB(Model, frozen=True, tag="vcube-pb"):
    """Each hop takes U(10,20) units; a node handles one message a unit, in order of arrival.

    Messages of `free` lanes cost it nothing: the paper does not say whether it counts acknowledgements. `linked`: its channels
    are all there from the start, so a dial takes no time.
    """

    low: float = 10.0
    high: float = 20.0
    unit: float = 1.0
    free: tuple[Literal["urgent", "control", "payload", "lazy"], ...] = ()
    linked: bool = False
    draw: Literal["copy"] = "copy"

    def __post_init__(self) -> None:
        Uniform(low=self.low, high=self.high)
        _within("unit", self.unit)

    def stream(self, rng: Rng) -> Iterator[int]:
        return Uniform(low=self.low, high=self.high).stream(rng)

    @property
    def service(self) -> int:
        return _us(self.unit)

    def serves(self, lane: Lane) -> int:
        return 0 if lane.name.lower() in self.free else self.service

    @property
    def dials(self) -> bool:
        return not self.linked


Latency: TypeAlias = Constant | Uniform | Normal | LogNormal | Matrix | VCubePS | VCubePB


def _in_blocks(block: Callable[[], list[int]]) -> Iterator[int]:
    return chain.from_iterable(block() for _ in repeat(None))


def _us(ms: float) -> int:
    return round(ms * MS)


def _within(name: str, ms: float) -> None:
    if not (isfinite(ms) and 0 <= ms <= LONGEST_MS):
        raise ValueError(f"{name} is {ms} ms; it must be from 0 to {LONGEST_MS:.0f} ms")


def _read_matrix(path: Path) -> tuple[tuple[int, ...], ...]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the latency matrix {path} cannot be read: {error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if words := line.replace(",", " ").split():
            try:
                rows.append(tuple(_us(float(word)) for word in words))
            except (ValueError, OverflowError):
                raise ValueError(f"the latency matrix {path}, line {number}, holds something that is no number") from None
    if not rows or any(len(row) != len(rows) for row in rows):
        raise ValueError(f"the latency matrix {path} must be square, with one line a row")
    if any(not 0 <= cell <= _us(LONGEST_MS) for row in rows for cell in row):
        raise ValueError(f"the latency matrix {path} must hold milliseconds from 0 to {LONGEST_MS:.0f}")
    return tuple(rows)
