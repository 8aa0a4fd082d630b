"""The registry: stacks by name, and what it says of a wrong name or option."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from libweft.bench.runs.app import Listener
from libweft.overlays import graphs
from libweft.overlays.static import Static
from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.pubsub import stacks
from libweft.pubsub.flood import PROTOCOL, Flood
from libweft.pubsub.options import describe
from libweft.pubsub.promises import Property


def refusal(name: str, overlay: dict[str, Any] | None = None, router: dict[str, Any] | None = None) -> str:
    with pytest.raises(UsageError) as refused:
        stacks.find(name, overlay or {}, router or {})
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("name", ["", "/", "static/", "/flood", "static/flood/", "cube/shout", "STATIC/FLOOD"])
def test_an_unknown_stack_is_refused_with_all_names(name: str) -> None:
    text = refusal(name)
    assert repr(name) in text
    assert text.endswith(f"there are: {', '.join(stacks.names())}")


@pytest.mark.parametrize("name", ["static/floood", "statc/flood", "static-flood"])
def test_a_name_that_is_nearly_right_is_suggested(name: str) -> None:
    assert "(did you mean static/flood?)" in refusal(name)


def test_a_name_that_is_far_off_suggests_nothing() -> None:
    assert "did you mean" not in refusal("zzz")


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("flood", "static/flood"),
        ("gossipsub", "static/gossipsub"),
        ("plumtree", "hyparview/plumtree"),
        ("hyparview", "hyparview/plumtree"),
        ("kademlia", "kademlia/kadpubsub"),
        ("vcube-pb", "vcube/vcube-pb"),
    ],
)
def test_a_single_name_stands_for_its_usual_stack(name: str, usual: str) -> None:
    assert stacks.find(name, {}, {}).name == stacks.full_name(name) == usual


def test_every_single_name_has_a_usual_stack() -> None:
    assert {stacks.full_name(name) for name in (*stacks.OVERLAYS, *stacks.ROUTERS)} <= set(stacks.names())


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        (
            "vcube/flood",
            "flood needs connected neighbours, which vcube does not provide; choose one of static, hyparview, xbot, kademlia",
        ),
        ("static/kadpubsub", "kadpubsub needs lookups, which static does not provide; choose one of kademlia"),
        (
            "hyparview/srpt-s",
            "distances or places, which hyparview does not provide; choose one of kademlia, vcube",
        ),
        ("kademlia/vcube-pb", "vcube-pb needs places, which kademlia does not provide; choose one of vcube"),
    ],
)
def test_a_stack_whose_overlay_lacks_a_power_is_refused_when_it_is_named(name: str, lacking: str) -> None:
    assert lacking in refusal(name)


def test_a_stack_promises_reach_only_under_faults_that_its_overlay_survives() -> None:
    def reach(name: str) -> frozenset[str]:
        (found,) = (each for each in stacks.find(name, {}, {}).promises if each.property is Property.REACH)
        return found.withstands

    assert {"loss", "partition", "mass_crash"} <= reach("hyparview/plumtree")
    assert reach("static/plumtree") == reach("hyparview/plumtree") - {"crash", "mass_crash"}


def test_every_name_is_found() -> None:
    assert "static/flood" in stacks.names()
    for name in stacks.names():
        assert stacks.find(name, {}, {}).name == name


def test_defaults_stand_where_nothing_is_given() -> None:
    stack = stacks.find("static/flood", {"degree": 8}, {})
    assert stack.overlay_options == {"graph": "regular", "degree": 8, "dial_after": 0}
    assert stack.router_options == {"announce": False}
    assert stacks.find("static/flood", {}, {}, live=True).router_options == {"announce": True}
    assert stacks.find("static/flood", {}, {}).overlay_options["degree"] == 5


def test_xbot_has_the_options_of_hyparview_and_its_own() -> None:
    options = stacks.find("xbot/plumtree", {"psl": 3, "active_size": 6}, {}).overlay_options
    assert (options["psl"], options["active_size"]) == (3, 6)
    assert stacks.find("hyparview/plumtree", {}, {}).overlay_options.keys() < options.keys()
    stacks.check("xbot/flood", {"margin": 0}, {}, 10)
    with pytest.raises(UsageError, match="unbiased is 5; it must be below active_size"):
        stacks.check("xbot/flood", {"unbiased": 5}, {}, 10)


def test_an_unknown_option_is_refused_with_those_there_are() -> None:
    assert refusal("static/flood", {"degre": 5}) == "overlay.degre is no option of static; its options: graph, degree, dial_after"
    assert refusal("static/flood", router={"fanout": 5}) == "router.fanout is no option of flood; its options: announce"


@pytest.mark.parametrize("changes", ["invalid_weight=1", "retain=x", "retain=1.5", "gosip=-1", "gossip"])
def test_a_wrong_number_of_a_score_is_named_by_the_option_it_stands_in(changes: str) -> None:
    with pytest.raises(UsageError, match=r"^router\.score_with"):
        stacks.check("static/gossipsub", {}, {"score_with": changes}, 10)


@pytest.mark.parametrize("value", ["5", 5.0, True, None])
def test_an_option_of_the_wrong_type_is_refused(value: Any) -> None:
    assert refusal("static/flood", {"degree": value}) == f"overlay.degree is {value!r}; it must be of type int"


def test_a_graph_s_name_must_be_text() -> None:
    assert refusal("static/flood", {"graph": 3}) == "overlay.graph is 3; it must be of type str"


@pytest.mark.parametrize(
    ("overlay", "nodes", "told"),
    [({"degree": 5}, 5, "overlay.degree is 5"), ({"graph": "moebius"}, 9, "ring"), ({"dial_after": -1}, 9, "dial_after is -1")],
)
def test_what_the_number_of_nodes_rules_out_is_refused(overlay: dict[str, Any], nodes: int, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        stacks.check("static/flood", overlay, {}, nodes)


def test_what_is_possible_is_not_refused() -> None:
    stacks.check("static/flood", {"degree": 4}, {}, 5)
    stacks.check("static/flood", {"graph": "ring"}, {}, 2)
    stacks.check("static/flood", {}, {}, 1)


def test_each_edge_of_the_graph_is_dialled_from_its_lower_end() -> None:
    stack = stacks.find("static/flood", {"degree": 4}, {})
    contacts = stack.introduce(30, Random(5))
    edges = graphs.draw("regular", 30, 4, Random(5))
    assert [(a, b) for a, peers in enumerate(contacts) for b in peers] == edges


@pytest.mark.parametrize("name", ["static/flood", "hyparview/plumtree"])
def test_who_comes_one_after_the_other_is_introduced_to_earlier_ones_only(name: str) -> None:
    stack = stacks.find(name, {}, {})
    contacts = stack.introduce(30, Random(5), at_once=False)
    assert len(contacts) == 30
    assert contacts[0] == ()
    assert all(isinstance(peer, int) and peer < number for number, peers in enumerate(contacts) for peer in peers)
    assert all(contacts[number] for number in range(25, 30))


def test_who_joins_later_gets_as_many_live_contacts_as_the_degree() -> None:
    stack = stacks.find("static/flood", {"degree": 4}, {})
    live = [3, 5, 8, 13, 21, 34]
    contacts = stack.admit(live, Random(1))
    assert len(set(contacts)) == 4
    assert set(contacts) <= set(live)
    assert stack.admit([3, 5], Random(1)) == (3, 5)
    assert stack.admit([], Random(1)) == ()


def test_a_node_is_its_overlay_and_its_router_upon_it() -> None:
    envs: list[FakeEnv] = []

    def env() -> FakeEnv:
        envs.append(FakeEnv())
        return envs[-1]

    overlay, router = stacks.find("static/flood", {}, {}).node((1, 2), Listener())(env)
    assert isinstance(overlay, Static) and isinstance(router, Flood)
    assert [overlay.env, router.env] == envs
    assert overlay.contacts == (1, 2)
    assert overlay.watches == router.protocols == (PROTOCOL,)
    assert router.overlay is overlay


def test_two_machines_of_one_stack_with_the_same_protocol_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Static, "protocols", (PROTOCOL,))
    build = stacks.find("static/flood", {}, {}).node((), Listener())
    with pytest.raises(UsageError, match="Static and Flood of one stack have the same protocol"):
        build(lambda: FakeEnv(me=0))


@pytest.mark.parametrize("protocol", [each for kind in stacks.ROUTERS.values() for each in kind.protocols])
def test_kademlia_takes_no_router_s_protocol_in_a_simulation_either(protocol: str) -> None:
    with pytest.raises(UsageError, match=r"overlay\.protocol"):
        stacks.check("kademlia/flood", {"protocol": protocol}, {}, 10)


@pytest.mark.parametrize("name", stacks.names())
def test_every_option_of_a_stack_is_told_with_its_default_and_meaning(name: str) -> None:
    stack, told = stacks.find(name, {}, {}), describe(name)
    overlay = {f"overlay.{key}": value for key, value in stack.overlay_options.items()}
    router = {f"router.{key}": value for key, value in stack.router_options.items()}
    assert {each.option: each.default for each in told} == overlay | router
    assert [each.option for each in told if not each.meaning] == []
