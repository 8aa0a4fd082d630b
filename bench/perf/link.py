"""`weft bench link`: what a message costs between two processes on loopback, beside bare TCP on trio and beside py-libp2p.

Machines are shared and noisy, so every figure is CPU time of both processes together; the cases take turns, each in two
processes of its own, and medians of a repetition's ratios are what counts. A message is 100 bytes that begin with its number;
receivers check every number, so a message that was lost, doubled or overtaken ends the bench.

One way: `weft` is a machine that sends through the driver (Noise, Yamux, default config) and waits for `drained` when enough is
queued; `tcp` is one `send_all` a message and a reader that reads frame by frame; `tcp joined` writes 64 KiB at a time and cuts
frames out of large reads: the most that trio can do, and without a cipher; `py-libp2p` writes once a message and cuts large
reads. Round trips, one at a time: `weft request` is `Env.request`, a stream each; the others echo on one stream.

Counted is the time between two signals: the listener starts its clock when a first message has come, the dialler when that was
answered; the listener stops at the last message, the dialler when it hears so. Dialling and handshakes come before.

`--profile` interrupts the weft cases each millisecond of CPU time (as often as the kernel's clock allows) and notes whose code
runs. C code counts for the Python function that called it: the cipher is under `cipher`, the kernel under `system calls`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from libweft.bench.perf.child import command
from libweft.bench.perf.link_sides import SIZE, part_of
from libweft.bench.perf.rivals.programs import LEFT_OUT, Program, py_libp2p
from libweft.bench.progress import Progress
from libweft.peer.errors import UsageError, WeftError

RIVAL = "py_libp2p_link.py"
LEAST = 50


@dataclass(frozen=True)
class Case:
    """`share` of the messages asked for: a case that is a hundred times slower needs fewer for a figure as good."""

    kind: str
    share: float
    rival: bool = False


CASES = {
    "weft": Case("one way", 1.0),
    "tcp": Case("one way", 0.1),
    "tcp joined": Case("one way", 1.0),
    "py-libp2p": Case("one way", 0.02, rival=True),
    "weft request": Case("round trips", 0.01),
    "weft stream": Case("round trips", 0.02),
    "tcp echo": Case("round trips", 0.04),
    "py-libp2p echo": Case("round trips", 0.005, rival=True),
}

RATIOS = {  # of messages or round trips a CPU second, and what is aimed at
    "weft / tcp joined": 0.2,
    "weft / tcp": None,
    "weft / py-libp2p": 10.0,
    "weft request / tcp echo": None,
    "weft stream / tcp echo": None,
    "weft stream / py-libp2p echo": None,
}


def bench_link(messages: int, repetitions: int, *, rivals: bool = True, progress: Progress | None = None) -> dict[str, Any]:
    """All cases; WeftError when one of them fails. Where py-libp2p cannot be installed, `rivals` says why."""
    _check(messages, repetitions)
    tell = progress or (lambda share, word: None)
    tell(0.0, "py-libp2p")
    rival = py_libp2p(RIVAL) if rivals else LEFT_OUT
    names = [name for name, case in CASES.items() if rival.words or not case.rival]
    spent: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(repetitions):
        for place, name in enumerate(names):
            tell((number + place / len(names)) / repetitions, name)
            spent[name].append(_once(name, messages, _command(name, rival)))
    return {
        "messages": messages,
        "repetitions": repetitions,
        "size": SIZE,
        "rivals": {"py-libp2p": rival.about},
        "cases": {name: _figures(name, found) for name, found in spent.items()},
        "ratios": _ratios(spent),
    }


def profile_link(messages: int, repetitions: int, *, progress: Progress | None = None) -> dict[str, Any]:
    """For each weft case and side, which share of its CPU time each part takes."""
    _check(messages, repetitions)
    tell = progress or (lambda share, word: None)
    names = [name for name in CASES if name.startswith("weft")]
    sides: dict[str, Counter[str]] = {}
    for number in range(repetitions):
        for place, name in enumerate(names):
            tell((number + place / len(names)) / repetitions, name)
            found = _once(name, messages, _command(name, LEFT_OUT), profiled=True)
            for side in ("dialler", "listener"):
                sides.setdefault(f"{name}, {side}", Counter()).update(found[side]["samples"])
    return {
        "messages": messages,
        "repetitions": repetitions,
        "samples": {side: samples.total() for side, samples in sides.items()},
        "parts": {side: _shares(_by_part(samples)) for side, samples in sides.items()},
        "functions": {side: _shares(samples) for side, samples in sides.items()},
    }


def _shares(samples: Counter[str]) -> dict[str, float]:
    return {name: count / samples.total() for name, count in samples.most_common()}


def _by_part(samples: Counter[str]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for function, count in samples.items():
        parts[part_of(*function.split(":"))] += count
    return parts


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"case": name, **figures} for name, figures in result["cases"].items()]


def ratio_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"ratio": name, **figures} for name, figures in result["ratios"].items()]


def profile_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a part, in percent, and the number of samples last; the JSON has each function too."""
    shares = result["parts"]
    parts = sorted({part for found in shares.values() for part in found}, key=lambda part: -shares["weft, dialler"].get(part, 0))
    table = [{"percent": part} | {side: round(100 * found.get(part, 0.0), 1) for side, found in shares.items()} for part in parts]
    return [*table, {"percent": "samples", **result["samples"]}]


