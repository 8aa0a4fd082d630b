"""Every `connect` is answered, in the simulator as on the fake wire: also where the link is up and there is nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Env, Link, Machine, Peer
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import Simulator


class Caller(Machine):
    def __init__(self, env: Env, protocol: str) -> None:
        super().__init__(env)
        self.protocols = (protocol,)
        self.told: list[tuple[Peer, int]] = []

    def link_up(self, peer: Peer, link: Link) -> None:
        self.told.append((peer, link.incarnation))

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.told.append((peer, incarnation))


def stack(*protocols: str) -> Callable[[Callable[[], Env]], Sequence[Machine]]:
    return lambda env: [Caller(env(), protocol) for protocol in protocols]


@pytest.mark.parametrize("world", ["simulator", "wire"])
def test_a_connect_over_a_link_that_is_up_is_answered_where_no_protocol_is_shared(world: str) -> None:
    place = Simulator(latency=Constant(5.0)) if world == "simulator" else FakeWire()
    place.add(stack("/a"))
    place.add(stack("/a", "/b"))
    speaks, alone = place.nodes[1].machines
    assert isinstance(speaks, Caller) and isinstance(alone, Caller)
    speaks.env.connect(0)
    place.run(SECOND)
    alone.env.connect(0)
    place.run(2 * SECOND)
    assert [peer for peer, _ in speaks.told] == [0]
    assert alone.told == [(0, 0)]
    speaks.env.disconnect(0)
    place.run(3 * SECOND)
    assert len(speaks.told) == 2
