"""Flags that several commands of the bench have."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that decide how a command shows its figures."""
    parser.add_argument("--json", action="store_true", help="print JSON, one object instead of a table")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")


def add_spark_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where Spark runs, and with how much memory."""
    masters = "spark://HOST:PORT, k8s://URL or sc://HOST:PORT; without it SPARK_REMOTE, else Spark runs embedded"
    parser.add_argument("--master", metavar="URL", help=masters)
    parser.add_argument("--memory", metavar="SIZE", help="Java's heap, such as 2g; default: a quarter of the machine, 4g at most")


def add_keep_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag that names the folder of finished runs."""
    kept = "where the measures of runs are kept, so that an interrupted command goes on when it is repeated; default: weft-runs"
    parser.add_argument("--keep", type=Path, default=Path("weft-runs"), metavar="DIR", help=kept)
