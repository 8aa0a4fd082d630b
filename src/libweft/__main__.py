"""The command `weft`, which is also `python -m libweft`: flags in, figures out.

The commands of a live peer come from `libweft.pubsub.live.cli`. Those of the bench are modules of `libweft.bench.cli`, and
each is imported only when its command is given. Figures go to stdout, as a table or with `--json` as one object on the last
line; progress and errors go to stderr. The exit status is 0 when the command is done, 1 when a run failed, 2 when the command
was used wrongly, and 130 when it was interrupted. An error is one line that says what to do.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import NamedTuple, NoReturn, TypeAlias

from libweft import __version__
from libweft.peer.errors import UsageError, WeftError
from libweft.pubsub.live.cli import add_commands, loading

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - argparse has no public name for this type


class BenchCommand(NamedTuple):
    """A command whose flags and work are in a module of the bench, which has `add_flags(parser)`."""

    name: str
    summary: str
    module: str


BENCH_COMMANDS = (
    BenchCommand("sim", "run one scenario in the simulator", "libweft.bench.cli.sim"),
    BenchCommand("sweep", "run every combination of a grid of scenarios, as Spark tasks", "libweft.bench.cli.sweep"),
    BenchCommand("analyze", "compute the figures of traces on Spark", "libweft.bench.cli.analyze"),
    BenchCommand(
        "demo", "simulate, analyse on Spark, and write a report: the main job in a minute or two", "libweft.bench.cli.demo"
    ),
    BenchCommand("reproduce", "measure a figure of a paper again: the paper's value and ours", "libweft.bench.cli.reproduce"),
    BenchCommand("bench", "measure weft itself", "libweft.bench.cli.perf"),
)


class Parser(argparse.ArgumentParser):
    """argparse prints its usage before an error; one line is enough, and `main` writes it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def refuse(self, word: str) -> NoReturn:
        near = get_close_matches(word.partition("=")[0], list(self._option_string_actions), n=1)
        self.error(f"{word} is not understood" + (f"; did you mean {near[0]}?" if near else ""))


def main(argv: Sequence[str] | None = None) -> int:
    _mend_streams()
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
        return status
    except UsageError as error:
        return _complain(str(error), 2)
    except BrokenPipeError:
        return _hang_up()
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except WeftError as error:
        return _complain(str(error), 1)
    except MemoryError:
        return _complain("out of memory; try fewer nodes or messages", 1)
    except KeyboardInterrupt as error:
        return _complain(f"interrupted{error}", 130)


def _mend_streams() -> None:
    """A stream that was closed before we came takes what is written and forgets it; a poor encoding loses no run."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(words: Sequence[str]) -> int:
    for word in words:
        if not word.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in word):
            raise UsageError(f"the argument {word!a} is not text in UTF-8")
    args, strange = _parser(words).parse_known_args(words)
    if strange:
        args.parser.refuse(strange[0])
    if args.version:
        print(f"weft {__version__}")
        return 0
    if args.run is None:
        args.parser.print_help(sys.stderr)
        return 2
    args.run(args)
    return 0


def _parser(words: Sequence[str]) -> Parser:
    """Return the parser of all commands; of the bench's commands only the one that `words` give has its flags."""
    description = "Peer-to-peer publish/subscribe: live peers that speak libp2p, a simulator, and measures of both."
    parser = Parser(prog="weft", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    parser.set_defaults(run=None, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    add_commands(partial(_add, commands))
    given = next((word for word in words if not word.startswith("-")), None)
    for command in BENCH_COMMANDS:
        added = _add(commands, command.name, command.summary)
        if command.name == given:
            with loading():
                import_module(command.module).add_flags(added)
    return parser


def _add(
    commands: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], None] | None = None
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False)
    parser.set_defaults(run=run, parser=parser)
    return parser


def _complain(text: str, status: int) -> int:
    print(f"weft: {' '.join(text.split())}", file=sys.stderr)
    return status


def _hang_up() -> int:
    """Send the rest of stdout nowhere, because its reader has left: closing stdout at exit would print a second error."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 1


if __name__ == "__main__":
    sys.exit(main())
