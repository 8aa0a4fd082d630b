"""Content filters against a reference, and the envelope through the codec."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.codec import msgpack
from libweft.peer.machine import Lane, MessageId
from libweft.pubsub.interests import Attributes, Filter, Value
from libweft.pubsub.message import OrderHeader, Publication, weight

RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

names = st.sampled_from("abc")
odd_ones = st.sampled_from([0.0, -0.0, nan, inf, -inf, 2**53, 2**53 + 1, 2.0**53])
numbers = st.integers(-3, 3) | st.floats(-3, 3, width=16) | odd_ones
values = numbers | st.text("xyz", max_size=2)
attributes = st.dictionaries(names, values).map(lambda held: tuple(held.items()))
relations: st.SearchStrategy[Any] = st.sampled_from(list(RELATIONS))
filters = st.lists(st.tuples(names, relations, values), max_size=3).map(lambda all_: Filter(tuple(all_)))


def holds(held: dict[str, Value], name: str, relation: str, value: Value) -> bool:
    """A constraint on an attribute that is not there, or of another kind, does not hold."""
    if name not in held or isinstance(held[name], str) != isinstance(value, str):
        return False
    return RELATIONS[relation](held[name], value)


@given(wanted=filters, attributes=attributes)
def test_a_filter_matches_when_each_of_its_constraints_holds(wanted: Filter, attributes: Attributes) -> None:
    expected = all(holds(dict(attributes), *constraint) for constraint in wanted.constraints)
    assert wanted.matches(attributes) == expected


@given(value=values, other=values, relation=relations)
@settings(max_examples=300)
def test_one_constraint_holds_as_its_relation_does(value: Value, other: Value, relation: Any) -> None:
    wanted = Filter((("a", relation, other),))
    assert wanted.matches((("a", value),)) == holds({"a": value}, "a", relation, other)


def test_a_filter_without_constraints_matches_everything() -> None:
    assert Filter(()).matches(())
    assert Filter(()).matches((("a", 1),))


@pytest.mark.parametrize("relation", ["=", "<", "<=", ">", ">="])
def test_an_attribute_that_is_missing_or_of_another_kind_matches_nothing(relation: Any) -> None:
    assert not Filter((("a", relation, 1),)).matches((("b", 1),))
    assert not Filter((("a", relation, 1),)).matches((("a", "1"),))
    assert not Filter((("a", relation, "1"),)).matches((("a", 1),))


def test_whole_numbers_and_fractions_compare_by_value() -> None:
    assert Filter((("a", "=", 1.0),)).matches((("a", 1),))
    assert Filter((("a", "<", 1.5),)).matches((("a", 1),))


small, large = st.integers(0, 2**32), st.integers(0, 2**63 - 1)
ids = st.builds(MessageId, large | st.binary(max_size=40), large, small)
headers = st.builds(OrderHeader, large, small, st.lists(ids, max_size=3).map(tuple))
plain = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
publications = st.builds(
    Publication,
    ids,
    st.text(max_size=20),
    st.binary(max_size=200),
    st.none() | headers,
    st.lists(st.tuples(st.text(max_size=5), plain), max_size=3).map(tuple),
)


@given(publication=publications)
def test_a_publication_comes_out_of_the_codec_as_it_went_in(publication: Publication) -> None:
    codec = msgpack((Publication,))
    (frame,) = codec.pack([publication])
    (back,) = codec.unpack(frame)
    assert back == publication
    assert isinstance(back, Publication)
    assert [type(value) for _, value in back.attributes] == [type(value) for _, value in publication.attributes]
    assert codec.size(publication) == len(frame)


def test_a_publication_travels_on_the_payload_lane() -> None:
    assert Publication.lane is Lane.PAYLOAD
    assert not Publication.droppable


def test_small_parts_weigh_what_they_take_in_memory() -> None:
    """Else a bound of bytes would let a peer fill many times that with attributes, or with dependencies."""
    plain = Publication(MessageId(1, 1, 1), "t", b"x" * 1_000)
    many = tuple((f"n{number}", number) for number in range(1_000))
    header = OrderHeader(1, 1, tuple(MessageId(1, 1, number) for number in range(1_000)))
    assert weight(plain) == pytest.approx(1_000, rel=0.1)
    assert weight(msgspec.structs.replace(plain, attributes=many)) > 128_000
    assert weight(msgspec.structs.replace(plain, order=header)) > 96_000
