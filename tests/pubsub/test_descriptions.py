"""Descriptions say what is true: powers that are there, protocols that are spoken, promises about faults that exist."""

from __future__ import annotations

import inspect
from typing import Any, Protocol, get_args

import pytest

from libweft.overlays.description import OverlayDescription
from libweft.overlays.fault_groups import CHANGED_BYTES, HONEST
from libweft.overlays.powers import Connected
from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.sim.faults import AnyFault
from libweft.pubsub import stacks
from libweft.pubsub.description import RouterDescription
from libweft.pubsub.interests import Filter
from libweft.pubsub.promises import Property
from tests.pubsub.apps import Inbox

OVERLAYS = list(stacks.OVERLAYS.values())
ROUTERS = list(stacks.ROUTERS.values())
FAULTS = {kind.__struct_config__.tag for kind in get_args(AnyFault)}


def name(description: Any) -> str:
    return str(description.name)


def members(power: type) -> set[str]:
    own = {member for member in vars(power) if not member.startswith("_")}
    return own | set(inspect.get_annotations(power))


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_an_overlay_has_every_member_of_the_powers_it_names(overlay: OverlayDescription[Any]) -> None:
    for power in overlay.machine.powers:
        assert Protocol in power.__mro__
        for member in members(power):
            assert hasattr(overlay.machine, member), f"{overlay.name} names {power.__name__} and lacks {member}"
            if inspect.isfunction(wanted := vars(power).get(member)):
                given = list(inspect.signature(getattr(overlay.machine, member)).parameters)
                asked = list(inspect.signature(wanted).parameters)
                assert given[: len(asked)] == asked


def test_vcube_s_neighbours_need_not_be_mutual_and_carry_no_flood() -> None:
    assert [each.name for each in OVERLAYS if Connected not in each.machine.powers] == ["vcube"]


@pytest.mark.parametrize("stack", stacks.names())
def test_the_machines_of_a_stack_speak_the_protocols_that_are_described(stack: str) -> None:
    found = stacks.find(stack, {}, {})
    machines = found.node((), Inbox())(FakeEnv)
    spoken = {protocol for machine in machines for protocol in machine.protocols}
    assert spoken == {*found.overlay.protocols, *found.router.protocols}
    assert type(machines[-2]) is found.overlay.machine
    assert type(machines[-1]) is found.router.machine


@pytest.mark.parametrize("stack", stacks.names())
def test_a_filter_is_taken_where_filters_are_described(stack: str) -> None:
    found = stacks.find(stack, {}, {})
    router = found.node((), Inbox())(FakeEnv)[-1]
    if Filter in found.router.interests:
        router.join(Filter(()))  # type: ignore[attr-defined]
    else:
        with pytest.raises(UsageError):
            router.join(Filter(()))  # type: ignore[attr-defined]


@pytest.mark.parametrize("router", ROUTERS, ids=name)
def test_promises_are_about_kinds_of_faults_that_there_are(router: RouterDescription[Any]) -> None:
    properties = [promise.property for promise in router.promises]
    assert len(set(properties)) == len(properties)
    assert {Property.INTEGRITY, Property.ONCE, Property.REACH} <= set(properties)
    for promise in router.promises:
        assert promise.withstands <= FAULTS | {"churn"}
        assert (promise.within_s > 0) == (promise.property in (Property.REACH, Property.AGREEMENT))


def test_every_kind_of_fault_is_in_one_group() -> None:
    assert FAULTS | {"churn"} == HONEST | CHANGED_BYTES
    assert not HONEST & CHANGED_BYTES


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_an_overlay_survives_kinds_of_faults_that_there_are(overlay: OverlayDescription[Any]) -> None:
    assert overlay.survives <= FAULTS | {"churn"}


@pytest.mark.parametrize("described", [*OVERLAYS, *ROUTERS], ids=name)
def test_the_line_for_people_is_a_line(described: Any) -> None:
    assert 20 < len(described.use) < 125 and "\n" not in described.use
    assert described.paper
