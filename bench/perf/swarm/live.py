"""A live swarm as its parent sees it: processes that run peers, told what to do by lines of JSON.

`running` starts the processes of a plan, brings up their peers and waits until the overlay is in one piece. Then `begin` starts a
run of messages, `change` kills and joins by the plan, and `outcome` asks all that live what came. A kill is SIGKILL to a whole
process: nothing is flushed, nobody is told, and the kernel closes its sockets.

Bounds: every wait on the processes has a deadline; they end with the block, whatever ends it (SIGTERM does as Ctrl-C does), and
by themselves if the parent is killed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import TypeVar

import msgspec
import trio

from libweft.bench.perf.child import command
from libweft.bench.perf.swarm import messages as words
from libweft.bench.perf.swarm.plan import SETTLE_S, Arrival, Death, Judgement, Plan, Told, judge, united
from libweft.peer.errors import WeftError, alone

COMMAND = command("libweft.bench.perf.swarm.process")
START_S = 120.0  # for what should take seconds, on a machine that has much else to do
QUIET_S = 2.0  # when nothing came for so long, nothing will: more than a lost payload needs to be missed and asked for
LOOK_S = 0.25
LEAD_S = 0.5  # from the command to send until the first moment

T = TypeVar("T")


class Child:
    """A process of the swarm."""

    def __init__(self, number: int, peers: Sequence[int], folder: Path) -> None:
        self.peers = list(peers)
        self.log = folder / f"process-{number}.log"
        self.killed = False
        self._process: trio.Process | None = None
        self._lock = trio.Lock()
        self._asked = 0
        self._put, self._answers = trio.open_memory_channel[words.Said](1)

    async def run(
        self, sent: Callable[[words.Sent], None], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Hear it to its end, which is an error unless `kill` brought it about. It has no terminal: Ctrl-C is for the parent."""
        with self.log.open("wb") as log:
            process = await trio.lowlevel.open_process(COMMAND, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True)
        self._process = process
        try:
            assert process.stdout is not None
            task_status.started()
            async for line in words.lines(process.stdout):
                said = msgspec.json.decode(line, type=words.Said)
                sent(said.answer) if isinstance(said.answer, words.Sent) else await self._put.send(said)
            if not self.killed:
                raise WeftError(f"a process of the swarm ended: {_last_line(self.log)}")
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    @property
    def dead(self) -> bool:
        return self._process is not None and self._process.returncode == -signal.SIGKILL

    def kill(self) -> None:
        assert self._process is not None
        self.killed = True
        self._process.send_signal(signal.SIGKILL)

    async def ask(self, command: words.Command, kind: type[T]) -> T:
        """Cancelled, the command may be obeyed all the same; its answer is then nobody's."""
        assert self._process is not None and self._process.stdin is not None
        async with self._lock:
            self._asked += 1
            try:
                await self._process.stdin.send_all(msgspec.json.encode(words.Asked(self._asked, command)) + b"\n")
            except trio.BrokenResourceError:
                await trio.sleep_forever()  # it has ended; `run` is about to say how
            return await self.hear(kind)

    async def hear(self, kind: type[T]) -> T:
        """The answer to the last command, or the first word; answers to older commands, which nobody waits for, are skipped."""
        said = await self._answers.receive()
        while said.number < self._asked:
            said = await self._answers.receive()
        assert isinstance(said.answer, kind), said
        return said.answer


@dataclass(frozen=True)
class Load:
    """Who sends, each beginning so many seconds after the start; `rate` is of each."""

    senders: dict[int, float]
    rate: float
    seconds: float

    @property
    def count(self) -> int:
        return max(1, round(self.rate * self.seconds))


@dataclass(frozen=True)
class Outcome:
    """Of one run; `told` and `cpu_s` are of the processes that live."""

    judgement: Judgement
    told: dict[int, Told]
    cpu_s: float
    behind_s: float  # by how much the last message of the slowest sender left after its moment
    dead: int  # processes that SIGKILL has ended


