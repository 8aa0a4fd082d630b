"""The programs of rivals that benches measure weft beside: where they are installed, and the command lines that start them.

A program in this folder runs with none of weft. The libraries are installed on first use by `tests/interop/foreign.py`, in the
versions and the place that the interop tests have; so only a source tree has rivals. Where one cannot be installed,
`about` says why, and the bench goes on without it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

RIVALS = Path(__file__).resolve().parent
ROOT = RIVALS.parents[2]
PROGRAM = """\
import sys
from pathlib import Path
from tests.interop.foreign import install, missing, versions
language, package, *sources = sys.argv[1:]
if (reason := missing(language)) is not None:
    sys.exit(reason)
print(install(language, *map(Path, sources)), versions(language)["packages"][package], sep="\\n")
"""


@dataclass(frozen=True)
class Program:
    """`about` is its version; without words it is left out, and `about` says why."""

    about: str
    words: tuple[str, ...] = ()
    folder: Path | None = None  # where it must be started


LEFT_OUT = Program("left out")


def py_libp2p(program: str) -> Program:
    place, about = _install("py", "libp2p")
    return Program(about, (str(place / "venv" / "bin" / "python"), "-I", str(RIVALS / program))) if place else Program(about)


def js_libp2p(program: str) -> Program:
    """Node looks for packages from where a program is, or for a program given as text from where it was started."""
    place, about = _install("js", "@libp2p/gossipsub")
    if place is None:
        return Program(about)
    node = str(place / "node_modules" / ".bin" / "node")
    return Program(f"gossipsub {about}", (node, "--input-type=module", "--eval", (RIVALS / program).read_text()), place)


def go_libp2p(program: str) -> Program:
    place, about = _install("go", "github.com/libp2p/go-libp2p-pubsub", str(RIVALS / program))
    return Program(f"go-libp2p-pubsub {about}", (str(place / "node"),)) if place else Program(about)


def _install(*arguments: str) -> tuple[Path | None, str]:
    """Where it is, and its version; or None and why not."""
    if not (ROOT / "tests" / "interop" / "foreign.py").exists():
        return None, "left out: only a source tree can install it"
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return None, f"left out: {done.stderr.strip().splitlines()[-1]}"
    place, version = done.stdout.splitlines()
    return Path(place), version
