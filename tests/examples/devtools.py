"""Headless Chromium, driven over its DevTools protocol: open a page, look into it, type, take a picture."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.examples.websocket import WebSocket, open_websocket


def chromium() -> str:
    """The program; a test that needs it is skipped where there is none, but in CI fails."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        message = "chromium is not installed; Debian's package is called chromium"
        if "CI" in os.environ:
            pytest.fail(message)
        pytest.skip(message)
    return found


class Browser:
    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._come = trio.Event()
        self.complaints: list[str] = []
        """Errors that pages wrote to the console, what their policy forbids included."""

    async def run(self) -> None:
        while True:
            message = await self._socket.receive()
            if "id" in message:
                self._answers[message["id"]] = message
            elif message["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"]["exceptionDetails"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.complaints.append(message["params"]["entry"]["text"])
            self._come.set()
            self._come = trio.Event()

    async def call(self, method: str, session: str | None = None, **params: object) -> Any:
        number = next(self._numbers)
        await self._socket.send({"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {}))
        while number not in self._answers:
            await self._come.wait()
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    async def open(self, url: str, width: int = 1_100, height: int = 700) -> Page:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            await page.call(f"{domain}.enable")
        await page.resize(width, height)
        await page.call("Page.navigate", url=url)
        return page


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self.browser = browser
        self.session = session

    async def call(self, method: str, **params: object) -> Any:
        return await self.browser.call(method, self.session, **params)

    async def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)

    async def evaluate(self, program: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, program: str) -> Any:
        """Its value, once that is true."""
        while not (found := await self.evaluate(program)):
            await trio.sleep(0.05)
        return found

    async def type(self, selector: str, text: str) -> None:
        """Into an input, with Enter at the end, as a hand would."""
        await self.until(f"document.querySelector({json.dumps(selector)}) !== null")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        await self.call("Input.insertText", text=text)
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    async def picture(self, path: Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def open_browser(folder: Path) -> AsyncIterator[Browser]:
    """`folder` is for its profile. No sandbox: that of Chromium does not start in many containers."""
    process = await trio.lowlevel.open_process(
        [
            *(chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with open_websocket(await _endpoint(folder, process)) as socket, trio.open_nursery() as nursery:
            browser = Browser(socket)
            nursery.start_soon(browser.run)
            yield browser
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def _endpoint(folder: Path, process: trio.Process) -> str:
    """Chromium writes it to a file, when it listens; until then there is none, or a part of it."""
    told = folder / "DevToolsActivePort"
    while not told.exists() or (found := re.match(r"(\d+)\n(/devtools/browser/[-\w]{36})", told.read_text())) is None:
        assert process.poll() is None, "chromium ended at once"
        await trio.sleep(0.05)
    return f"ws://127.0.0.1:{found[1]}{found[2]}"
