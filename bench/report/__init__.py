"""The report: the analysis of some runs as one HTML file, made to be looked at.

    write(analyze(spark, directories), Path("report.html"), title="A flood under loss")

Asks for the dict that `libweft.bench.spark.analysis.analyze` gives, and for nothing else: no figure is computed here, but for
what an axis needs. Promises one file that needs no other and no network, whose bytes depend on the analysis and the
title alone, and that is whole or not there. Names, topics and commands are taken for hostile: all text is escaped in one
place (`text.escape`), and the page forbids itself every script but its own.

    input   the analysis, read once, forgiving much          text           escaping and rounding
    scale   from figures to places on an axis                chart_drawing  one chart as SVG
    cards   the boxes that charts stand in                   chart_list     which charts there are, from which tables
    tables  what ran, the comparison, every table            distributions  counts in bins: sums and histograms
    verdict who is worst, in words and bars                  html           the page; page.css, page.js
    picture one message of a run, read once                  rings          where its nodes stand
    player  one message as it spreads; player.js             mesh           the overlay at its publish
    sweep   the page of a sweep; sweep.js                    live           the page of a live network; live.js
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from libweft.bench.report.html import page
from libweft.bench.report.input import read
from libweft.bench.report.sweep import render_sweep
from libweft.peer.errors import UsageError

__all__ = ["check", "put", "render", "render_sweep", "write", "write_sweep"]


def render(analysis: Mapping[str, Any], *, title: str) -> str:
    """The whole page."""
    return page(read(analysis), title)


def write(analysis: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Render to `path`; a report that is there already is replaced at once, or left as it was."""
    put(path, render(analysis, title=title))


def write_sweep(result: Mapping[str, Any], path: Path, *, title: str) -> None:
    """The page of a sweep, in the same way."""
    put(path, render_sweep(result, title=title))


def put(path: Path, text: str) -> None:
    """A page that is whole, or the one that was there before."""
    try:
        _replace(path, text.encode())
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]
        raise UsageError(f"cannot write the report {path}: {why}; name a file in a folder that you can write to") from error


def check(path: Path) -> None:
    """Raises where `write` could not write later: before minutes of work, not after them."""
    if path.is_dir():
        raise UsageError(f"the report {path} is a folder; name a file in it")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise UsageError(f"cannot write the report {path}: name a file in a folder that is there and that you can write to")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.parent / f".{path.name}.tmp"  # not with_name: a path without a name shall fail as an OSError
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
