"""GossipSub, versions 1.0 to 1.3: a mesh of some peers for each topic, gossip to the others, and a score for all of them.

libp2p specs, pubsub/gossipsub: `gossipsub-v1.0.md` (mesh, fanout, gossip), `v1.1` (scores, back-off, peer exchange, flood
publishing, opportunistic grafting), `v1.2` (IDONTWANT), `v1.3` (extensions).
- A message goes to the mesh of its topic; one's own goes to all subscribers that are known, so that a mesh of bad peers cannot
  keep it (`flood_publish`). A topic that is not joined has a fanout instead. Who subscribes a moment later gets it too
  (`recent_publishes`).
- In each heartbeat broken promises are counted, meshes mended (`mesh`), ids announced (`gossip`), links sought (`contacts`).
- What a peer does is weighed (`peer_policy`): below thresholds it gets no gossip, no messages, and in the end is not heard.
A peer that speaks floodsub alone gets every message of its topics. Only messages of topics joined here are taken in.

Below it asks for: links (any that speak its protocols), and where it can an overlay that finds subscribers of a topic. Above it
promises each message once while its id is remembered. Bounds: `subscriptions` topics a peer, of TOPIC letters each and
LETTERS in all; `libweft.pubsub.seen`; those of its parts.
"""

from __future__ import annotations

from collections.abc import Callable

from libweft.overlays.overlay import Overlay
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import Codec, Env, Link, Peer, Timer, upon
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.contacts import Contacts
from libweft.pubsub.gossipsub.filters import Blacklist, any_topic
from libweft.pubsub.gossipsub.gossip import Gossip
from libweft.pubsub.gossipsub.ids import BY_NAME, MessageIdOf
from libweft.pubsub.gossipsub.mesh import Meshes
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Test
from libweft.pubsub.gossipsub.peer_policy import Standing
from libweft.pubsub.gossipsub.presets import named_score
from libweft.pubsub.gossipsub.recent_publishes import Fresh
from libweft.pubsub.gossipsub.wire import mesh_rpc
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import TOPIC, App, Router
from libweft.pubsub.rpc import Subscriptions
from libweft.pubsub.seen import Seen

FLOODSUB = "/floodsub/1.0.0"
LEVELS = {"/meshsub/1.3.0": 13, "/meshsub/1.2.0": 12, "/meshsub/1.1.0": 11, "/meshsub/1.0.0": 10, FLOODSUB: 0}
AGAIN = 10  # Go's penalty for extensions said twice
TOLD = 256  # topics in one message
LETTERS = 1 << 18  # of all topics of one peer together: a guess, five thousand of Ethereum's


DEFAULT = GossipSubConfig()


class Party:
    """A peer whose link is up. The counts are of this heartbeat, but for `unwanted`."""

    __slots__ = (
        *("asked", "heard", "idontwants", "ihaves", "incarnation", "iwants"),
        *("letters", "level", "outbound", "topics", "unwanted"),
    )

    def __init__(self, link: Link) -> None:
        self.incarnation = link.incarnation
        self.level = LEVELS[link.protocol]
        self.outbound = link.outbound
        self.topics: dict[str, None] = {}
        self.letters = 0  # of these
        self.heard = False
        self.ihaves = self.asked = self.iwants = self.idontwants = self.unwanted = 0


