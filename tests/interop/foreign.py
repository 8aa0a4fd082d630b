"""Peers of other libp2p implementations, installed on first use and run as processes that a test talks to.

`async with foreign("js") as node:` starts one. It listens on 127.0.0.1, speaks Noise, Yamux, identify, ping and
`/floodsub/1.0.0` with StrictSign, and is driven by one JSON object a line. At start it says
{"event": "ready", "peer": ..., "addrs": [...]}; then it takes, and answers in their order,
  {"do": "dial", "addr"}                dialled: peer
  {"do": "ping", "addr"}                pinged: ms
  {"do": "identify", "peer"}            identified: peer, agent, protocols, addrs; waits until there is a connection and an answer
  {"do": "subscribe", "topic"}          subscribed
  {"do": "unsubscribe", "topic"}        unsubscribed
  {"do": "peers", "topic", "count"}     peers, as soon as that many subscribers are known and can be sent to
  {"do": "publish", "topic", "data"}    published: count; data is a list of texts
  {"do": "quit"}                        no answer; the end of stdin does the same
or says {"event": "error", "do", "text"}.
Started with the argument "--gossipsub" it speaks GossipSub in its place, and with a peer of floodsub still floodsub. The id of a
message is its author's peer id followed by its sequence number, everywhere. With "--degree N" besides, a mesh has N peers neither
more nor fewer, and what it publishes goes to the mesh alone, but from js with N = 0 to all; without it, things are as the library
has them. It takes, besides,
  {"do": "mesh", "topic"}               mesh: peers
  {"do": "control", "peer"}             control: sent, received; of each kind (graft, prune, ihave, iwant, idontwant) the count of
                                        what went to the peer and came from it: of topics for the first two, of ids for the others
go started with the arguments "--trace PREFIX" writes the traces of its library to PREFIX.json and PREFIX.pb, whole once it quit.
js and go started with the arguments "--dht PREFIX" are servers of a Kademlia DHT too, by the protocol PREFIX/kad/1.0.0. It takes
every value under a key /weft/...; of several the last in the order of bytes is the best. They take, besides,
  {"do": "dht_peers", "count"}          dht_peers, as soon as that many are in the routing table; looks itself up until then
  {"do": "dht_find_peer", "peer"}       dht_peer: peer, addrs; asks until it is found, and js even for one that it knows
  {"do": "dht_put", "key", "value"}     dht_put: key and value are texts
  {"do": "dht_get", "key"}              dht_value: value
  {"do": "dht_provide", "key"}          dht_provided; the key on the wire is the multihash, by SHA-256, of this text
  {"do": "dht_find_providers", "key"}   dht_providers: peers, addrs; the addresses of each peer, as a list
What others published comes in between: {"event": "message", "topic", "from", "data"}.
Logs go to stderr.

What is installed goes to $WEFT_INTEROP_CACHE, else ~/.cache/weft-interop, one folder for each set of versions and sources, made
under another name and renamed when it is whole. js and py need npm, Python and a C compiler; go needs Go. rust takes minutes
to build and is run only where it has been installed by hand:
`python -m tests.interop.foreign install rust` (no names: js, py, and go where there is one); `... clean` removes all of it.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio

HERE = Path(__file__).resolve().parent
SOURCES = {
    "js": ("node.mjs",),
    "py": ("node.py",),
    "go": ("main.go", "go.mod", "go.sum"),
    "rust": ("Cargo.toml", "src/main.rs"),
}
COMMANDS = {
    "js": ("node_modules/.bin/node", "node.mjs"),
    "py": ("venv/bin/python", "-I", "node.py"),
    "go": ("node",),
    "rust": ("target/release/node",),
}
# Each tells in its log, at these levels, why it dropped a message or a record.
LOGS = {
    "DEBUG": "libp2p:floodsub,libp2p:gossipsub,libp2p:kad-dht*,*:error",
    "GOLOG_LOG_LEVEL": "error,pubsub=debug,dht=debug",
    "RUST_LOG": "libp2p_gossipsub=debug",
}
DEADLINE = 60.0
LOG = 4000  # lines of stdout, and of stderr, that are kept
LINE = 500  # letters of each

Event = dict[str, Any]


def cache() -> Path:
    return Path(os.environ.get("WEFT_INTEROP_CACHE") or Path.home() / ".cache" / "weft-interop")


def versions(language: str) -> dict[str, Any]:
    pinned: dict[str, Any] = tomllib.loads((HERE / "versions.toml").read_text())[language]
    return pinned


def home(language: str, sources: Path | None = None) -> Path:
    """Where the node is, or will be, installed; `sources` is a folder with another program in place of the node."""
    digest = hashlib.sha256(json.dumps(versions(language), sort_keys=True).encode())
    for name in SOURCES[language]:
        digest.update(((sources or HERE / language) / name).read_bytes())
    return cache() / f"{language}-{digest.hexdigest()[:16]}"


def missing(language: str) -> str | None:
    """Why a test may do without the node; None when it may not."""
    if language == "rust" and not home(language).exists():
        return "not installed: python -m tests.interop.foreign install rust"
    if language == "go" and shutil.which("go") is None:
        return "no go on the PATH"
    return None


def install(language: str, sources: Path | None = None) -> Path:
    """Installs the node unless it is there already; of several processes one does it, and the others wait."""
    place = home(language, sources)
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.parent / f"{language}.lock"):
        if not place.exists():
            part = place.with_name(place.name + ".part")
            shutil.rmtree(part, ignore_errors=True)  # of one that was interrupted: whoever makes it holds the lock
            for name in SOURCES[language]:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy((sources or HERE / language) / name, part / name)
            build(language, part)
            part.rename(place)
    return place


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(language: str, part: Path) -> None:
    pinned = versions(language)
    if language == "js":
        (part / "package.json").write_text('{"private": true, "type": "module"}\n')
        packages = [f"{name}@{version}" for name, version in pinned["packages"].items()]
        quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier", "--ignore-scripts")
        run(part, "npm", "install", *quiet, f"--before={pinned['before']}", *packages)
    elif language == "py":
        pins = [f"{name}=={version}" for name, version in pinned["packages"].items()]
        (part / "constraints.txt").write_text("\n".join(pins) + "\n")
        run(part, sys.executable, "-m", "venv", "venv")
        run(part, "venv/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "-c", "constraints.txt", "libp2p")
    elif language == "go":
        run(part, "go", "build", "-trimpath", "-o", "node", ".")
    else:
        run(part, "cargo", "build", "--release", "--target-dir", "target")
        for name in ("build", "deps", "incremental"):
            shutil.rmtree(part / "target" / "release" / name, ignore_errors=True)


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} ... exited with {done.returncode}:\n{done.stdout}")


class Foreign:
    """One running node. Only for use inside `foreign`."""

    def __init__(self, language: str, process: trio.Process) -> None:
        self.language = language
        self.process = process
        self.peer = ""
        self.addrs: list[str] = []
        self.messages: list[Event] = []
        self._said: deque[str] = deque(maxlen=LOG)
        self._log: deque[str] = deque(maxlen=LOG)
        self._answered, self._answers = trio.open_memory_channel[Event](math.inf)
        self._asking = trio.Lock()
        self._news = trio.Event()

    async def ask(self, do: str, **fields: object) -> Event:
        """The node's answer; an AssertionError when it is an error, or none comes in time."""
        line = json.dumps({"do": do, **fields}) + "\n"
        assert self.process.stdin is not None
        async with self._asking:
            with self._explaining(f"{do} {fields}"), trio.fail_after(DEADLINE):
                await self.process.stdin.send_all(line.encode())
                answer = await self._answers.receive()
        assert answer["event"] != "error", self._complaint(f"{do} {fields} failed: {answer['text']}")
        return answer

    async def wait_messages(self, count: int) -> list[Event]:
        """All messages so far, once there are that many."""
        with self._explaining(f"waiting for {count} messages"), trio.fail_after(DEADLINE):
            while len(self.messages) < count:
                await self._news.wait()
        return self.messages

    async def _start(self) -> None:
        with self._explaining("starting"), trio.fail_after(DEADLINE):
            ready = await self._answers.receive()
        self.peer, self.addrs = ready["peer"], ready["addrs"]

    @contextmanager
    def _explaining(self, what: str) -> Iterator[None]:
        try:
            yield
        except trio.TooSlowError:
            raise AssertionError(self._complaint(f"{what}: no answer in {DEADLINE:.0f} s")) from None
        except (trio.EndOfChannel, trio.BrokenResourceError):
            raise AssertionError(self._complaint(f"{what}: the process has ended")) from None

    def _complaint(self, text: str) -> str:
        return "\n".join([f"{self.language}: {text}", "--- its stdout", *self._said, "--- its stderr", *self._log])

    def show(self) -> None:
        """Print what the node said: pytest shows it if the test fails."""
        print(self._complaint(f"{self.peer or 'a node that did not start'}, when the test ended"))

    async def _listen(self) -> None:
        async with self._answered:
            async for line in lines(self.process.stdout):
                self._said.append(line[:LINE])
                event = json.loads(line)
                if event["event"] == "message":
                    self.messages.append(event)
                    self._news.set()
                    self._news = trio.Event()
                else:
                    self._answered.send_nowait(event)

    async def _keep_log(self) -> None:
        async for line in lines(self.process.stderr):
            self._log.append(line[:LINE])

    async def _end(self) -> None:
        with trio.CancelScope(shield=True):
            self.process.kill()
            await self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                assert pipe is not None
                await pipe.aclose()


