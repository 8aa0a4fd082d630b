"""The chat's page in headless Chromium: two peers, each a process of its own, with a page each."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.examples.devtools import Page, open_browser

pytestmark = [pytest.mark.slow, pytest.mark.live]

DEADLINE_S = 240
ROOT = Path(__file__).parent.parent.parent
SCRIPT = "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>&amp;"
TEXTS = "[...document.querySelectorAll('#lines .text')].map((each) => each.textContent)"
NAMES = "[...document.querySelectorAll('#members li')].map((each) => each.textContent)"
NEAR = "[...document.querySelectorAll('#picture circle.near')].map((each) => each.dataset.peer)"


@asynccontextmanager
async def chat(name: str, *argv: str) -> AsyncIterator[tuple[str, str]]:
    """The page's address, and what a friend types after --join."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "libweft.examples.chat", "--name", name, "--web", "--listen", "/ip4/127.0.0.1/tcp/0", *argv],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        text = ""
        while (found := re.search(r"--join (\S+).*your page: (\S+)\n", text, re.DOTALL)) is None:
            data = await process.stdout.receive_some()
            assert data, f"ended after {text!r}"
            text += data.decode()
        yield found[2], found[1]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        assert b"".join([data async for data in process.stderr]) == b""
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()
            await process.stderr.aclose()


async def shows(page: Page, texts: list[str]) -> None:
    await page.until(f"JSON.stringify({TEXTS}) === {json.dumps(json.dumps(texts, separators=(',', ':')))}")


async def test_what_is_typed_in_one_page_shows_in_the_other_as_text(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with (
            open_browser(tmp_path / "profile") as browser,
            chat("ada") as (ada_url, address),
            chat("bob", "--join", address) as (bob_url, _),
        ):
            ada, bob = await browser.open(ada_url), await browser.open(bob_url)
            invitation = f"python -m libweft.examples.chat --name bob --join {address}"
            await ada.until(f"document.querySelector('#invitation').textContent === {json.dumps(invitation)}")
            await ada.until(f"{NAMES}.join() === 'ada (you),bob'")
            await bob.until(f"{NAMES}.join() === 'ada,bob (you)'")

            await ada.type("#text", "hello bob")
            await shows(bob, ["hello bob"])
            await bob.type("#text", SCRIPT)
            for page in (ada, bob):
                await shows(page, ["hello bob", SCRIPT])
                assert await page.evaluate("document.querySelectorAll('#lines script, #lines img').length") == 0
                assert await page.evaluate("window.broken") is None

            peer = address.rpartition("/")[2]
            await bob.until(f"JSON.stringify({NEAR}) === {json.dumps(json.dumps([peer]))}")
            await ada.until("document.querySelector('#picture').textContent.includes('bob')")

            await bob.type("#room", "garden")
            await bob.until("document.querySelector('#rooms .current .room').textContent === 'garden'")
            await bob.type("#text", "flowers")
            await shows(bob, ["flowers"])
            await ada.type("#room", "garden")  # and is told what was said before
            await shows(ada, ["flowers"])
            await ada.type("#name", "bob")
            await bob.until(f"/^bob#.{{8}},bob#.{{8}} \\(you\\)$|^bob#.{{8}} \\(you\\),bob#.{{8}}$/.test({NAMES}.join())")
            await ada.type("#name", "not a name")
            await ada.until("document.querySelector('#notice').textContent.includes('is no name')")
            assert browser.complaints == []

            await ada.picture(tmp_path / "chat.png")
            assert (tmp_path / "chat.png").read_bytes().startswith(b"\x89PNG")


async def test_a_page_of_another_site_does_not_reach_the_chat_though_it_knew_the_token(tmp_path: Path) -> None:
    program = """new Promise((done) => {
        const socket = new WebSocket(URL_);
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
    })"""
    with trio.fail_after(DEADLINE_S):
        async with open_browser(tmp_path / "profile") as browser, chat("ada") as (url, _):
            socket = json.dumps(url.replace("http", "ws") + "ws")
            own, other = await browser.open(url), await browser.open("data:text/html,<title>evil</title>")
            await other.until("document.title === 'evil'")
            assert await other.evaluate(program.replace("URL_", socket)) == "refused"
            await own.until("document.querySelector('#state.up') !== null")
            assert await own.evaluate(program.replace("URL_", socket)) == "open"
