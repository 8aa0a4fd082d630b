"""What a node lacks, asked of others. The paper's detector is never wrong; who is taken for down and is not needs this.

- A gap in a stream is asked of its source and of other subscribers in turn, ASKS times. Only what none of them has is given up.
- Whoever hears of a member, new or back again, asks it for all that came to it since this node's own subscription: two that
  began at once, or could not hear each other, may each have published what the other was not sent.
- Whoever hears that it was taken for down asks a few others the same.
What is sent comes as any PUB does. Below: requests. Bounds: a request and a timer a stream that waits;
an answer ends where BURST bytes wait for the link, and says that there is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from libweft.overlays.vcube.cube import places
from libweft.overlays.vcube.places import Places
from libweft.peer.machine import SECOND, Env, Peer, Reply
from libweft.pubsub.vcube_pb.config import VCubePBConfig
from libweft.pubsub.vcube_pb.message_cache import Kept, Key, stream_of
from libweft.pubsub.vcube_pb.messages import LIST, AskMissing, AskSince, Missing, Position, Since, check_numbers, check_position
from libweft.pubsub.vcube_pb.streams import UNKNOWN, Streams
from libweft.pubsub.vcube_ps.config import WINDOW
from libweft.pubsub.vcube_ps.messages import Pub
from libweft.pubsub.vcube_ps.streams import Item
from libweft.pubsub.vcube_ps.views import Views

ASKS = 10  # a guess: some seconds, in which those who took a source over bring it to all
HELPERS = 3  # who are asked by one that was taken for down
BURST = 1 << 18
AGAIN = SECOND  # a guess: between two asks

NOTHING = Missing(())


class Recovery:
    """`found` is told what may be handed up because it waits no longer for what nobody has."""

    def __init__(
        self,
        env: Env,
        overlay: Places,
        views: Views,
        config: VCubePBConfig,
        found: Callable[[Iterable[Item]], None],
    ) -> None:
        self.kept = Kept(config.kept, config.kept_bytes, config.kept_for)
        self.streams = Streams(config.held_bytes, self._opened)
        self._env = env
        self._overlay = overlay
        self._views = views
        self._config = config
        self._found = found
        self.began: dict[str, int] = {}  # topics, and since when this node subscribes in force
        self._tries: dict[Key, tuple[int, int]] = {}  # of streams that are asked for: where the gap begins, and how often
        self._rests: dict[tuple[Peer, str], None] = {}  # who has more of which topic, and will be asked again

    # Gaps.

    def _opened(self, key: Key) -> None:
        """Begin to ask, unless the same stream is asked for still from before it was forgotten."""
        if key not in self._tries:
            self._ask(key)

    def _ask(self, key: Key) -> None:
        gap, (begin, tries) = self.streams.gap(key), self._tries.get(key, (UNKNOWN, 0))
        if gap is not None and gap[0] != begin:
            tries = 0
        helper = self._helper(key, tries) if gap is not None else None
        if gap is None or helper is None or tries >= ASKS:
            self._stop(key)
            return
        self._tries[key] = gap[0], tries + 1
        source, topic, epoch = key
        age = self._env.now() - self.began.get(topic, self._env.now())
        self._env.request(
            helper,
            AskMissing(topic, Position(source, epoch, max(0, gap[0])), gap[1], age),
            self._config.patience,
            lambda peer, msg: self._promised(key, peer, msg),
            lambda _, reason: self._promised(key, None, NOTHING),
        )

    def _promised(self, key: Key, helper: Peer | None, msg: Missing) -> None:
        """What was promised is on its way; else somebody may have it a little later. A source alone knows where it began."""
        gap = self.streams.gap(key)
        if gap is not None and gap[0] == UNKNOWN and helper == key[0]:
            self._found(self.streams.begins(key, min(msg.numbers, default=gap[1])))
        if self.streams.gap(key) is not None:
            self._env.after(AGAIN, self._ask, key)
        else:
            self._stop(key)

    def _stop(self, key: Key) -> None:
        """What is missing is given up; the stream may have a further gap."""
        self._tries.pop(key, None)
        self._found(self.streams.give_up(key))
        if self.streams.gap(key) is None:
            self.streams.closed(key)
        elif key not in self._tries:
            self._ask(key)

    def _helper(self, key: Key, tries: int) -> Peer | None:
        source = self._overlay.roll.of(key[0])
        if tries % 2 == 0 and source is not None and source.up:
            return key[0]
        others = self.others(key[1])
        return self._env.rng.choice(others) if others else None

    def others(self, topic: str) -> list[Peer]:
        subscribers = (self._overlay.roll.peer(place) for place in places(self._views.subscribers(topic)))
        return [peer for peer in subscribers if peer != self._env.me]

    def asked_missing(self, sender: Peer, msg: AskMissing, reply: Reply) -> None:
        check_position(self._env.me, msg.position)
        check_numbers(msg.end, msg.age)
        key = msg.position.source, msg.topic, msg.position.epoch
        found = self.kept.between(key, msg.position.next, msg.end, self._env.now() - msg.age)[-WINDOW:]
        sent = [m.number for m in found if self._bring(sender, m)]
        reply(Missing(tuple(sent)))

    def _bring(self, peer: Peer, message: Pub) -> bool:
        if self._env.backlog(peer) > BURST:
            return False
        self._env.send(peer, message.to(0))
        return True

    # All that came since.

    def ask_since(self, peer: Peer, topic: str) -> None:
        own, start = self._views.of(topic, self._env.me), self.began.get(topic)
        if own is None or start is None:
            return
        age = self._env.now() - start
        streams = list(self.streams.streams.items())
        known = [Position(key[0], key[2], max(0, stream.next)) for key, stream in streams if key[1] == topic][-LIST:]
        self._env.request(
            peer,
            AskSince(topic, own.epoch, own.sequence, age, tuple(known)),
            self._config.patience,
            lambda _, msg: self._told_since(peer, topic, msg),
            lambda _, reason: None,
        )

    def _told_since(self, peer: Peer, topic: str, msg: Since) -> None:
        """One who always has more is asked once a second, however often it comes back."""
        if msg.more and (peer, topic) not in self._rests:
            self._rests[peer, topic] = None
            self._env.after(AGAIN, self._ask_rest, peer, topic)

    def _ask_rest(self, peer: Peer, topic: str) -> None:
        del self._rests[peer, topic]
        self.ask_since(peer, topic)

    def asked_since(self, sender: Peer, msg: AskSince, reply: Reply) -> None:
        known = {(position.source, msg.topic, position.epoch): position.next for position in msg.known}
        lacking = [
            m
            for m in self.kept.since(msg.topic, self._env.now() - msg.age)
            if m.number >= known.get(stream_of(m), 0) and m.id.source != sender
        ]
        more = False
        for m in lacking:
            if not self._bring(sender, m):
                more = True
                break
        reply(Since(more))
