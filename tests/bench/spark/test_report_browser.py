"""The pages in headless Chromium: the report of two small runs, a sweep and a live network, on a desk and on a phone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession

from libweft.bench import report
from libweft.bench.report.live import History
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark.analysis import analyze
from tests.bench.test_report_live import figures
from tests.bench.test_report_sweep import swept
from tests.examples.devtools import Browser, Page, open_browser

pytestmark = [pytest.mark.slow, pytest.mark.live]

DEADLINE_S = 240
WIDTHS = (1_280, 390)
NODES = 40
STACKS = ("hyparview/flood", "hyparview/plumtree")
COUNTS = "[...document.querySelectorAll('[data-count=reached]')].map((each) => each.textContent).join()"
FIRST_COLUMN = "[...document.querySelector('#comparison ~ .box tbody').rows].map((row) => row.cells[2].dataset.v).map(Number)"
INK = """(() => {
  const canvas = document.querySelector(".stage canvas"), context = canvas.getContext("2d");
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.filter((value, place) => place % 4 === 3 && value > 0).length;
})()"""


@pytest.fixture(scope="module")
def two_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("report")
    folders = [base / stack.replace("/", "-") for stack in STACKS]
    for stack, folder in zip(STACKS, folders, strict=True):
        run(Scenario(stack=stack, nodes=NODES, warmup=10.0, workload=Workload(messages=5)), trace=folder)
    report.write(analyze(spark, folders, graph=False, pictures=True), base / "report.html", title="Two runs")
    return base / "report.html"


async def opened(browser: Browser, path: Path, width: int, **features: str) -> Page:
    page = await browser.open("about:blank", width, 900)
    emulated = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    await page.call("Emulation.setEmulatedMedia", features=emulated)
    await page.call("Page.navigate", url=path.resolve().as_uri())
    await page.until("location.protocol === 'file:' && document.readyState === 'complete'")
    return page


async def fits(page: Page) -> bool:
    return bool(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


async def test_the_message_plays_until_all_are_reached_and_tables_sort(two_runs: Path, tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with open_browser(tmp_path / "profile") as browser:
            for width in WIDTHS:
                page = await opened(browser, two_runs, width)
                assert await fits(page)
                whole = ",".join([f"{NODES - 1} of {NODES - 1}"] * len(STACKS))
                assert await page.evaluate(COUNTS) == whole  # it begins as a still picture of the end
                await page.evaluate("document.querySelector('#player').scrollIntoView()")
                await page.until(f"{INK} > 100")
                await page.evaluate("document.querySelector('.speed').value = '4'; document.querySelector('.play').click()")
                await page.until(f"{COUNTS} !== '{whole}' && document.querySelector('.play').textContent === 'Pause'")
                await page.until(f"{COUNTS} === '{whole}' && document.querySelector('.play').textContent === 'Play'")
                heard = await page.evaluate("document.querySelector('.heard').textContent")
                assert heard.count(f"reached {NODES - 1} of {NODES - 1}") == len(STACKS)

                scrub = "const s = document.querySelector('.scrub'); s.value = 0; s.dispatchEvent(new Event('input'))"
                await page.evaluate(f"(() => {{ {scrub} }})()")
                assert await page.evaluate(COUNTS) == ",".join([f"0 of {NODES - 1}"] * len(STACKS))

                before = await page.evaluate(FIRST_COLUMN)
                head = "document.querySelectorAll('#comparison ~ .box thead button')[2]"
                for order in (sorted(before), sorted(before, reverse=True)):
                    await page.evaluate(f"{head}.click()")
                    assert await page.evaluate(FIRST_COLUMN) == order
                assert await fits(page)
            assert browser.complaints == []


async def test_who_wants_no_motion_gets_steps(two_runs: Path, tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with open_browser(tmp_path / "profile") as browser:
            page = await opened(browser, two_runs, 1_280, prefers_reduced_motion="reduce")
            program = "document.querySelector('#player').scrollIntoView(); document.querySelector('.play').click()"
            await page.evaluate(program)
            assert await page.evaluate("document.querySelector('.clock').textContent") == "0 ms"
            await page.until("document.querySelector('.clock').textContent !== '0 ms'")
            assert browser.complaints == []


async def test_the_page_of_a_sweep_draws_what_is_picked(tmp_path: Path) -> None:
    report.write_sweep(swept(), tmp_path / "sweep.html", title="Sweep")
    titles = "[...document.querySelectorAll('.plots h3')].map((each) => each.textContent).join('; ')"
    with trio.fail_after(DEADLINE_S):
        async with open_browser(tmp_path / "profile") as browser:
            for width in WIDTHS:
                page = await opened(browser, tmp_path / "sweep.html", width)
                assert await fits(page)
                assert await page.evaluate(titles) == "reliability, % by faults; reliability, % by latency.high"
                assert await page.evaluate("document.querySelectorAll('.plots .whisker').length") == 3 * (2 + 3)
                pick = "const pick = document.querySelector({}); pick.value = '{}'; pick.dispatchEvent(new Event('change'))"
                await page.evaluate(f"(() => {{ {pick.format(repr('.measure'), 1)} }})()")
                assert (await page.evaluate(titles)).startswith("redundancy (RMR) by faults")
                await page.evaluate(f"(() => {{ {pick.format(repr('.held'), 1)} }})()")
                assert await page.evaluate("document.querySelectorAll('.plots .whisker').length") == 2 + 3
            assert browser.complaints == []


async def test_a_live_page_loads_itself_again_and_says_when_it_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "live.html"
    history = History()

    def written(at: float, n: int) -> None:
        history.add(figures(n), at=at)
        report.put(path, history.page(title="Following run", every=1.0))

    with trio.fail_after(DEADLINE_S):
        async with open_browser(tmp_path / "profile") as browser:
            written(time.time(), 0)
            page = await opened(browser, path, 390)
            assert await fits(page)
            while not await page.evaluate("document.querySelector('#age')?.textContent.startsWith('Up to date')"):
                written(time.time(), 0)  # a page that was slow to open is stale by now
                await trio.sleep(0.2)
            written(time.time() - 300, 7)
            await page.until("document.querySelector('.tiles')?.textContent.includes('17')")
            await page.until("document.querySelector('#age')?.textContent.startsWith('Stale: nobody has written')")
            assert browser.complaints == []
