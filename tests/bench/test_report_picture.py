"""One message on the page: what is read of it, where nodes stand, what the player gets, and what is said to be missing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.bench.report import render
from libweft.bench.report.picture import pictures
from libweft.bench.report.player import PANELS
from libweft.bench.report.rings import SIZE, rings
from tests.bench.test_report_samples import Element, picture, pictured, read, sample

NUMBERS = st.integers(0, 9)


def page(analysis: dict[str, Any]) -> Element:
    return read(render(analysis, title="x"))


def played(analysis: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(page(analysis).by_id("player-data").text)
    return found


# Reading


def test_a_picture_is_read_by_places() -> None:
    (found,) = pictures([picture(3)])
    assert (found.run, found.publisher, found.nodes[0], len(found.nodes)) == (3, 0, 100, 12)
    assert found.events[0][:5] == ("first", 10_000, 0, 0, 1)
    assert [event.at for event in found.events] == sorted(event.at for event in found.events)


@pytest.mark.parametrize("entries", [None, 7, "x", {}, [None], ["x"], [{}], [{"run": 1}], [{"run": True, "publisher": 1}]])
def test_what_is_no_picture_is_left_out(entries: object) -> None:
    assert pictures(entries) == ()
    assert not page({**sample(1), "pictures": entries}).all("canvas")


@pytest.mark.parametrize(
    "event",
    [
        *(None, [], ["first"], ["other", 1, 1, 100, 101], ["first", None, 1, 100, 101], ["first", -1, 0, 100, 101]),
        *(["first", 1, 1, 100, 100], ["first", 1, 1, "<b>", 101], ["first", 1 << 60, 1, 100, 101], ["first", 1, 1, 100, True]),
    ],
)
def test_an_event_that_cannot_be_read_is_left_out(event: object) -> None:
    entry = picture()
    (found,) = pictures([{**entry, "events": [*entry["events"], event]}])
    assert len(found.events) == len(entry["events"])


def test_a_copy_that_nobody_saw_leaving_left_when_its_sender_had_it() -> None:
    entry = picture()
    entry["events"] = [[*event[:2], None, *event[3:]] for event in entry["events"] if event[0] == "first"]
    (found,) = pictures([entry])
    assert [event.sent for event in found.events] == [10_000 * hop for hop in range(11)]


def test_a_copy_that_came_before_it_left_left_at_once() -> None:
    (found,) = pictures([{**picture(), "events": [["first", 5, 9, 100, 101], ["first", 3, 9, 105, 106]]}])
    assert [(event.at, event.sent) for event in found.events] == [(3, 3), (5, 0)]


# Places


def test_the_publisher_stands_in_the_middle_and_hops_are_rings() -> None:
    (found,) = pictures([picture()])
    places = rings(found)
    assert places.places[0] == (SIZE // 2, SIZE // 2)
    assert places.depths == list(range(12))
    assert places.radii == sorted(places.radii)


def test_who_got_nothing_stands_beyond_a_neighbour_or_outermost() -> None:
    entry = {**picture(nodes=3), "nodes": [100, 101, 102, 103, 104]}
    entry["links"] = [*entry["links"], [101, 103]]
    (found,) = pictures([entry])
    assert rings(found).depths == [0, 1, 2, 2, 2]


def test_subtrees_do_not_share_a_sector() -> None:
    events = [["first", n, 0, (n - 1) // 3, n] for n in range(1, 40)]
    (found,) = pictures([{"run": 0, "publisher": 0, "events": events}])
    places = rings(found)
    angles = [math.atan2(x - SIZE / 2, SIZE / 2 - y) % (2 * math.pi) for x, y in places.places]
    outer = sorted((angles[node], node) for node in range(13, 40))
    branch = [(node - 13) // 9 for _, node in outer]
    assert branch == sorted(branch)


@given(
    st.lists(st.tuples(st.sampled_from(["first", "again", "lazy"]), st.integers(0, 50), st.none(), NUMBERS, NUMBERS).map(list)),
    st.lists(st.tuples(NUMBERS, NUMBERS).map(list)),
)
def test_every_node_has_one_place_inside_the_square(events: list[Any], links: list[Any]) -> None:
    (found,) = pictures([{"run": 0, "publisher": 3, "nodes": [3, 20], "events": events, "links": links}])
    places = rings(found)
    assert len(places.places) == len(found.nodes) == len(places.depths)
    assert all(0 <= x <= SIZE and 0 <= y <= SIZE for x, y in places.places)
    assert places == rings(found)


def test_a_publisher_alone_can_be_drawn() -> None:
    (found,) = pictures([{"run": 0, "publisher": 3}])
    assert rings(found).places == [(SIZE // 2, SIZE // 2)]
    assert "No copy of this message" in played({**sample(1), "pictures": [{"run": 0, "publisher": 3}]})[0]["notes"][0]


# The player


def test_the_player_gets_every_event_in_order_of_time() -> None:
    (found,) = played(pictured(1))
    times, time = [], 0
    for after in found["after"]:
        time += after
        times.append(time)
    assert sorted(found["what"]) == sorted("f" * 11 + "agl")
    assert times == sorted(times) and times[-1] == 1_100
    assert len(found["nodes"]) == 24 and len(found["from"]) == len(found["to"]) == len(found["took"]) == 14


def test_a_run_has_a_panel_with_its_name_and_counts() -> None:
    stages = page(pictured(3)).all("figure", "stage")
    assert [one.one("h3").text for one in stages] == [f"{run['name']} \u00b7 {run['stack']}" for run in sample(3)["runs"]]
    assert [one["data-count"] for one in stages[0].all("dd")] == ["reached", "copies", "again", "lazy"]


def test_more_runs_than_panels_are_picked_by_name() -> None:
    stages = page(pictured(PANELS + 2)).all("figure", "stage")
    assert len(stages) == PANELS
    picked = [[option.text for option in one.all("option") if "selected" in option.attributes] for one in stages]
    assert picked == [[f"{run['name']} \u00b7 {run['stack']}"] for run in sample(PANELS)["runs"]]
    assert all(len(one.all("option")) == PANELS + 2 for one in stages)


def test_the_player_is_shown_by_its_script_alone() -> None:
    tree = page(pictured())
    assert "hidden" in tree.by_id("player").attributes
    assert "this browser runs none" in tree.one("p", "without").text
    assert tree.one("input")["type"] == "range"


def test_without_pictures_there_is_no_player_and_no_script_for_it() -> None:
    text = render(sample(2), title="x")
    assert "player" not in text.partition("<body>")[2] and 'href="#message"' not in text


def test_what_is_left_out_is_said() -> None:
    entry = picture()
    entry["told"] |= {"again": 5_000, "links": 9_000}
    notes = played({**sample(1), "pictures": [entry]})[0]["notes"]
    assert "Shown are 1 of 5,000 duplicates." in notes and "Shown are 13 of 9,000 links." in notes
    assert "--trace-level full" in notes[-1]


def test_a_full_trace_wants_nothing() -> None:
    assert played({**sample(1), "pictures": [{**picture(), "level": "full"}]})[0]["notes"] == []


def test_kinds_that_were_not_written_are_named() -> None:
    notes = played({**sample(1), "pictures": [{**picture(), "level": "full", "lacks": ["duplicate", "graft"]}]})[0]["notes"]
    assert notes == ["The trace has no rows of kind duplicate; leave out --kinds to have them."]


# The overlay


def test_the_overlay_is_drawn_with_its_links_and_nodes() -> None:
    drawing = page(pictured(1)).one("svg", "mesh")
    assert drawing.one("path", "links")["d"].count("M") == 13
    assert sum(spot["d"].count("M") for spot in drawing.all("path", "spot")) == 12
    assert drawing.one("desc").text == "12 nodes, 13 links, 2.2 a node; 11 nodes got the message."


def test_a_sample_of_links_says_so() -> None:
    entry = picture()
    entry["told"]["links"] = 9_000
    assert "A sample of 13 links is drawn." in page({**sample(1), "pictures": [entry]}).one("svg", "mesh").text


def test_an_overlay_without_links_says_so() -> None:
    tree = page({**sample(1), "pictures": [{**picture(), "links": []}]})
    assert not tree.all("svg", "mesh")
    assert "tells of no neighbours" in tree.one("div", "meshes").text