def _check(messages: int, repetitions: int) -> None:
    if messages < LEAST or repetitions < 1:
        raise UsageError(f"at least {LEAST} messages and one repetition")


def _count(name: str, messages: int) -> int:
    return max(LEAST, round(messages * CASES[name].share))


def _command(name: str, rival: Program) -> Sequence[str]:
    return rival.words if CASES[name].rival else command("libweft.bench.perf.link_sides")


def _once(name: str, messages: int, command: Sequence[str], *, profiled: bool = False) -> dict[str, Any]:
    """What both sides say of one run."""
    count = _count(name, messages)
    with ExitStack() as stack:
        words = [*command, name, str(count), str(int(profiled))]
        listener = stack.enter_context(Child(words))
        dialler = stack.enter_context(Child([*words, listener.hear()["address"]]))
        found = {"dialler": dialler.hear(), "listener": listener.hear()}
    heard = [side["messages"] for side in found.values()]
    if heard != [count, count]:
        raise WeftError(f"{name}: {count} messages were due, but the two sides count {heard[0]} and {heard[1]}")
    return {"count": count, **found}


class Child:
    """A process that says one JSON object a line; it ends with the block, by itself if nothing went wrong."""

    def __init__(self, command: Sequence[str], folder: Path | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, bufsize=1)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(0 if kind else 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WeftError(f"a process of the bench failed: {self._last_words()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
        except BrokenPipeError:
            raise WeftError(f"a process of the bench failed: {self._last_words()}") from None

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit {self._process.returncode}"


def _figures(name: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": CASES[name].kind,
        "count": found[0]["count"],
        "per_cpu_s": median(map(_rate, found)),
        "dialler_us": median(_us(run, "dialler") for run in found),
        "listener_us": median(_us(run, "listener") for run in found),
    }


def _rate(run: dict[str, Any]) -> float:
    return 1e6 / (_us(run, "dialler") + _us(run, "listener"))


def _us(run: dict[str, Any], side: str) -> float:
    return 1e6 * float(run[side]["cpu_s"]) / int(run["count"])


def _ratios(spent: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float | None]]:
    """Inside each repetition, then the median; least and most tell how far to trust it."""
    ratios: dict[str, dict[str, float | None]] = {}
    for name, aim in RATIOS.items():
        ours, theirs = name.split(" / ")
        if theirs in spent:
            each = [_rate(a) / _rate(b) for a, b in zip(spent[ours], spent[theirs], strict=True)]
            ratios[name] = {"median": median(each), "least": min(each), "most": max(each), "aim": aim}
    return ratios