class Swarm:
    """The processes and the peers in them; made by `running`."""

    def __init__(self, plan: Plan, children: Sequence[Child]) -> None:
        self.plan = plan
        self.children = children
        self.home = {peer: child for child in children for peer in child.peers}
        self.ids: dict[str, int] = {}
        self.addresses: dict[int, list[str]] = {}
        self.run = 0
        self.behind: dict[int, float] = {}  # of those that have sent all in this run

    @property
    def living(self) -> list[Child]:
        return [child for child in self.children if not child.killed]

    def sent(self, answer: words.Sent) -> None:
        if answer.run == self.run:
            self.behind[answer.sender] = answer.late

    async def open(self) -> None:
        """All join through one, as in the simulator: through several they would be islands at first."""
        for child in self.children:
            await child.hear(words.Ready)
        await self._open(0, ())
        await _each(self.children, self._open_all)

    async def _open_all(self, child: Child) -> None:
        for peer in child.peers:
            if peer:
                await self._open(peer, (0,))

    async def _open(self, peer: int, contacts: Sequence[int]) -> None:
        bootstrap = [address for contact in contacts for address in self.addresses[contact]]
        opened = await self.home[peer].ask(words.Open(peer, bootstrap), words.Opened)
        self.ids[opened.id], self.addresses[peer] = peer, opened.addresses

    async def unite(self) -> None:
        with within(START_S, "the overlay to be in one piece"):
            while not united(await self._neighbors()):
                await trio.sleep(LOOK_S)

    async def _neighbors(self) -> dict[int, list[int]]:
        looks = [await child.ask(words.Look(), words.Looked) for child in self.living]
        return {peer: [self.ids[id] for id in ids] for look in looks for peer, ids in look.neighbors.items()}

    async def begin(self, load: Load) -> float:
        """The moment at which they start, which is soon."""
        self.run += 1
        self.behind = {}
        with within(START_S, "the processes to begin a run"):
            for child in self.living:
                await child.ask(words.Begin(self.run), words.Done)
            at = time.monotonic() + LEAD_S
            for child in self.living:
                if here := {sender: at + phase for sender, phase in load.senders.items() if sender in child.peers}:
                    await child.ask(words.Send(self.run, here, load.count, 1 / load.rate, self.plan.config.size), words.Done)
        return at

    async def all_sent(self, senders: Sequence[int]) -> None:
        while not all(sender in self.behind for sender in senders):
            await trio.sleep(LOOK_S)

    async def all_came(self, due: dict[int, int], peers: Sequence[int]) -> None:
        while await self._came(due, peers) < sum(due.values()) * len(peers):
            await trio.sleep(LOOK_S)

    async def quiet(self, due: dict[int, int], peers: Sequence[int]) -> None:
        """Nobody sends any more, and nothing comes."""
        with within(START_S, "the senders to stop"):
            for child in self.living:
                await child.ask(words.Stop(), words.Done)
        before = -1
        with trio.move_on_after(SETTLE_S):
            while (now := await self._came(due, peers)) != before:
                before = now
                await trio.sleep(QUIET_S)

    async def _came(self, due: dict[int, int], peers: Sequence[int]) -> int:
        command = words.Count(list(peers), list(due))
        return sum([(await child.ask(command, words.Counted)).messages for child in self.living])

    async def outcome(self, due: dict[int, int], peers: Sequence[int]) -> Outcome:
        with within(START_S, "the processes to tell what came"):
            reports = [await child.ask(words.Report(), words.Reported) for child in self.living]
        told = {peer: each for report in reports for peer, each in report.told.items()}
        cpu_s = sum(report.cpu_s for report in reports)
        dead = sum(child.dead for child in self.children)
        return Outcome(judge(due, peers, told), told, cpu_s, max(self.behind.values(), default=0.0), dead)

    async def change(self, began: float) -> None:
        """Kills and joins, each at its moment: a slow join must not delay a kill."""
        async with trio.open_nursery() as nursery:
            for death in self.plan.deaths:
                nursery.start_soon(self._kill, began + death.at, death)
            for arrival in self.plan.arrivals:
                nursery.start_soon(self._join, began + arrival.at, arrival)

    async def _kill(self, at: float, death: Death) -> None:
        await _until(at)
        self.home[death.peers[0]].kill()

    async def _join(self, at: float, arrival: Arrival) -> None:
        """Into one of the processes that nobody is going to kill."""
        await _until(at)
        lasting = self.children[: self.plan.config.processes]
        child = min(lasting, key=lambda child: len(child.peers))
        child.peers.append(arrival.peer)
        self.home[arrival.peer] = child
        await self._open(arrival.peer, arrival.contacts)

    async def explain(self, judged: Judgement) -> list[str]:
        """The logs of all that have to do with it."""
        senders = {sender for short in judged.missing.values() for sender in short}
        senders |= {sender for doubled in judged.doubled.values() for sender, _ in doubled}
        peers = {*judged.missing, *judged.doubled, *senders}
        with within(START_S, "the processes to explain what is wrong"):
            for child in self.living:
                if here := sorted(peers.intersection(child.peers)):
                    await child.ask(words.Explain(here), words.Done)
        return sorted({str(self.home[peer].log) for peer in peers})


@asynccontextmanager
async def running(plan: Plan, folder: Path) -> AsyncIterator[Swarm]:
    """A swarm whose peers are up and joined; its processes end with the block."""
    swarm = Swarm(plan, [Child(number, peers, folder) for number, peers in enumerate(plan.homes())])
    with alone(), _one_is_enough():
        async with trio.open_nursery() as nursery:
            await nursery.start(_heed_sigterm)
            with within(START_S, "the processes to begin"):
                for child in swarm.children:
                    await nursery.start(child.run, swarm.sent)
                await swarm.open()
            await swarm.unite()
            yield swarm
            nursery.cancel_scope.cancel()


async def _heed_sigterm(task_status: trio.TaskStatus[None]) -> None:
    """A task of its own, since a handler that raises would do so in the midst of trio."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            raise KeyboardInterrupt


@contextmanager
def _one_is_enough() -> Iterator[None]:
    """Of processes that fail together, the first says why."""
    try:
        yield
    except BaseExceptionGroup as group:
        failed, others = group.split(WeftError)
        if failed is None or others is not None:
            raise
        first: BaseException = failed
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _each(children: Sequence[Child], deed: Callable[[Child], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        for child in children:
            nursery.start_soon(deed, child)


async def _until(at: float) -> None:
    await trio.sleep(max(0.0, at - time.monotonic()))


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise WeftError(f"{seconds:.0f} s were not enough for {what}") from None


def _last_line(log: Path) -> str:
    written = log.read_text(errors="replace").strip().splitlines()
    return written[-1] if written else "without a word"
