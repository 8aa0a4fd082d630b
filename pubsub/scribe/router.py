"""SRPT-S and SRPT-B: one tree a topic, whose root has every message first.

M. Castro, P. Druschel, A.-M. Kermarrec, A. Rowstron: "Scribe: a large-scale and decentralized application-level multicast
infrastructure", IEEE JSAC 20(8), 2002, sections 3.1 to 3.3, over any overlay that has `next_hop`; and as VCube-PS (JPDC 2018,
sections 4 and 4.6) compares itself with it: SRPT-S, where the nodes on the way of a JOIN to the root become forwarders, and
SRPT-B, where brokers alone make the tree. What these leave open is settled here as follows:
- A subscription is in force when its JOIN has met a node that has a way to the root; a forwarder answers when it has one itself.
- A publisher sends to the root directly, where it is known, else by parents, and again until the root has answered (`channels`).
  A publisher that subscribes delivers its message at once; the copy that comes back through the tree is a duplicate.
- The root numbers messages, so that a child knows what it lacks, and asks its parent by JOIN, who sends what it has kept.
- A node takes messages from its parent alone. Parents change when the overlay says so, when a link falls, and when no beat of
  the root has come for a while, which also ends a circle of parents. Children that do not refresh their JOIN are forgotten.
- A new root begins a new reign. The one before sends it the last of its own, when it has a way there; and whoever changes its
  parent has the rest of the reign before from the new one, if that has it.

Below it needs `next_hop`, and links in order. Above it promises each message once, and those of a source in order while the root
is the same: what somebody missed in the reign before may come after what followed it, for late is better than lost, and an order
that stands above sorts it out. What the root had answered for and not handed on when it crashed is lost. It knows no filters.
That a node is the root, and how far it is, is believed of a parent, and of whom the overlay may have as the root. The
numbers that a publication has on its way to the root are its source's (`libweft.pubsub.numbering`). What a child says that it has
decides what it is sent, and nothing else.
Bounds: those of its parts; TOPICS, of which no peer has more opened than are left; WAITING messages of one behind one that is not
judged; `held_bytes` of what waits for the root, beyond which a message is refused; timers: two.
"""

from __future__ import annotations

from collections.abc import Iterable

from libweft.overlays.claims import learn, told
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import KeyRouting, has, power_of
from libweft.overlays.vcube.places import Places
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND, Env, Link, Message, MessageId, Peer, Timer, upon
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub.fair_shares import Shares
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.numbering import MISNUMBERED, bind, is_bound
from libweft.pubsub.router import App, Router
from libweft.pubsub.scribe.channels import BURST, OUTLETS, Inlets, Outlet
from libweft.pubsub.scribe.config import BROKERS, BY_TOPIC, DEFAULTS, BrokerConfig, ScribeConfig
from libweft.pubsub.scribe.messages import (
    HOPS,
    Attached,
    Beat,
    Bequest,
    Down,
    Got,
    Join,
    Leave,
    Publish,
    Skip,
    Standing,
    Taken,
    check_bequest,
    check_carried,
    check_place,
    check_publish,
    check_taken,
    check_topic,
)
from libweft.pubsub.scribe.routes import ByBroker, ByKey, ByPlace, Routes
from libweft.pubsub.scribe.tree import CHILDREN, TOPICS, Child, Handed, Item, Kept, Tree
from libweft.pubsub.seen import Seen

LOOK = SECOND  # between two looks for what did not come
SETTLED = 50 * MS  # a guess: so long after a change parents are asked for again, many changes at once
FOUND = 5 * SECOND  # a guess: so long after a reign has begun its subscribers have found it
EXPIRY = 3  # refreshes of a child that may be lost
ROOTS = 4_096
BEQUEST = 64  # a guess: the last messages of a reign
WAITING = 1_024  # messages of a topic behind one that is not judged