async def lines(stream: trio.abc.ReceiveStream | None) -> AsyncIterator[str]:
    assert stream is not None
    rest = b""
    async for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


@asynccontextmanager
async def foreign(language: str, *arguments: str) -> AsyncIterator[Foreign]:
    place = await trio.to_thread.run_sync(install, language)
    program, *before = COMMANDS[language]
    process = await trio.lowlevel.open_process(
        [str(place / program), *before, *arguments],
        cwd=place,
        env={**LOGS, **os.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    node = Foreign(language, process)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node._listen)
        nursery.start_soon(node._keep_log)
        try:
            await node._start()
            yield node
        except Exception as error:  # noqa: BLE001 - raised below: leaving the nursery it would be wrapped in a group
            failure = error
            node.show()
        except BaseException:  # the deadline of the test, or the failure of another node
            node.show()
            raise
        finally:
            nursery.cancel_scope.cancel()
            await node._end()
    if failure is not None:
        raise failure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.foreign", description="peers of other implementations")
    parser.add_argument("action", choices=("install", "clean"))
    parser.add_argument("languages", nargs="*", metavar="language", help=f"of {', '.join(SOURCES)}")
    options = parser.parse_args()
    if unknown := set(options.languages) - set(SOURCES):
        parser.error(f"no such language: {', '.join(sorted(unknown))}")
    if options.action == "clean":
        for place in (found for language in SOURCES for found in cache().glob(f"{language}-*")):
            shutil.rmtree(place)
        return
    for language in options.languages or ("js", "py", *(("go",) if missing("go") is None else ())):
        start = time.perf_counter()
        place = install(language)
        print(f"{language}: {place}, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
