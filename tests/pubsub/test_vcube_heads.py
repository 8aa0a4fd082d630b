"""What is remembered of the first of each cluster is what the cube would say now, whoever came or went."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from libweft.overlays.vcube.cube import children, to_set
from libweft.pubsub.vcube_ps import cluster_heads as module
from libweft.pubsub.vcube_ps.cluster_heads import Heads
from libweft.pubsub.vcube_ps.messages import Pub, Sub

DIMENSION = 5
sets = st.sets(st.integers(0, (1 << DIMENSION) - 1)).map(to_set)


class Overlay:
    """A cube whose places are their own peers, shifted by so many: somebody else may have a place at another version."""

    def __init__(self, index: int | None) -> None:
        self.index = index
        self.dimension = DIMENSION
        self.version = 0
        self.env = self
        self.roll = self

    @property
    def me(self) -> int | None:
        return None if self.index is None else self.peer(self.index)

    def peer(self, place: int) -> int:
        return place + 100 * self.version


def named(heads: Heads, overlay: Any, topic: str, kind: type, members: int) -> list[int]:
    return [peer - 100 * overlay.version for peer in heads.of(topic, kind, members) if peer is not None]


indices = st.integers(0, (1 << DIMENSION) - 1)
steps = st.lists(st.tuples(st.sampled_from(["t", "u"]), st.sampled_from([Pub, Sub]), sets, st.booleans(), indices), max_size=30)


@given(steps)
def test_what_is_remembered_is_what_the_cube_says(steps: list[tuple[str, type, int, bool, int]]) -> None:
    """A node may have another place though the roll is as it was."""
    overlay: Any = Overlay(0)
    heads = Heads(overlay)
    for topic, kind, members, moved, index in steps:
        overlay.version += moved
        overlay.index = index
        assert named(heads, overlay, topic, kind, members) == children(index, DIMENSION, members)
        found = [heads.first(s, members) for s in range(1, DIMENSION + 1)]
        assert found == heads.of(topic, kind, members)


def test_who_has_another_place_too_is_not_its_own_child() -> None:
    overlay: Any = Overlay(0)
    overlay.peer = lambda place: 0
    assert Heads(overlay).of("t", Pub, to_set([0, 1, 2])) == [None] * DIMENSION


def test_a_node_without_a_place_has_no_children() -> None:
    overlay: Any = Overlay(0)
    heads = Heads(overlay)
    assert heads.of("t", Pub, to_set([1, 2])) == [1, 2, None, None, None]
    overlay.index = None
    assert heads.of("t", Pub, to_set([1, 2])) == [] == heads.of("t", Pub, to_set([1]))
    assert heads.first(1, to_set([1])) is None


def test_more_topics_than_are_remembered_are_looked_up_anew() -> None:
    overlay: Any = Overlay(0)
    heads = Heads(overlay)
    for number in range(3 * module.HEADS):
        assert heads.of(str(number), Pub, to_set([1, 2])) == [1, 2, None, None, None]
        assert len(heads._known) <= module.HEADS
