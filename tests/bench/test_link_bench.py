"""`weft bench link` and `weft bench load` in small: their counts are right and their figures fit together; no time is judged."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import pytest

from libweft.__main__ import main
from libweft.bench.perf import link, link_sides
from libweft.bench.perf.load import SPARE, bench_load
from libweft.peer.errors import UsageError, WeftError

MESSAGES = 2_000
OURS = [name for name, case in link.CASES.items() if not case.rival]


def check_cases(result: dict[str, Any], names: list[str]) -> None:
    assert list(result["cases"]) == names
    for name, figures in result["cases"].items():
        assert figures["count"] == max(link.LEAST, round(MESSAGES * link.CASES[name].share))
        assert figures["per_cpu_s"] == pytest.approx(1e6 / (figures["dialler_us"] + figures["listener_us"]))
        assert min(figures["dialler_us"], figures["listener_us"]) > 0
    for name, ratio in result["ratios"].items():
        ours, theirs = (result["cases"][case]["per_cpu_s"] for case in name.split(" / "))
        assert ratio["median"] == ratio["least"] == ratio["most"] == pytest.approx(ours / theirs)


@pytest.mark.live
def test_every_case_counts_its_messages_and_ratios_follow_from_the_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "link", "--messages", str(MESSAGES), "--repetitions", "1", "--no-rivals", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    check_cases(result, OURS)
    assert result["rivals"] == {"py-libp2p": "left out"}
    assert not any("py-libp2p" in name for name in result["ratios"])
    assert [row["case"] for row in link.rows(result)] == OURS
    assert [row["ratio"] for row in link.ratio_rows(result)] == list(result["ratios"])


@pytest.mark.live
@pytest.mark.slow
def test_py_libp2p_is_measured_beside() -> None:
    result = link.bench_link(MESSAGES, 1)
    check_cases(result, list(link.CASES))
    assert result["rivals"]["py-libp2p"].startswith("0.8")
    assert list(result["ratios"]) == list(link.RATIOS)


@pytest.mark.live(deadline=600)
def test_a_profile_shares_out_the_whole_time_of_each_side() -> None:
    for repetitions in (1, 5, 25):  # the kernel looks at its own ticks, and a short run may fall between them
        result = link.profile_link(20_000, repetitions)
        if all(result["samples"].values()):
            break
    assert len(result["parts"]) == 6
    for side, parts in result["parts"].items():
        assert result["samples"][side] > 0
        assert sum(parts.values()) == pytest.approx(1)
        assert sum(result["functions"][side].values()) == pytest.approx(1)
    assert link.profile_rows(result)[-1] == {"percent": "samples", **result["samples"]}


@pytest.mark.parametrize(
    ("module", "function", "part"),
    [
        ("libweft.peer.libp2p.noise", "Channel.seal", "cipher"),
        ("libweft.peer.live.driver", "Inlet.data", "dispatch"),
        ("libweft.peer.live.driver", "Driver.post", "driver and outbox"),
        ("trio._core._run", "unrolled_run", "trio"),
        ("trio._core._io_epoll", "EpollIOManager.get_events", "system calls"),
        ("socket", "socket.accept", "other"),
    ],
)
def test_a_function_belongs_to_a_part(module: str, function: str, part: str) -> None:
    assert link_sides.part_of(module, function) == part


@pytest.mark.parametrize("data", [link_sides.numbered(8), link_sides.numbered(6), link_sides.numbered(7)[:-1], b""])
def test_a_receiver_refuses_what_is_not_the_next_message(data: bytes) -> None:
    link_sides.check_number(link_sides.numbered(7), 7)
    with pytest.raises(WeftError, match="message 7 was due"):
        link_sides.check_number(data, 7)


def test_a_process_that_fails_ends_the_bench_with_its_last_words() -> None:
    with (
        pytest.raises(WeftError, match="ZeroDivisionError: division by zero"),
        link.Child([sys.executable, "-c", "1 / 0"]) as child,
    ):
        child.hear()


def test_a_process_that_does_not_end_is_killed() -> None:
    with pytest.raises(ZeroDivisionError), link.Child([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        raise ZeroDivisionError
    assert child.ended


@pytest.mark.parametrize("asked", [("--messages", "1"), ("--repetitions", "0")])
def test_too_little_is_refused(asked: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "link", *asked]) == 2
    assert "at least" in capsys.readouterr().err


@pytest.mark.live
def test_load_hears_every_message_of_every_link(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "load", "--links", "20", "--seconds", "2", "--every", "0.5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["links"], result["messages"]) == (20, 80)
    assert result["errors"] == result["links_lost"] == result["messages_missed"] == result["out_of_order"] == 0
    assert result["problems"] == []
    assert 0 < result["rss_before_mb"] < result["rss_after_mb"]
    assert result["kb_a_link"] == pytest.approx(1024 * (result["rss_after_mb"] - result["rss_before_mb"]) / 20)
    assert result["cpu_s_a_minute"] > 0


@pytest.mark.parametrize(("links", "seconds", "every"), [(0, 2.0, 1.0), (5, 2.0, 3.0), (5, 2.0, 0.0)])
def test_load_refuses_what_makes_no_sense(links: int, seconds: float, every: float) -> None:
    with pytest.raises(UsageError, match="at least one link"):
        bench_load(links, seconds, every)


def test_load_says_when_the_system_allows_too_few_files() -> None:
    """In a process of its own, since a hard limit cannot be raised again."""
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({SPARE + 10}, {SPARE + 10}))
from libweft.__main__ import main
raise SystemExit(main(["bench", "load", "--links", "11"]))
"""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > SPARE + 10
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"--links 11 needs {SPARE + 11} open files, and this system allows {SPARE + 10}" in done.stderr
