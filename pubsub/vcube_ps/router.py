"""VCube-PS: whoever publishes is the root of a tree among the topic's subscribers, which the hypercube gives without a message.

J. P. de Araujo, L. Arantes, E. P. Duarte Jr., L. A. Rodrigues, P. Sens: "VCube-PS: a causal broadcast topic-based
publish/subscribe system", JPDC 2018, Algorithms 1 and 2 without causal delivery, which is an order's to add. SUB goes to all
nodes, UNS and PUB to the topic's subscribers; ACKs come back when all below have the message, and carry who subscribes. What
the paper leaves open, or assumes away, is settled here as follows:
- `window` broadcasts of a source and topic may be on their way, and receivers keep the order (`streams`); 1 is the paper's gate,
  one at a time. SUB and UNS always go alone.
- A subscription is in force when all nodes have acknowledged SUB. A member that comes later is told by each subscriber. Where
  members came or went around that time, who hands a SUB on may not know all that its source knows: so it is sent once more.
- Who does not subscribe may publish. It has heard every SUB since it came; who subscribed before it asks all nodes (REG) when it
  first publishes to the topic, and what it publishes waits for their answers.
- Who left forwards what still reaches it, and its ACK says that it left.
- Crashes: see `broadcast`. What a publisher had not sent when it crashed is lost.
- A subscriber holds links to its children, so that a message meets no dial.

What it shares with VCube-PB is in `trees`. Above it promises each message once, and those of a source in order.
Bounds: those of its parts; FLOORS, shared by those who ask (`libweft.pubsub.fair_shares`).
"""

from __future__ import annotations

from libweft.overlays.overlay import Overlay
from libweft.peer.errors import Refused
from libweft.peer.machine import Env, MessageId, Peer, Reply, answers
from libweft.peer.trace.kinds import REJECT
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication
from libweft.pubsub.router import App
from libweft.pubsub.vcube_ps.config import DEFAULTS, VCubePSConfig
from libweft.pubsub.vcube_ps.messages import AskFloor, Change, Floor, Pub, Reg, Sub
from libweft.pubsub.vcube_ps.streams import Item, Key, Streams
from libweft.pubsub.vcube_ps.trees import LATE, NOWHERE, Channel, Trees

FLOORS = 1_024
ASKS = 3  # of a source that does not answer


class VCubePS(Trees):
    name = "vcube-ps"
    protocols = ("/weft/vcube-ps/1.0.0",)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: VCubePSConfig = DEFAULTS) -> None:
        super().__init__(env, overlay, app, config)
        self.streams = Streams(config.held_bytes, self._ask_floor)
        self.floors: list[tuple[str, int, Peer, Reply]] = []
        self.asks: dict[Key, int] = {}

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self.streams.leave(interest)
        super()._leave(interest)

    def _spread(self, publication: Publication) -> None:
        channel = self._channel(publication.topic)
        if not (channel.informed or self.is_founder or publication.topic in self.interests):
            channel.informed = True
            channel.queue.append(Reg(self._next_id(), publication.topic, 0, NOWHERE))
        super()._spread(publication)

    def placed(self) -> None:
        for channel in self.channels.values():
            channel.informed &= not self.has_been_placed
        super().placed()

    def _noted(self, m: Change, subscribed: bool) -> bool:
        return not isinstance(m, Reg) and super()._noted(m, subscribed)

    def _finished(self, topic: str, key: MessageId) -> None:
        channel = self.channels[topic]  # which may go when the application hears of it
        super()._finished(topic, key)
        floor = channel.floor
        due = [each for each in self.floors if each[0] == topic and each[1] <= floor]
        if due:
            self.floors = [each for each in self.floors if each not in due]
            for *_, reply in due:
                reply(Floor(floor))

    def _start(self, channel: Channel, head: Publication | Change) -> None:
        super()._start(channel, head)
        if self.fresh and type(head) is Sub:
            self._renew_later()

    # The order of one source.

    def _follows(self, m: Pub) -> bool:
        return (m.id.source, m.topic) in self.streams.streams

    def _arrived(self, m: Pub, item: Item | None) -> list[Item]:
        late = self.streams.late
        items = self.streams.arrived((m.id.source, m.topic), m.id.epoch, m.number, m.base, item)
        if self.streams.late > late and item is not None:
            self.trace(REJECT, m.topic, m.id, None, m.hops, LATE)
        return items

    def _again(self, m: Pub) -> None:
        if self.streams.awaits((m.id.source, m.topic), m.id.epoch, m.number) and self._problem(m.publication()) is None:
            self._hand_up(self._arrived(m, None))

    def _gone(self, m: Change) -> None:
        self._hand_up(self.streams.drop((m.id.source, m.topic)))

    def _ask_floor(self, key: Key, number: int) -> None:
        source, topic = key
        self.env.request(
            source,
            AskFloor(topic, number),
            self.config.patience,
            lambda _, msg: self._floor_told(key, msg),
            lambda _, reason: self._floor_untold(key, number),
        )

    @answers(AskFloor, Floor)
    def ask_floor(self, sender: Peer, msg: AskFloor, reply: Reply) -> None:
        channel = self.channels.get(msg.topic)
        floor = channel.floor if channel is not None else msg.number
        if floor >= min(msg.number, channel.next if channel is not None else 0):
            reply(Floor(floor))
        elif sum(each[2] == sender for each in self.floors) >= FLOORS - len(self.floors):
            raise Refused("too many ask")
        else:
            self.floors.append((msg.topic, msg.number, sender, reply))

    def _floor_told(self, key: Key, msg: Floor) -> None:
        self.asks.pop(key, None)
        self._hand_up(self.streams.answered(key, msg.base))

    def _floor_untold(self, key: Key, number: int) -> None:
        tries = self.asks.get(key, 0) + 1
        member = self.cube.roll.of(key[0])
        if tries < ASKS and member is not None and member.up:
            self.asks[key] = tries
            self._ask_floor(key, number)
        else:
            self.asks.pop(key, None)
            self._hand_up(self.streams.unanswered(key))