class GossipSub(Router):
    protocols = tuple(LEVELS)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: GossipSubConfig = DEFAULT) -> None:
        super().__init__(env, overlay, app)
        self.config = config
        self.parties: dict[Peer, Party] = {}
        self.subscribers: dict[str, dict[Peer, None]] = {}
        self.seen = Seen(ttl=config.seen_ttl)
        self.standing = Standing(env, config, named_score(config.score, config.score_with))
        self.meshes = Meshes(self)
        self.gossip = Gossip(self)
        self.fresh = Fresh()
        self.contacts = Contacts(self)
        self.standing.direct = self.contacts.direct
        self.ids: dict[str, MessageIdOf] = {}  # by topic, where it is not the usual one
        self.id_function = BY_NAME[config.message_id]
        self.filter = any_topic()
        self.admits: Callable[[Peer, str], bool] = lambda peer, topic: True  # who may be in a topic at all
        self.blacklist = Blacklist()
        self.tick = 0
        self.plain = 0  # parties that speak floodsub alone
        self.timers: list[Timer] = []

    def codec(self) -> Codec:
        return mesh_rpc(numbered=isinstance(self.env.me, int))

    @property
    def reached(self) -> tuple[Peer, ...]:
        return tuple(self.parties)

    # Life, links and the heartbeat.

    def start(self) -> None:
        first = self.config.heartbeat_first + self.env.rng.randrange(self.config.heartbeat)
        self.timers = [self.env.after(first, self._beat), self.env.after(self.standing.interval, self._decay)]

    def stop(self) -> None:
        for timer in self.timers:
            timer.cancel()

    def _beat(self) -> None:
        self.timers[0] = self.env.after(self.config.heartbeat, self._beat)
        self.tick += 1
        self.standing.heartbeat()
        self.meshes.maintain(self.tick)
        self.meshes.tell()
        self.gossip.emit()
        self.gossip.shift(self.tick)
        self.contacts.maintain(self.tick)

    def _decay(self) -> None:
        self.timers[1] = self.env.after(self.standing.interval, self._decay)
        self.standing.refresh()

    def link_up(self, peer: Peer, link: Link) -> None:
        if link.protocol not in LEVELS:
            return
        self._check_listed(peer)
        if peer in self.parties:
            self._leave_party(peer)
        party = self.parties[peer] = Party(link)
        self.plain += party.level == 0
        self.standing.up(peer, link)
        self.contacts.up(peer)
        if party.level >= 13 and self.config.test_extension:
            self.env.send(peer, Extensions(test=True))
        topics = list(self.meshes.topics)
        for begin in range(0, len(topics), TOLD):
            self.env.send(peer, Subscriptions(tuple((True, topic) for topic in topics[begin : begin + TOLD])))

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        party = self.parties.get(peer)
        if party is not None and incarnation and party.incarnation != incarnation:
            return  # there is a later link
        self.contacts.down(peer)
        if party is not None and incarnation:
            self._leave_party(peer)

    def shut_out(self, peer: Peer) -> None:
        """Blacklist it. It gets nothing more, and its link goes with the next thing that it says."""
        self.blacklist.add(peer, self.env.now())
        if peer in self.parties:
            self._leave_party(peer)
            self.contacts.release(peer)

    def _leave_party(self, peer: Peer) -> None:
        party = self.parties[peer]
        for topic in list(party.topics):
            self._unsubscribed(peer, topic)
        self.plain -= party.level == 0
        del self.parties[peer]
        self.standing.down(peer)

    # Who speaks what.

    def meshing(self, topic: str) -> list[Peer]:
        """Subscribers that can be in a mesh."""
        return [peer for peer in self.subscribers.get(topic, ()) if self.parties[peer].level]

    def is_meshing(self, peer: Peer) -> bool:
        return peer in self.parties and self.parties[peer].level > 0

    def knows_backoff(self, peer: Peer) -> bool:
        return peer in self.parties and self.parties[peer].level >= 11

    def knows_idontwant(self, peer: Peer) -> bool:
        return self.parties[peer].level >= 12

    # Subscriptions.

    def join(self, interest: Interest) -> None:
        if not isinstance(interest, str):
            raise UsageError("gossipsub has topics alone: a content filter needs another router")
        if not self.filter.allows(interest):
            raise UsageError(f"the subscription filter does not allow the topic {interest!r:.80}")
        super().join(interest)

    def _join(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self.env.send_all(self.reached, Subscriptions(((True, interest),)))
        self.meshes.join(interest)
        if self.contacts.directory is not None:
            self.contacts.directory.announce(interest)
        super()._join(interest)

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self.env.send_all(self.reached, Subscriptions(((False, interest),)))
        self.meshes.leave(interest)
        if self.contacts.directory is not None:
            self.contacts.directory.unannounce(interest)

    @upon(Subscriptions)
    def subscriptions(self, sender: Peer, m: Subscriptions) -> None:
        """Taken even from those who are shunned otherwise: they would be wrong for ever after."""
        if (party := self._heard(sender)) is None:
            return
        for joins, topic in self.filter.filter(m.changes):
            if not joins:
                self._unsubscribed(sender, topic)
            elif topic not in party.topics and self.subscribed(sender, topic):
                self.meshes.subscribes(sender, topic)
                self._catch_up(sender, topic)

    def subscribed(self, peer: Peer, topic: str) -> bool:
        """False where there is no room for it, it may not, or no message could ever have such a topic."""
        party = self.parties[peer]
        if topic in party.topics:
            return self.admits(peer, topic)
        full = len(party.topics) >= self.config.subscriptions or party.letters + len(topic) > LETTERS
        if full or len(topic) > TOPIC or not self.admits(peer, topic):
            return False
        party.topics[topic] = None
        party.letters += len(topic)
        self.subscribers.setdefault(topic, {})[peer] = None
        return True

    def _unsubscribed(self, peer: Peer, topic: str) -> None:
        if topic in self.parties[peer].topics:
            del self.parties[peer].topics[topic]
            self.parties[peer].letters -= len(topic)
            del self.subscribers[topic][peer]
            if not self.subscribers[topic]:
                del self.subscribers[topic]
            self.meshes.unsubscribed(peer, topic)

    # Messages.

    def key(self, publication: Publication) -> bytes:
        return self.ids.get(publication.topic, self.id_function)(publication)

    @upon(Publication)
    def publication(self, sender: Peer, m: Publication) -> None:
        if self._heard(sender) is None or m.topic not in self.meshes.topics or self.standing.is_shunned(sender):
            return
        now = self.env.now()
        if not self.standing.may_bring(sender, now):
            return
        if m.id.source == self.env.me:
            self._own(sender, m, now)
            return
        key = self.key(m)
        if self.blacklist and self.blacklist.has(m.id.source, now):
            self.standing.promises.kept(key)  # its author is to blame, and nobody who brings it
            self.trace(REJECT, m.topic, m.id, sender, None, "blacklisted source")
            return
        if key in self.seen or not self.seen.note(key, now):
            if self.tracing:
                self.trace(DUPLICATE, m.topic, m.id, sender)
            self.standing.duplicate(sender, key, m.topic, now)
        else:
            self._received(sender, m)

    def _own(self, sender: Peer, publication: Publication, now: int) -> None:
        """Nobody else gives a message our name, but many may send one back that was ours, from before a restart too."""
        key = self.key(publication)
        if self.seen.has(key) or self._is_ours(publication):
            if self.tracing:
                self.trace(DUPLICATE, publication.topic, publication.id, sender)
            self.seen.note(key, now)
            self.standing.promises.kept(key)
            self.standing.duplicate(sender, key, publication.topic, now)
        else:
            self._refuse(sender, publication, None, "self originated message")

    def _is_ours(self, publication: Publication) -> bool:
        """Of an earlier start, or of another node with our key. Where nothing is signed, its epoch tells."""
        if self.signing is None:
            return publication.id.epoch < self.env.epoch
        return self.signing.problem(publication) is None

    def _genuine(self, sender: Peer, publication: Publication) -> None:
        key = self.key(publication)
        self.standing.validating(sender, key, publication.topic)
        self.gossip.refuses(publication, key, sender)

    def _forward(self, publication: Publication, sender: Peer) -> None:
        key = self.key(publication)
        self.standing.delivered(sender, key, publication.topic)
        self.gossip.cache.put(key, publication)
        mesh = self.meshes.topics.get(publication.topic)
        if mesh is not None:  # else it was left while the message was validated
            self._send(publication, key, self._with_others(publication.topic, mesh.everyone), sender)

    def publish(self, publication: Publication) -> None:
        """What has the id of a message that was here already, as ids of content may, is not said again."""
        if not self.seen.has(self.key(publication)):
            super().publish(publication)

    def _spread(self, publication: Publication) -> None:
        key, topic = self.key(publication), publication.topic
        self.seen.note(key, self.env.now())
        self.standing.delivered(self.env.me, key, topic)  # a mesh peer that had it from others is as good as they
        self.gossip.cache.put(key, publication)
        self.fresh.note(topic, key, self.env.now())
        self.gossip.refuses(publication, key, None)
        if self.config.flood_publish:
            peers = tuple(peer for peer in self.subscribers.get(topic, ()) if self.standing.may_have(peer))
        else:
            mesh = self.meshes.topics.get(topic) or self.meshes.fanout(topic)
            peers = self._with_others(topic, mesh.everyone)
        self._send(publication, key, peers, None)

    def _catch_up(self, peer: Peer, topic: str) -> None:
        """Counted as if it had asked, so that nobody gets a message on and on by leaving and coming again."""
        enough = not self.config.flood_publish and len(self.subscribers[topic]) > self.config.d
        if not self.fresh or enough or not self.standing.may_have(peer):
            return
        for key in self.fresh.of(topic, self.env.now()):
            found = self.gossip.cache.for_peer(key, peer)
            if found is not None and found[1] <= self.config.retransmissions and self.gossip.wanting((peer,), key):
                self.env.send(peer, found[0])

    def unplaced(self) -> int:
        """Whether what was published a moment ago waits for the first words of a link, which say where it goes.

        It is no number of bytes: whoever is silent would slow a publisher down.
        """
        self.fresh.expire(self.env.now())
        return int(len(self.fresh) > 0 and not all(party.heard for party in self.parties.values()))

    def _send(self, publication: Publication, key: bytes, peers: tuple[Peer, ...], sender: Peer | None) -> None:
        peers, author = self.gossip.wanting(peers, key), publication.id.source
        if sender is not None and author != sender and author in peers:
            peers = tuple(peer for peer in peers if peer != author)
        self.env.send_all(peers, publication, sender)

    def _with_others(self, topic: str, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
        """With those who are in no mesh and get all the same: direct peers, and who speaks floodsub alone."""
        if not self.plain and not self.contacts.direct:
            return peers
        direct = self.contacts.direct
        others = [peer for peer in self.subscribers.get(topic, ()) if peer in direct or not self.parties[peer].level]
        return (*peers, *(peer for peer in others if peer not in peers and self.standing.may_have(peer)))

    def _refuse(self, sender: Peer, publication: Publication, hops: int | None, reason: str) -> None:
        super()._refuse(sender, publication, hops, reason)
        key, topic = self.key(publication), publication.topic
        if reason == Verdict.REJECT.value:
            self.standing.rejected(sender, key, topic)
        elif reason == Verdict.IGNORE.value:
            self.standing.ignored(sender, key)
        elif reason == self.QUEUE_FULL:
            self.standing.throttled(key)
        else:
            self.standing.invalid(sender, topic)

    def _forged(self, publication: Publication) -> None:
        self.seen.discard(self.key(publication))

    # Control.

    @upon(IHave)
    def ihave(self, sender: Peer, m: IHave) -> None:
        if self._heard(sender) is not None and not self.standing.is_shunned(sender):
            self.gossip.ihave(sender, m)

    @upon(IWant)
    def iwant(self, sender: Peer, m: IWant) -> None:
        if self._heard(sender) is not None and not self.standing.is_shunned(sender):
            self.gossip.iwant(sender, m)

    @upon(IDontWant)
    def idontwant(self, sender: Peer, m: IDontWant) -> None:
        if self._heard(sender) is not None and not self.standing.is_shunned(sender):
            self.gossip.idontwant(sender, m)

    @upon(Graft)
    def graft(self, sender: Peer, m: Graft) -> None:
        if self._heard(sender) is not None and not self.standing.is_shunned(sender):
            self.meshes.graft(sender, m.topics)

    @upon(Prune)
    def prune(self, sender: Peer, m: Prune) -> None:
        if self._heard(sender) is not None and not self.standing.is_shunned(sender):
            self.meshes.prune(sender, m.topics)

    @upon(Extensions)
    def extensions(self, sender: Peer, m: Extensions) -> None:
        """Whoever says them later than first is told nothing, and blamed."""
        first = sender in self.parties and not self.parties[sender].heard
        if (party := self._heard(sender)) is None:
            return
        if not first:
            self.standing.penalize(sender, AGAIN)
        elif m.test and self.config.test_extension and party.level >= 13:
            self.env.send(sender, Test())

    @upon(Test)
    def test(self, sender: Peer, m: Test) -> None:
        self._heard(sender)

    def _heard(self, sender: Peer) -> Party | None:
        """What comes before its link was told, or after it went, has no party. Who is blacklisted loses its link."""
        if self.blacklist:
            self._check_listed(sender)
        party = self.parties.get(sender)
        if party is not None:
            party.heard = True
        return party

    def _check_listed(self, peer: Peer) -> None:
        if self.blacklist.has(peer, self.env.now()):
            raise PeerError("blacklisted")
