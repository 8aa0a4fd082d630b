"""VCube: each node has a place in a virtual hypercube, tests some of the others in rounds, and so knows who is up.

E. P. Duarte Jr., L. C. E. Bona, V. K. Ruoso: "VCube: a provably scalable distributed diagnosis algorithm", ScalA 2014. In round
r a node tests those of its cluster s = r mod log2 N for whom it is the first that is up. Who answers tells with it what has
changed (`roll`), and who does not is down. So every node that is up knows of an event within log2^2 N rounds, however many are
down. The paper has a fixed set of nodes; what it leaves open is settled here as follows:
- Any member admits: to the empty place nearest to its own, else to one whose owner is gone, else in a new half of the cube.
  Two members may give one place to two newcomers: the lower peer id keeps it, and the other asks again. A peer that was a
  member gets the place that it had.
- A node that hears that it is down, and is not, raises its counter, which undoes it. If somebody has its place, or no counter is
  left above the one that it heard of, it asks again, and gets another place.
- Events also go down the tree of all members at once (`announce`), and the rounds find what was lost on the way.
- Who has contacts never begins a cube, unless it was refused by all of them and is asked itself by a higher peer id: so nodes
  that all begin at once agree. Contacts that are no members are tested now and then, which joins cubes that came apart.
- The root of a key is the member that is up nearest to the key's place, and the way to it is that of the tree which the root
  spans over all members: so all who know the same members agree, and nobody is further from the root than log2 N.

Below it asks for: requests. Above it promises: `roll`, the places of those that are up, with `crowd` told of each change;
`neighbors`, the first of each cluster that is up, to whom links are held; `next_hop`.
Bounds: the roll; a test a member, TESTS at a time; timers: two; what a peer says by `messages`.
Length: this is one paper's machine. Its handlers share one state, so that a part of them in another file would not be simpler.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from libweft.overlays.claims import check_infos, learn, told
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import KeyRouting, Sampling
from libweft.overlays.vcube.config import DEFAULTS, VCubeConfig
from libweft.overlays.vcube.cube import DIMENSION, PLACES, assigned, cluster, dimension, first, nearest, parent, place_of
from libweft.overlays.vcube.members import Census, Change, Founders, Roll
from libweft.overlays.vcube.messages import (
    FOUNDED,
    LAST,
    LIST,
    NEVER,
    Admitted,
    AreYouUp,
    Join,
    Member,
    News,
    Report,
    check,
    check_counter,
)
from libweft.overlays.vcube.places import Crowd, Places
from libweft.peer.errors import PeerError, Refused, UsageError
from libweft.peer.machine import Env, Link, Peer, PeerInfo, Reply, Timer, answers, upon

TESTS = 512  # under way; a driver has room for twice as many requests
PROBE = 30  # rounds between two tests of a contact that is no member; a guess
PAGES = 4 * PLACES // LIST  # reports in a row that bring no end: nobody has so much to tell
TURNS = 2  # how often all contacts must have failed before a node may begin a cube

LOST = "its place was taken"
DOWN = "it does not answer"
MOVED = "another is nearer"


class VCube(Overlay):
    """`index` is this node's place; `ready` once it also knows the members. `version` counts what has changed in the roll."""

    __slots__ = (
        "asked", "base", "census", "config", "contacts", "counter", "crowd", "downs", "firsts", "heard", "index", "pages",
        "pause", "ready", "roll", "rounds", "stopped", "tests", "timers", "turns", "usurper", "version",
    )  # fmt: skip

    protocols = ("/weft/vcube/1.0.0",)
    powers = (Sampling, KeyRouting, Places)

    def __init__(self, env: Env, contacts: Sequence[Peer], config: VCubeConfig = DEFAULTS) -> None:
        super().__init__(env)
        self.config = config
        self.census = contacts if isinstance(contacts, Census) else None
        self.roll = Roll()
        self.index: int | None = None
        self.counter = 0
        self.contacts: tuple[Peer, ...] = ()
        self.base = 0  # how many changes all founders know of
        if isinstance(contacts, Founders):
            self._found_with(contacts)
        else:
            self.contacts = tuple(peer for peer in dict.fromkeys(contacts) if peer != env.me)
        self.ready = False
        self.version = 0
        self.crowd: list[Crowd] = []
        self.firsts: dict[int, Peer] = {}  # by cluster
        self.heard: dict[Peer, tuple[int, int]] = {}  # epoch and stamp of the last report
        self.tests: dict[Peer, int] = {}  # tries
        self.pages = 0  # reports in a row that were not the last
        self.downs: dict[int, int] = {}  # by place, since when, the longest first
        self.rounds = 0
        self.usurper: Member | None = None  # who has the place that was this node's
        self.asked = 0
        self.turns = 0
        self.pause = config.first_retry
        self.timers: dict[str, Timer] = {}
        self.stopped = False

    def _found_with(self, founders: Founders) -> None:
        if not isinstance(self.env.me, int) or self.env.me >= len(founders):
            raise UsageError("only the nodes of a simulation have their places from its order; live nodes join")
        self.index, self.base = self.env.me, len(founders)
        self.roll = founders.roll if self.census is not None else founders.roll.copy()

    def start(self) -> None:
        if self.census is None:
            every = self.config.round_every
            self.timers["round"] = self.env.after(1 + self.env.rng.randrange(every), self._tick)
        if self.index is not None:
            self._begin()
        elif not self.contacts:
            self._found()
        else:
            self._ask()

    def stop(self) -> None:
        self.stopped = True
        for timer in self.timers.values():
            timer.cancel()
        if self.ready and self.census is None:
            self._announce((self.own().down(),), DIMENSION)

    def sample(self, k: int) -> list[Peer]:
        others = [member.peer for member in self.roll.members.values() if member.up and member.peer != self.env.me]
        return self.env.rng.sample(others, min(k, len(others)))

    @property
    def dimension(self) -> int:
        return dimension(self.roll.known)

    @property
    def can_route(self) -> bool:
        return self.ready

    def next_hop(self, key: bytes) -> Peer | None:
        return self.hop_to(place_of(key), self.roll.up)

    def hop_to(self, place: int, members: int) -> Peer | None:
        """Towards the one of these members that is nearest to a place, through none but these; this node is one of them."""
        if self.index is None:
            return None
        members |= 1 << self.index
        root = nearest(place, members)
        assert root is not None, "this node is a member"
        return self.roll.peer(parent(self.index, root, members)) if root != self.index else None

    def suspect(self, peer: Peer) -> None:
        """Test a member now: somebody has reason to doubt that it is up."""
        if self.census is None and self.index is not None and not self.stopped and peer in self.roll.where:
            self._test(peer)

    def introduce(self, member: Member) -> None:
        """What a message of another protocol says of a member."""
        check(self.env.me, (member,))
        self._take(member)

    # Joining.

    def _found(self) -> None:
        self.index = 0
        self._assert(max(self.counter, 0))
        self._begin()

    def _begin(self) -> None:
        self.ready = True
        self.pause = self.config.first_retry
        for s in range(1, self.dimension + 1):
            self._refresh(s)
        for watcher in self.crowd:
            watcher.placed()
        self._reroute()

    def _ask(self) -> None:
        """One after the other: the contacts, then members that are known."""
        pool = [*self.contacts, *islice((peer for peer in self.roll.where if peer != self.env.me), 16)]
        if self.stopped:
            return
        if not pool or (not self.contacts and self.turns >= TURNS):
            self.turns = 0
            self._found()
            return
        peer = pool[self.asked % len(pool)]
        self.asked += 1
        if self.asked % len(pool) == 0:
            self.turns += 1
        join = Join(told(self.env, self.env.me), self.counter, self.usurper)
        self.env.request(peer, join, self.config.patience, self._admitted, self._not_admitted)

    def _not_admitted(self, peer: Peer, reason: str) -> None:
        if self.index is None and "ask" not in self.timers and not self.stopped:
            self.timers["ask"] = self.env.after(self.pause, self._ask_again)
            self.pause = min(2 * self.pause, self.config.last_retry)

    def _ask_again(self) -> None:
        del self.timers["ask"]
        if self.index is None:
            self._ask()

    @answers(Join, Admitted)
    def join(self, sender: Peer, msg: Join, reply: Reply) -> None:
        check_infos(self.env.me, (msg.me,))
        check_counter(msg.counter)
        if msg.me.peer != sender:
            raise PeerError("a peer joins in the name of another")
        if msg.lost is not None:
            check(self.env.me, (msg.lost,))
            self._take(msg.lost)
        if self.index is None and self.turns >= TURNS and self.env.me < sender:  # type: ignore[operator]
            self._found()
        if self.index is None or self.census is not None:
            raise Refused("it is no member itself")
        learn(self.env, msg.me)
        member = self._place(msg.me, msg.counter)
        self._take(member)
        reply(Admitted(member))

    def _place(self, newcomer: PeerInfo, counter: int) -> Member:
        before = self.roll.of(newcomer.peer)
        index = before.index if before is not None and not before.worn else self._vacancy()
        before = self.roll.members.get(index)
        counter = max(counter, before.counter + 1 if before is not None else 0)
        return Member(index, newcomer, min(counter + counter % 2, LAST))

    def _vacancy(self) -> int:
        assert self.index is not None
        known, d = self.roll.known | 1 << self.index, self.dimension
        since = self.env.now() - self.config.reuse_after
        gone = sum(1 << index for index, t in self.downs.items() if t <= since and not self.roll.members[index].worn)
        for free in (~known & ((1 << (1 << d)) - 1), gone):
            for s in range(1, d + 1):
                if (index := first(self.index, s, free)) is not None:
                    return index
        if d == DIMENSION:
            raise Refused("the cube is full")
        return self.index ^ 1 << d

    def _admitted(self, peer: Peer, msg: Admitted) -> None:
        try:
            check(self.env.me, (msg.member,))
        except PeerError as error:
            self._not_admitted(peer, str(error))
            raise
        if self.index is not None:
            return
        if msg.member.peer != self.env.me or not msg.member.up or msg.member.counter < self.counter:
            self._not_admitted(peer, "that is no admission")
            return
        self.index = msg.member.index
        self._assert(msg.member.counter)
        self._test(peer)

    def _lose(self, to: Member) -> None:
        """Another has this place, or nobody can any more, and all will see it so."""
        self.index, self.ready, self.usurper = None, False, to
        self.counter = self.counter + 2 if self.counter < LAST else 0
        self._note(self.roll.merge(to))
        for s in list(self.firsts):
            self._replace(s, None, LOST)
        self._ask()

    # Testing.

    def _tick(self) -> None:
        self.timers["round"] = self.env.after(self.config.round_every, self._tick)
        if self.index is None or not self.ready:
            return
        self.rounds += 1
        self._forget()
        d = self.dimension
        if d:
            s = self.rounds % d + 1
            for index in assigned(self.index, s, self.roll.known, self.roll.up | 1 << self.index):
                self._test(self.roll.peer(index))
        strangers = [peer for peer in self.contacts if peer not in self.roll.where]
        if strangers and self.rounds % PROBE == 1:
            self._test(self.env.rng.choice(strangers))

    def _test(self, peer: Peer) -> None:
        if peer != self.env.me and peer not in self.tests and len(self.tests) < TESTS:
            self.tests[peer] = 0
            self._send_test(peer)

    def _send_test(self, peer: Peer) -> None:
        self.tests[peer] += 1
        epoch, since = self.heard.get(peer, (FOUNDED if self.base else NEVER, 0))
        msg = AreYouUp(self.own(), self.roll.of(peer), epoch, since, self.roll.digest)
        self.env.request(peer, msg, self.config.patience, self._reported, self._failed)

    @answers(AreYouUp, Report)
    def test(self, sender: Peer, msg: AreYouUp, reply: Reply) -> None:
        check(self.env.me, (msg.me, *((msg.yours,) if msg.yours is not None else ())))
        if msg.me.peer != sender or not msg.me.up:
            raise PeerError("a peer tests in the name of another, or of one that is down")
        if self.index is None or self.census is not None:
            raise Refused("it is no member")
        self._take(msg.me)
        if msg.yours is not None and msg.yours.peer == self.env.me:
            self._take(msg.yours)
        if self.index is None:
            raise Refused("it has lost its place")
        reply(self._report(msg))

    def _report(self, msg: AreYouUp) -> Report:
        members: tuple[Member, ...] = ()
        upto, more = self.roll.changes, False
        if msg.digest != self.roll.digest:
            known = {self.env.epoch: msg.since, FOUNDED: self.base}
            members, upto, more = self.roll.since(known.get(msg.epoch, 0))
        return Report(self.own(), members, self.env.epoch, upto, more)

    def _reported(self, peer: Peer, msg: Report) -> None:
        del self.tests[peer]
        try:
            self._check_report(peer, msg)
        except PeerError as error:
            self._give_back(peer, str(error))
            raise
        if self.stopped:
            return
        for member in (msg.me, *msg.members):
            self._take(member)
        if peer in self.roll.where:
            self.heard[peer] = (msg.epoch, msg.upto)
        self.pages = self.pages + 1 if msg.more else 0
        if self.index is None:
            return
        if msg.more and self.pages < PAGES:
            self._test(peer)
        elif not self.ready:
            self._begin()
            self._announce((self.own(),), DIMENSION)
            self._greet(peer)
        if peer in self.neighbors:
            self.env.connect(peer)

    def _check_report(self, peer: Peer, msg: Report) -> None:
        check(self.env.me, (msg.me,))
        check(self.env.me, msg.members)
        if msg.me.peer != peer:
            raise PeerError("a peer answers in the name of another")

    def _give_back(self, admitter: Peer, reason: str) -> None:
        """A place of which the members were not told: somebody else must admit."""
        if self.index is not None and not self.ready:
            self.roll.forget(self.index)
            self.index = None
            self.version += 1
            self._not_admitted(admitter, reason)

    def _greet(self, admitter: Peer) -> None:
        """Other contacts may be of a cube of their own."""
        for peer in self.contacts:
            if peer != admitter and peer not in self.roll.where:
                self._test(peer)

    def _failed(self, peer: Peer, reason: str) -> None:
        if self.stopped:
            return
        member = self.roll.of(peer)
        if self.index is not None and self.tests[peer] < self.config.tries and (not self.ready or (member and member.up)):
            self._send_test(peer)
            return
        del self.tests[peer]
        self.heard.pop(peer, None)
        if not self.ready:
            self._give_back(peer, reason)
        elif member is not None and member.up:
            self._tell([member.down()])

    def link_up(self, peer: Peer, link: Link) -> None: ...

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        """No crash yet: a link may break. But somebody should look."""
        if peer in self.neighbors:
            self.suspect(peer)

    def _forget(self) -> None:
        before = self.env.now() - self.config.forget_after
        while self.downs and self.downs[index := next(iter(self.downs))] <= before:
            del self.downs[index]
            peer = self.roll.forget(index).peer
            self.version += 1
            if peer not in self.roll.where:
                self.heard.pop(peer, None)
                for watcher in self.crowd:
                    watcher.member_gone(peer)

    # Events.

    @upon(News)
    def news(self, sender: Peer, msg: News) -> None:
        check(self.env.me, msg.members)
        if self.census is not None or not 0 <= msg.height <= DIMENSION:
            raise PeerError("no member tells that")
        fresh = [member for member in msg.members if self._take(member)]
        if fresh:
            self._announce(tuple(fresh), msg.height)

    def _announce(self, members: tuple[Member, ...], height: int) -> None:
        if not self.config.announce or self.index is None:
            return
        for s in range(1, min(height, self.dimension) + 1):
            if (child := first(self.index, s, self.roll.up)) is not None:
                self.env.send(self.roll.peer(child), News(members, s - 1))

    def _tell(self, members: Sequence[Member]) -> None:
        """What this node found out itself."""
        fresh = [member for member in members if self._take(member)]
        if fresh:
            self._announce(tuple(fresh), DIMENSION)

    def own(self) -> Member:
        assert self.index is not None
        return Member(self.index, told(self.env, self.env.me), self.counter)

    def _assert(self, counter: int) -> None:
        """This node is up, and has that counter."""
        self.counter = counter
        self.roll.put(self.own())
        self.downs.pop(self.own().index, None)
        self.version += 1

    def _take(self, member: Member) -> bool:
        """Whether it was news. What it says of this node itself is judged here and nowhere else."""
        if member.peer == self.env.me:
            return self.index is not None and self._about_me(member)
        if self.index == member.index and member.beats(self.own()):
            if member.up:
                self._lose(member)
            else:
                self._refute(member)
            return True
        if self.index == member.index:
            return False
        return self._merge(member)

    def _merge(self, member: Member) -> bool:
        changes = self.roll.merge(member)
        self._note(changes)
        return bool(changes)

    def _about_me(self, member: Member) -> bool:
        if member.counter < self.counter or (member.index == self.index and member.counter == self.counter):
            return False
        if member.worn and member.index != self.index and not member.up:
            return self._merge(member)  # a place that it has left
        self._refute(member)
        return True

    def _refute(self, member: Member) -> None:
        """By a counter above it, where there is one; of another place that is worn any new one will do."""
        counter = self.counter if member.worn and member.index != self.index else member.counter
        counter += 2 - counter % 2
        if counter > LAST and not (member.index == self.index and member.up):
            self._lose(member if member.index == self.index else self.own().down())
            return
        self._assert(min(counter, LAST))
        if self.ready:
            self._announce((self.own(),), DIMENSION)
            for watcher in self.crowd:
                watcher.doubted()

    def _note(self, changes: Sequence[Change]) -> None:
        for before, now in changes:
            self.version += 1
            self.downs.pop(now.index, None)
            if now.up:
                learn(self.env, now.info)
            else:
                self.downs[now.index] = self.env.now()
            if before is not None and before.peer != now.peer and before.peer not in self.roll.where:
                self.heard.pop(before.peer, None)
        if not self.ready:
            return
        for before, now in changes:
            assert self.index is not None
            self._refresh(cluster(self.index, now.index))
            self._tell_crowd(before, now)
            if before is not None and before.peer not in self.roll.where:
                for watcher in self.crowd:
                    watcher.member_gone(before.peer)
        if changes:
            self._reroute()

    def _tell_crowd(self, before: Member | None, now: Member) -> None:
        if before is not None and before.up and (before.peer != now.peer or not now.up):
            for watcher in self.crowd:
                watcher.member_down(before.peer)
        if now.up:
            for watcher in self.crowd:
                watcher.member_up(now.peer)

    def _refresh(self, s: int) -> None:
        assert self.index is not None
        nearest = first(self.index, s, self.roll.up)
        self._replace(s, self.roll.peer(nearest) if nearest is not None else None, DOWN if nearest is None else MOVED)

    def _replace(self, s: int, peer: Peer | None, reason: str) -> None:
        before = self.firsts.pop(s, None)
        if peer is not None:
            self.firsts[s] = peer
        if before == peer:
            return
        if before is not None and before not in self.firsts.values():
            self.env.disconnect(before)
            self._down(before, reason)
        if peer is not None:
            self.env.connect(peer)
            self._up(peer)
