"""Checks of a scenario whose values are each allowed, but do not fit together."""

from __future__ import annotations

from collections.abc import Iterator

from libweft.bench.runs.scenario import MOST_NODES, YEAR, Scenario
from libweft.bench.runs.setting_errors import choices, shown
from libweft.peer.sim.faults import AnyFault, Corrupt, Truncate
from libweft.pubsub.stacks import full_name


def contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield the key and the fault of values that are allowed each, but not together."""
    if scenario.duration is not None and scenario.duration < scenario.warmup:
        yield "duration", f"is {scenario.duration}; it must be at least the warmup, {scenario.warmup}"
    joined = (scenario.nodes - 1) * scenario.join_every
    if joined > scenario.warmup:
        late = f"the last node would come at {joined:g} s, after the warmup, {scenario.warmup}"
        yield "join_every", f"is {scenario.join_every}; {late}"
    churn = scenario.churn
    if (churn.session or churn.correlated) and churn.start < joined:
        yield "churn.start", f"is {churn.start}; it must not be before the last node has come, at {joined:g} s"
    if churn.swaps and churn.subscriptions:
        yield "churn.swaps", f"is {churn.swaps} and churn.subscriptions {churn.subscriptions}; a run has one of them"
    if churn.stop is not None and churn.stop < churn.start:
        yield "churn.stop", f"is {churn.stop}; it must be at least churn.start, {churn.start}"
    yield from _workload_contradictions(scenario)
    yield from _fault_contradictions(scenario)
    yield from _attack_contradictions(scenario)
    yield from _trace_contradictions(scenario)


def _workload_contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    work = scenario.workload
    for name in ("subscribers", "publishers"):
        value = getattr(work, name)
        if isinstance(value, int) and value > scenario.nodes:
            allowed = f"a number of nodes up to {scenario.nodes}, or a share from 0.0 to 1.0"
            yield f"workload.{name}", f"is {value}; it must be {allowed}"
    for name in ("subscribing", "publishing"):
        for node in getattr(work, name):
            if node >= scenario.nodes:
                yield f"workload.{name}", f"names node {node}; nodes are numbered from 0 to {scenario.nodes - 1}"
    if work.messages and not work.publishers:
        yield "workload.publishers", f"is 0, but workload.messages is {work.messages}; somebody must publish them"
    if work.interests > work.topics:
        yield "workload.interests", f"is {work.interests}; it must be workload.topics at most, {work.topics}"
    if work.answers and (work.publishers != 1.0 or work.arrivals != "regular"):
        yield "workload.answers", "makes subscribers the publishers, at moments of its own; leave out publishers and arrivals"
    if work.answers and scenario.attacks:
        yield "workload.answers", "is not for a run with attacks: its members look at nothing that they get"
    if work.messages / work.rate > YEAR:
        yield "workload.rate", f"is {work.rate}; {work.messages} messages would last more than a year"


def _fault_contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    grows = scenario.churn.replace and (scenario.churn.session or scenario.churn.correlated)
    highest = MOST_NODES if grows else scenario.nodes - 1
    known = "from 0" if grows else f"from 0 to {highest}"
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, Corrupt | Truncate) and not scenario.network.codec:
            yield f"faults[{number}]", "spoils frames, and there are none; it needs network.codec = true"
        for node in _nodes_of(fault):
            if not 0 <= node <= highest:
                yield f"faults[{number}]", f"names node {node}; nodes are numbered {known}"


def _nodes_of(fault: AnyFault) -> Iterator[int]:
    for name in ("nodes", "sources", "targets"):
        yield from getattr(fault, name, ())
    for group in getattr(fault, "groups", ()):
        yield from group
    yield from (node for node in (getattr(fault, "a", None), getattr(fault, "b", None)) if node is not None)


def _attack_contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if scenario.attacks and not full_name(scenario.stack).endswith("/gossipsub"):
        yield "attacks", f"are of gossipsub, and the stack is {full_name(scenario.stack)}"
    for number, attack in enumerate(scenario.attacks):
        for node in (*attack.targets, *getattr(attack, "censors", ())):
            if not 0 <= node < scenario.nodes:
                yield f"attacks[{number}]", f"names node {node}; honest nodes are numbered from 0 to {scenario.nodes - 1}"


def _trace_contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if not scenario.trace.kinds:
        return
    from libweft.peer.trace.kinds import KINDS

    for kind in scenario.trace.kinds:
        if kind not in KINDS:
            yield "trace.kinds", f"holds {shown(kind)}; {choices(kind, tuple(KINDS))}"
