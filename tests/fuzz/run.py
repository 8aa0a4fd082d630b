"""Fuzzing guided by coverage: `python -m tests.fuzz.run [--seconds 60] [TARGET ...]`, where atheris can be imported.

Each target has a process of its own for that time, beginning with the real inputs of `tests.fuzz.seeds`. An input that breaks
it goes to tests/fuzz/cases/TARGET, one for each place that raised, and the run goes on; one that takes longer than SLOW_S
or more than MEMORY_MB ends the target's run and is kept too. `tests/fuzz/test_fuzz.py` replays what is kept.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import traceback
from hashlib import sha256
from pathlib import Path

CASES = Path(__file__).parent / "cases"
SLOW_S = 5
MEMORY_MB = 512
LONGEST = 1 << 12
CHILD = "--child"


def fuzz(name: str, seconds: int) -> int:
    """How many new cases a target has after that time."""
    from tests.fuzz.seeds import seeds

    folder = CASES / name
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate((*seeds(name), *(path.read_bytes() for path in folder.glob("*.bin")))):
            (Path(corpus) / f"seed-{number}").write_bytes(data)
        options = (f"-max_total_time={seconds}", f"-timeout={SLOW_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={LONGEST}")
        quiet = (f"-artifact_prefix={folder}/", "-verbosity=0", "-print_final_stats=1")
        command = [sys.executable, "-m", "tests.fuzz.run", CHILD, name, *options, *quiet, corpus]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    for path in folder.iterdir():
        if path.suffix != ".bin":
            path.rename(path.with_suffix(".bin"))
    fresh = set(folder.glob("*.bin")) - before
    runs = [line.rpartition(" ")[2] for line in done.stderr.splitlines() if line.startswith("stat::number_of_executed_units")]
    print(f"{name}: {runs[0] if runs else 'unknown'} runs, {len(fresh)} new cases", flush=True)
    if done.returncode or fresh:
        print(done.stderr, file=sys.stderr, flush=True)
    if not any(folder.iterdir()):
        folder.rmdir()
    return len(fresh) + bool(done.returncode)


def child(name: str, options: list[str]) -> None:
    """Fuzz until time is up; never returns."""
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]

    with atheris.instrument_imports(include=["libweft"]):
        from tests.fuzz.targets import check
    known: set[tuple[str, str, int | None]] = set()

    def one(data: bytes) -> None:
        try:
            check(name, data)
        except Exception as error:  # noqa: BLE001 - any error is a finding, and is printed
            place = traceback.extract_tb(error.__traceback__)[-1]
            if (what := (type(error).__name__, place.filename, place.lineno)) not in known:
                known.add(what)
                (CASES / name / f"{sha256(data).hexdigest()[:16]}.bin").write_bytes(data)
                traceback.print_exception(error)

    atheris.Setup([sys.argv[0], *options], one)
    atheris.Fuzz()


def main() -> None:
    if sys.argv[1:2] == [CHILD]:
        child(sys.argv[2], sys.argv[3:])
        return
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    found = sum(fuzz(name, options.seconds) for name in options.targets or TARGETS)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
