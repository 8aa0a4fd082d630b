"""`weft analyze --follow`: the figures of the last minute of a trace that is being written, again and again.

On a terminal one table stays in its place; elsewhere each is printed below the last, and with `--json` on a line of its own.
With `--report` a page is written with each, whole or not at all, and a last one at the end that says so.
Ctrl-C and SIGTERM end it as they end a live peer: cleanly, and with exit 0.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from libweft.bench import report
from libweft.bench.cli.show import print_figures, print_json
from libweft.bench.report.live import History
from libweft.peer.errors import UsageError

EVERY_S = 2.0
HOME = "\x1b[H\x1b[2J"


def follow(args: argparse.Namespace) -> None:
    if len(args.traces) != 1:
        raise UsageError("--follow follows one folder; name the one above them for several")
    if args.parquet is not None or args.tables:
        raise UsageError("--follow writes no tables or Parquet: run weft analyze without it for them")
    if args.report is not None:
        report.check(args.report)
    window = 60.0 if args.window is None else args.window
    if not 1 <= window <= 3_600:
        raise UsageError(f"--window {window:g}: 1 to 3600 seconds")
    from libweft.bench.spark.session import check, spark_session

    if check(args.master, args.memory).startswith("sc://"):
        raise UsageError("--follow needs a Spark of its own: it calls a function of this process, which sc:// cannot reach")
    from libweft.bench.spark.follow import View, following

    session = spark_session(args.master, memory=args.memory, short=True)
    pages = Pages(args.report, f"Following {args.traces[0].resolve().name}") if args.report is not None else None
    with _until_stopped(), session as spark, following(spark, args.traces[0], View(window)) as followed:
        try:
            while True:
                found = followed.figures()
                show(found, args.json)
                if pages is not None:
                    pages.write(found)
                time.sleep(EVERY_S)
        finally:
            if pages is not None:
                pages.end()


class Pages:
    """The page of a live network, again and again. How often is as it turns out: Spark may take longer than the pause."""

    def __init__(self, path: Path, title: str) -> None:
        self._path = path
        self._title = title
        self._history = History()
        self._last: float | None = None
        self._every = EVERY_S

    def write(self, figures: Mapping[str, object]) -> None:
        now = time.time()
        if self._last is not None:
            self._every = max(EVERY_S, now - self._last)
        self._last = now
        self._history.add(figures, at=now)
        report.put(self._path, self._history.page(title=self._title, every=self._every))

    def end(self) -> None:
        """Nothing where no page was written."""
        if self._last is not None:
            report.put(self._path, self._history.page(title=self._title, every=self._every, ended=True))


def show(found: dict[str, object], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        sys.stdout.write(HOME if sys.stdout.isatty() else "\n")
        print_figures(found)
        if not found.get("rows"):
            print("No row has come yet; those that do are shown some seconds later.")
        if found.get("deliveries_unpublished"):
            print("Some messages were published by nodes that send no trace here: of them no figure can tell.")
    sys.stdout.flush()


@contextmanager
def _until_stopped() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
