"""What the README shows is run here: its programs, its scenario, and the figures it quotes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from libweft.__main__ import main
from libweft.bench.runs.scenario import Scenario

TEXT = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.live
def test_the_programs_run_and_print_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for program in blocks("python"):
        exec(program, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(f"`{line}`" in TEXT for line in printed)


def test_the_scenario_is_one() -> None:
    (scenario,) = blocks("toml")
    assert msgspec.convert(tomllib.loads(scenario), Scenario).nodes == 1000


def test_the_first_run_gives_the_figures_quoted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = re.search(r"weft (sim .*) --trace run\n", TEXT)
    assert command is not None
    assert main([*command[1].split(), "--trace", str(tmp_path / "run")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    figures = r"^  (?:deliveries|reliability|rmr|latency|trace hash) .*$"
    quoted = [line.split() for line in re.findall(figures, TEXT, re.MULTILINE)]
    assert len(quoted) > 3
    assert all(line in lines for line in quoted)
