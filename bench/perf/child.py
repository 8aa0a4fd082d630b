"""How a bench starts a module of ours in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import libweft

ROOT = str(Path(libweft.__file__).parents[1])
PROGRAM = """\
import runpy, sys
root, module = sys.argv[1:3]
del sys.argv[1:3]
if root not in sys.path:
    sys.path.insert(0, root)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def command(module: str) -> list[str]:
    """The words to which the module's own are added.

    Not `-m`, which looks into the working folder first: a user's `libweft.py` there would be taken for ours. And a tree that is
    not installed is on no path but this process's own.
    """
    return [sys.executable, "-P", "-c", PROGRAM, ROOT, module]