WAITS = "too much waits for the root"
STRAY = "not from its parent"
OUT_OF_TURN = "out of turn"


class Srpt(Router):
    """What both have in common; `routes` say who is whose parent."""

    def __init__(self, env: Env, overlay: Overlay, app: App, config: ScribeConfig, routes: Routes) -> None:
        super().__init__(env, overlay, app)
        self.config = config
        self.routes = routes
        self.keys = power_of(overlay, KeyRouting)
        self.lasting = EXPIRY * config.refresh_every  # a child, from each time that it was heard
        self.trees: dict[str, Tree] = {}
        self.outlets: dict[str, Outlet] = {}
        self.inlets = Inlets()
        self.kept = Kept(config.keep, config.held_bytes)
        self.seen = Seen()
        self.refusals = Seen()
        self.unjudged: dict[MessageId, list[Item]] = {}  # the turns that wait for one verdict
        self.opened = Shares()  # trees, by who had this node begin them
        self.roots: dict[str, Peer] = {}  # who has answered as one
        self.holds: dict[Peer, int] = {}  # links, each for so many trees
        self.links: dict[Peer, int] = {}  # the incarnation of each that is up
        self.children = 0  # of all topics
        self.looking: Timer | None = None
        self.settling: Timer | None = None
        self.stopped = False
        overlay.rerouted.append(self._settle_soon)

    def stop(self) -> None:
        self.stopped = True
        for timer in (self.looking, self.settling):
            if timer is not None:
                timer.cancel()
        for tree in self.trees.values():
            if tree.parent is not None:
                self.env.send(tree.parent, Leave(tree.topic))

    @property
    def reached(self) -> tuple[Peer, ...]:
        children = (peer for tree in self.trees.values() for peer in tree.order)
        others = dict.fromkeys((*self.holds, *self.roots.values(), *children))
        return (*self.overlay.everyone, *(peer for peer in others if peer not in self.overlay.neighbors))

    def unplaced(self) -> int:
        """What the root has not answered for; and a new root waits for those who have yet to hear that it is the root."""
        expecting = sum(tree.passed > 0 and self._expects(tree) for tree in self.trees.values())
        return expecting + sum(outlet.bytes for outlet in self.outlets.values())

    def _expects(self, tree: Tree) -> bool:
        """Whether this node is a new root, whom not all have found yet."""
        return tree.is_root and self.env.now() - tree.since < FOUND

    # Subscribing.

    def _join(self, interest: Interest) -> None:
        if not isinstance(interest, str):
            del self.interests[interest]
            self._sort_out_filters()
            raise UsageError("a tree is of a topic; a filter needs a stack that reaches all, as hyparview/flood")
        tree = self._tree(interest)
        self._route(tree)
        self._enter_into_force(tree)

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        tree = self.trees[interest]
        tree.in_force = False
        self._prune(tree)

    def _tree(self, topic: str, opener: Peer | None = None) -> Tree:
        """With a new one in the name of the peer that needs it, or for this node itself."""
        tree = self.trees.get(topic)
        if tree is None:
            tree = self.trees[topic] = Tree(topic, self.env.now(), opener)
            if opener is not None:
                self.opened.take(opener)
            self._look_later()
        return tree

    def _may_open(self, topic: str, opener: Peer) -> bool:
        return topic in self.trees or self.opened.admit(opener, TOPICS - len(self.trees))

    def _enter_into_force(self, tree: Tree) -> None:
        if tree.attached and not tree.in_force and tree.topic in self.interests:
            tree.in_force = True
            self._in_force(tree.topic)

    def _prune(self, tree: Tree) -> None:
        """A forwarder that nobody needs leaves; a root stays for a while, since who lost its parent may be on its way here."""
        if tree.topic in self.interests or tree.children or self.trees.get(tree.topic) is not tree:
            return
        if tree.is_root and self.env.now() - max(tree.since, tree.beat) < self.lasting:
            return
        del self.trees[tree.topic]
        if tree.opener is not None:
            self.opened.give_back(tree.opener)
        self._let_go(tree)
        self.kept.forget(tree.topic)

    def _let_go(self, tree: Tree) -> None:
        if tree.parent is not None:
            self.env.send(tree.parent, Leave(tree.topic))
            self._release(tree.parent)
            tree.parent = None
        if tree.root is not None:
            self._release(tree.root)
            tree.root = None

    # Parents.

    def _route(self, tree: Tree) -> None:
        """Ask the overlay who the parent is; where that is another than before, go there."""
        if not self.keys.can_route or self.stopped:
            return
        parent, root = self.routes.way(tree.topic)
        if parent is None:
            if not tree.is_root:
                self._reign(tree)
        elif parent != tree.parent:
            self._let_go(tree)
            if tree.is_root:
                self._abdicate(tree)
            tree.parent = parent
            tree.attached = False
            self._hold(parent)
            self._ask(tree)
        if self.config.root_link and tree.parent is not None and tree.topic in self.interests:
            self._link_root(tree, root)

    def _link_root(self, tree: Tree, root: Peer | None) -> None:
        if root != tree.root:
            if tree.root is not None:
                self._release(tree.root)
            tree.root = root
            if root is not None:
                self._hold(root)

    def _reign(self, tree: Tree) -> None:
        self._let_go(tree)
        tree.advance_children()
        tree.begin(self._next_id(), 0)
        tree.is_root = tree.attached = True
        tree.since = self.env.now()
        self._welcome_all(tree, tree.order)
        self._enter_into_force(tree)

    def _abdicate(self, tree: Tree) -> None:
        """Another is nearer. What this reign had is in its own tree alone, so the next root gets the last of it."""
        assert tree.reign is not None
        tree.is_root = False
        self.inlets.forget(tree.topic)
        rest = self.kept.of(tree.topic, tree.reign, tree.passed - BEQUEST)
        tree.bequest = [*tree.bequest, *(handed for handed in rest if isinstance(handed, Down))][-BEQUEST:]

    def _bequeath(self, tree: Tree) -> None:
        """Up the new tree, now that there is a way in it."""
        assert tree.parent is not None
        several, tree.bequest, room = tree.bequest, [], BURST
        for handed in several:
            if room > 0:
                room -= weight(handed)
                self.env.send(tree.parent, Bequest.of(handed))

    def _ask(self, tree: Tree) -> None:
        """JOIN; it also says what this node lacks."""
        assert tree.parent is not None
        tree.asked = tree.refreshed = self.env.now()
        reign, last = (tree.reign, tree.last) if tree.reign is not None else tree.wanted
        self.env.send(tree.parent, Join(tree.topic, reign, last))

    def _ask_again(self, tree: Tree) -> None:
        if tree.parent is not None and self.env.now() - tree.asked >= self.config.patience:
            self._ask(tree)

    @upon(Attached)
    def attached(self, sender: Peer, m: Attached) -> None:
        tree = self._of_parent(sender, m)
        if tree is None:
            return
        anew = m.reign != tree.reign
        if anew and tree.queue:  # first what is not judged yet goes to those below, who take none of a reign that is over
            tree.attached = False
            return
        before, tree.attached = tree.attached, True
        if not before:
            tree.heard = self.env.now()
        if anew:
            tree.advance_children()
            tree.begin(m.reign, m.number)
            self._bequeath(tree)
        elif m.number > tree.last:  # those between are not to be had any more
            tree.last = m.number
            tree.passed = max(tree.passed, tree.last) if not tree.queue else tree.passed
        if anew or not before:
            self._welcome_all(tree, tree.order if anew else [peer for peer, child in tree.children.items() if child.waits])
        self._enter_into_force(tree)

    @upon(Beat)
    def beat(self, sender: Peer, m: Beat) -> None:
        tree = self._of_parent(sender, m)
        if tree is None:
            return
        tree.heard = self.env.now()
        if m.reign != tree.reign or m.number > tree.last or not tree.attached:
            self._ask_again(tree)
        elif tree.order:
            self.env.send_all(tree.order, Beat(tree.topic, m.reign, tree.passed))

    def _of_parent(self, sender: Peer, m: Standing | Down) -> Tree | None:
        """The tree, where the sender is its parent. One who is not takes this node for its child, and hears that it is none."""
        tree = self.trees.get(m.topic)
        check_place(self.env.me, m, tree.reign if tree is not None else None)
        if tree is None or tree.parent != sender:
            self.env.send(sender, Leave(m.topic))
            return None
        return tree

    # Children.

    @upon(Join)
    def join_of(self, sender: Peer, m: Join) -> None:
        check_place(self.env.me, m)
        tree = self.trees.get(m.topic)
        child = tree.children.get(sender) if tree is not None else None
        if child is None and (self.children >= CHILDREN or not self._may_open(m.topic, sender)):
            return  # it will ask again
        tree = tree or self._tree(m.topic, sender)
        if child is None:
            child = tree.children[sender] = Child()
            self.children += 1
            tree.order = tuple(sorted(tree.children, key=self.routes.rank))
        child.until = self.env.now() + self.lasting
        child.reign, child.number, child.waits = m.reign, m.number, True
        if tree.reign is None and m.reign is not None:
            tree.wanted = m.reign, m.number  # what the child lacks, this node asks for
        if tree.parent is None and not tree.is_root:
            self._route(tree)
        if tree.attached and child.waits:
            self._welcome(tree, sender, child)
        if tree.is_root and len(tree.children) == 1 and (outlet := self.outlets.get(m.topic)) is not None and outlet.sent:
            self._resend(m.topic, outlet)  # what there was no room for, until this child had the rest

    @upon(Leave)
    def leave_of(self, sender: Peer, m: Leave) -> None:
        check_topic(m.topic)
        if (tree := self.trees.get(m.topic)) is not None:
            self._lose(tree, sender)

    def _lose(self, tree: Tree, peer: Peer) -> None:
        if tree.children.pop(peer, None) is not None:
            self.children -= 1
            tree.order = tuple(child for child in tree.order if child != peer)
            self._prune(tree)

    def _welcome_all(self, tree: Tree, children: Iterable[Peer]) -> None:
        for peer in children:
            self._welcome(tree, peer, tree.children[peer])

    def _welcome(self, tree: Tree, peer: Peer, child: Child) -> None:
        """Say where it goes on, and send what it lacks: of the reign before first."""
        assert tree.reign is not None
        now, waited = self.env.now(), child.waits
        child.waits = False
        rest: list[Handed] = []
        base = tree.passed
        if child.reign is not None:
            since = child.number if child.reign == tree.reign else 0
            rest = self.kept.of(tree.topic, tree.reign, since)
            base = rest[0].number - 1 if rest else base
            if child.reign != tree.reign:
                self._hand(peer, self.kept.of(tree.topic, child.reign, child.number))
        if waited and 0 <= child.served > now - self.config.patience // 2:
            rest = []  # it asks again and again
        child.served = now
        child.reign, child.number = tree.reign, tree.passed
        self.env.send(peer, Attached(tree.topic, tree.reign, base))
        self._hand(peer, rest)

    def _hand(self, peer: Peer, several: Iterable[Handed]) -> None:
        room = BURST
        for handed in several:
            if room > 0:
                room -= weight(handed) if isinstance(handed, Down) else 0
                self.env.send(peer, handed.onward())

    # From publishers to the root.

    def _spread(self, publication: Publication) -> None:
        self.seen.note(publication.id, self.env.now())
        outlet = self.outlets.get(publication.topic)
        if outlet is None:
            outlet = self._outlet(publication.topic)
        if outlet.bytes and self.unplaced() + weight(publication) > self.config.held_bytes:
            self.refused += 1
            self.trace(REJECT, publication.topic, publication.id, None, 0, WAITS)
            return
        if not outlet.sent:
            outlet.since = self.env.now()
        outlet.add(publication)
        self._pump(publication.topic, outlet)
        self._look_later()

    def _outlet(self, topic: str) -> Outlet:
        """Numbers go up; an outlet that was forgotten goes on with a number above all that it had."""
        if len(self.outlets) >= OUTLETS:
            for idle in [name for name, outlet in self.outlets.items() if not outlet.bytes][:1]:
                del self.outlets[idle]
        outlet = self.outlets[topic] = Outlet(self.sequence)
        return outlet

    def _pump(self, topic: str, outlet: Outlet) -> None:
        if self.keys.can_route:
            for m in outlet.due(self.env.epoch, told(self.env, self.env.me)):
                outlet.asked = self._to_root(bind(self.signing, m))

    def _to_root(self, m: Publish) -> Peer | None:
        """Directly, where the root is known and this is its publisher; else one step nearer to it. To whom, if not to itself."""
        parent, root = self.routes.way(m.topic)
        if parent is None:
            self._take(self.env.me, m)
            return None
        if root is None and m.hops == 1:
            root = self.roots.get(m.topic)
        to = root if root is not None and root != self.env.me else parent
        self.env.send(to, m)
        return to

    @upon(Publish)
    def published(self, sender: Peer, m: Publish) -> None:
        check_publish(self.env.me, m)
        if m.id.source == self.env.me or m.hops > HOPS or not self.keys.can_route:
            return
        if self.routes.way(m.topic).parent is not None:
            self._to_root(m.onward())
        elif sender == m.id.source or self._is_genuine(sender, m):
            self._take(sender, m)

    def _is_genuine(self, sender: Peer, m: Publish | Bequest) -> bool:
        """Asked before anything is noted of its source: else whoever invents a message would have its turn."""
        if isinstance(m, Publish) and self.signing is not None and not is_bound(m):
            problem: str | None = MISNUMBERED
        else:
            problem = self._problem(m.publication())
        if problem is not None:
            self.trace(REJECT, m.topic, m.id, sender, m.hops, problem)
        return problem is None

    def _take(self, sender: Peer, m: Publish) -> None:
        """This node is the root."""
        if not self._may_open(m.topic, m.id.source):
            self._answer(m.id.source, m.topic, m.life, m.number + 1)  # nobody who subscribes is known
            return
        tree = self._throne(m.topic, m.id.source)
        if tree is None:
            return  # its source will send it again
        inlet = self.inlets.find(m)
        learn(self.env, m.source)
        if m.life != inlet.life or m.number != inlet.next:
            if self.tracing and self.seen.has(m.id):
                self.trace(DUPLICATE, m.topic, m.id, sender)
            if m.life == inlet.life:
                self._answer(m.id.source, m.topic, inlet.life, inlet.floor)
            return
        inlet.next += 1
        inlet.newest = max(inlet.newest or m.id, m.id)
        item = Item(tree, m.publication(), m.hops if sender != self.env.me else 0)
        item.source = (m.life, m.number)
        self._judge(item, sender)

    @upon(Bequest)
    def bequest(self, sender: Peer, m: Bequest) -> None:
        check_bequest(self.env.me, m)
        if m.hops > HOPS or not self.keys.can_route:
            return
        parent = self.routes.way(m.topic).parent
        if parent is not None:
            self.env.send(parent, m.onward())
            return
        may = self._may_open(m.topic, sender) and self._is_genuine(sender, m)
        tree = self._throne(m.topic, sender) if may else None
        if tree is not None and self.inlets.bequeathed(m.id, m.topic):
            self._judge(Item(tree, m.publication(), m.hops), sender)

    def _throne(self, topic: str, opener: Peer) -> Tree | None:
        """The tree of a topic whose root this node is, where there is room in it.

        A new root takes no more than it keeps for those who will find it: the first of many messages would be gone.
        """
        tree = self._tree(topic, opener if opener != self.env.me else None)
        self._route(tree)
        full = len(tree.queue) >= WAITING or (tree.passed >= self.config.keep and not tree.children and self._expects(tree))
        return tree if tree.is_root and not full else None

    def _answer(self, source: Peer, topic: str, life: int, floor: int) -> None:
        if source == self.env.me:
            self._answered(topic, life, floor)
        else:
            self.env.send(source, Taken(topic, life, floor, told(self.env, self.env.me)))

    @upon(Taken)
    def taken(self, sender: Peer, m: Taken) -> None:
        check_taken(self.env.me, m)
        outlet = self.outlets.get(m.topic)
        asked = outlet.asked if outlet is not None else None
        if asked is not None and m.me.peer == sender and self.routes.may_answer(m.topic, sender, asked):
            learn(self.env, m.me)
            if len(self.roots) >= ROOTS:
                self.roots.clear()
            self.roots[m.topic] = sender
            self._answered(m.topic, m.life, m.number)

    def _answered(self, topic: str, life: int, number: int) -> None:
        outlet = self.outlets.get(topic)
        if outlet is not None and life == self.env.epoch and outlet.taken(number):
            outlet.since = self.env.now()
            self._pump(topic, outlet)

    def _resend(self, topic: str, outlet: Outlet) -> None:
        outlet.since = self.env.now()
        root = self.roots.pop(topic, None) or self.routes.way(topic).root
        if root is None or not self.env.backlog(root):
            for m in outlet.again(self.env.epoch, told(self.env, self.env.me)):
                outlet.asked = self._to_root(bind(self.signing, m))

    # Down the tree.

    @upon(Down)
    def down(self, sender: Peer, m: Down) -> None:
        check_carried(self.env.me, m)
        tree = self._of_parent(sender, m)
        if tree is None or not self._is_next(tree, m):
            if self.tracing:
                self._trace_misfit(sender, m, STRAY if tree is None else OUT_OF_TURN)
            return
        tree.last = m.number
        tree.heard = self.env.now()
        self._judge(Item(tree, m.publication(), m.hops, m), sender)

    def _is_next(self, tree: Tree, m: Down | Skip) -> bool:
        """Who lacks something asks for it."""
        if m.reign != tree.reign or m.number > tree.last + 1 or len(tree.queue) >= WAITING:
            self._ask_again(tree)
            return False
        return m.number > tree.last

    def _trace_misfit(self, sender: Peer, m: Down, reason: str) -> None:
        if self.seen.has(m.id):
            self.trace(DUPLICATE, m.topic, m.id, sender, m.hops)
        else:
            self.trace(REJECT, m.topic, m.id, sender, m.hops, reason)

    @upon(Skip)
    def skip(self, sender: Peer, m: Skip) -> None:
        tree = self._of_parent(sender, m)
        if tree is None or not self._is_next(tree, m):
            return
        tree.last = m.number
        item = Item(tree, NOTHING, 0, m)
        item.accepted = False
        tree.queue.append(item)
        self._hand_on(tree)

    def _judge(self, item: Item, sender: Peer) -> None:
        """Messages that were seen before are handed on and not delivered: this node's own, and those of a reign before.

        One that is not judged yet has a turn for each copy that comes in a tree, and all wait for the one verdict.
        """
        item.tree.queue.append(item)
        publication, own = item.publication, sender == self.env.me
        if not own and self.seen.note(publication.id, self.env.now()):
            item.deliver = True
            self.unjudged[publication.id] = [item]
            self._received(sender, publication, item.hops)
            return
        if self.tracing and not own:
            self.trace(DUPLICATE, publication.topic, publication.id, sender, item.hops)
        if publication.id in self.unjudged:
            self.unjudged[publication.id].append(item)
        else:
            item.accepted = not self.refusals.has(publication.id)
            self._hand_on(item.tree)

    def _accepted(self, sender: Peer, publication: Publication, hops: int | None) -> None:
        turns = self.unjudged.pop(publication.id, [])
        self._settle_turns(turns, True)
        in_turn = turns and turns[0].deliver  # the first copy came in a tree; else it was brought
        if not in_turn and publication.topic in self.interests:
            self._deliver(publication, hops)

    def _refused(self, publication: Publication) -> None:
        self.refusals.note(publication.id, self.env.now())
        self._settle_turns(self.unjudged.pop(publication.id, []), False)

    def _settle_turns(self, turns: list[Item], accepted: bool) -> None:
        for item in turns:
            item.accepted = accepted
        for item in turns:
            self._hand_on(item.tree)

    def _forged(self, publication: Publication) -> None:
        self.seen.discard(publication.id)
        self.refusals.discard(publication.id)

    def brought(self, sender: Peer, publication: Publication) -> None:
        """Delivered, and not handed on: its turn in the tree is another matter."""
        if publication.topic not in self.interests:
            return
        if self.seen.note(publication.id, self.env.now()):
            self.unjudged[publication.id] = []
            self._received(sender, publication)
        elif self.tracing:
            self.trace(DUPLICATE, publication.topic, publication.id, sender)

    def _hand_on(self, tree: Tree) -> None:
        """In their order, up to the first that is not judged; one at a time, though an answer brings this node's next."""
        if tree.handing:
            return
        tree.handing = True
        try:
            while tree.queue and tree.queue[0].accepted is not None:
                self._turn(tree, tree.queue.popleft())
        finally:
            tree.handing = False

    def _turn(self, tree: Tree, item: Item) -> None:
        if tree.is_root:
            self._number(tree, item)
        if item.handed is not None:
            self._pass(tree, item.handed if item.accepted else Skip(tree.topic, item.handed.reign, item.handed.number))
        if item.deliver and item.accepted and tree.topic in self.interests:
            self._deliver(item.publication, item.hops)

    def _number(self, tree: Tree, item: Item) -> None:
        """At the root, what waited when it became one too. If it is none any more, the source sends it to the one there is."""
        item.handed = None
        if item.accepted:
            assert tree.reign is not None
            tree.last = tree.passed + 1
            item.handed = Down.of(item.publication, item.hops, tree.reign, tree.last)
        if item.source is not None:
            source, (life, number) = item.publication.id.source, item.source
            inlet = self.inlets.of(source, tree.topic)
            if inlet is not None and inlet.life == life:
                inlet.floor = max(inlet.floor, number + 1)
            self._answer(source, tree.topic, life, number + 1)

    def _pass(self, tree: Tree, handed: Handed) -> None:
        if handed.reign == tree.reign:
            tree.passed = handed.number
        self.kept.add(handed)
        if tree.order:
            self.env.send_all(tree.order, handed.onward())
        if self.config.acks and tree.parent is not None:
            self.env.send(tree.parent, Got(tree.topic, handed.reign, handed.number))

    @upon(Got)
    def got(self, sender: Peer, m: Got) -> None:
        tree = self.trees.get(m.topic)
        check_place(self.env.me, m, tree.reign if tree is not None else None)
        child = tree.children.get(sender) if tree is not None else None
        if child is not None:
            child.until = self.env.now() + self.lasting

    # What happens by itself.

    def _look_later(self) -> None:
        if self.looking is None and not self.stopped:
            self.looking = self.env.after(LOOK, self._look)

    def _look(self) -> None:
        self.looking = None
        now = self.env.now()
        for tree in list(self.trees.values()):
            self._look_after(tree, now)
        for topic, outlet in list(self.outlets.items()):
            if not outlet.bytes or not self.keys.can_route:
                continue
            self._pump(topic, outlet)
            if outlet.sent and now - outlet.since >= self.config.patience:
                self._resend(topic, outlet)
        if self.trees or any(outlet.bytes for outlet in self.outlets.values()):
            self._look_later()

    def _look_after(self, tree: Tree, now: int) -> None:
        config = self.config
        if tree.children:
            self._expire(tree, now)
        self._prune(tree)
        if self.trees.get(tree.topic) is not tree:
            return
        self._route(tree)
        if tree.is_root:
            if now - tree.beat >= config.beat_every and tree.children:
                tree.beat = now
                assert tree.reign is not None
                self.env.send_all(tree.order, Beat(tree.topic, tree.reign, tree.passed))
        elif tree.parent is not None:
            if tree.attached and now - tree.heard >= config.beats * config.beat_every:
                tree.attached = False
                self.overlay.suspect(tree.parent)
            if tree.parent not in self.links:
                self.env.connect(tree.parent)
            if not tree.attached:
                self._ask_again(tree)
            elif now - tree.refreshed >= config.refresh_every:
                self._ask(tree)

    def _expire(self, tree: Tree, now: int) -> None:
        for peer in [peer for peer, child in tree.children.items() if child.until <= now]:
            self._lose(tree, peer)

    def _settle_soon(self) -> None:
        if self.settling is None and not self.stopped:
            self.settling = self.env.after(SETTLED, self._settle)

    def _settle(self) -> None:
        """Who is up, or where, has changed; so parents may be others, and the root."""
        self.settling = None
        for tree in list(self.trees.values()):
            self._route(tree)
        for topic, outlet in self.outlets.items():
            if outlet.queue:
                self._pump(topic, outlet)

    # Links.

    def neighbor_up(self, peer: Peer) -> None:
        self._settle_soon()

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self._settle_soon()

    def _hold(self, peer: Peer) -> None:
        self.holds[peer] = self.holds.get(peer, 0) + 1
        if self.holds[peer] == 1:
            self.env.connect(peer)

    def _release(self, peer: Peer) -> None:
        self.holds[peer] -= 1
        if not self.holds[peer]:
            del self.holds[peer]
            self.env.disconnect(peer)

    def link_up(self, peer: Peer, link: Link) -> None:
        self.links[peer] = link.incarnation

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        """What was on it may be lost: a child comes again by itself, and a parent is asked, or another."""
        if incarnation and self.links.get(peer) != incarnation:
            return  # there is a later link
        self.links.pop(peer, None)
        for topic, root in list(self.roots.items()):
            if root == peer:
                del self.roots[topic]
        for tree in list(self.trees.values()):
            self._lose(tree, peer)
            if tree.parent == peer:
                tree.attached = False
                tree.asked = self.env.now() - self.config.patience
        if peer in self.holds:
            self.overlay.suspect(peer)
            self._settle_soon()

    def dropped(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Join | Publish):
            self.overlay.suspect(peer)


NOTHING = Publication(MessageId(0, 0, 0), "", b"")


class SrptS(Srpt):
    """The tree joins subscribers and those on their way to the root."""

    protocols = ("/weft/srpt-s/1.0.0",)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: ScribeConfig = DEFAULTS) -> None:
        placed = has(overlay, Places)
        if config.root != BY_TOPIC and not placed:
            raise UsageError("root is a place, and only the overlay vcube has places; leave it to the topic's hash")
        routes = ByPlace(power_of(overlay, Places), config) if placed else ByKey(overlay)
        super().__init__(env, overlay, app, config, routes)


class SrptB(Srpt):
    """The tree joins brokers, and whoever subscribes hangs on one."""

    protocols = ("/weft/srpt-b/1.0.0",)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: BrokerConfig = BROKERS) -> None:
        super().__init__(env, overlay, app, config, ByBroker(power_of(overlay, Places), config))
