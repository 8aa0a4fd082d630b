"""A scenario: all that decides a simulated run, as one frozen config read from TOML or from flags.

Two equal scenarios give the same run to the byte; `command` writes one as a shell line that replays it. Times are
seconds, sizes are bytes, latencies are milliseconds. The text of a user is checked here, once: each wrong key or value
is a UsageError of one line that names the file or flag, the key, what was given and what is allowed.

Bounds: every number has an upper limit, so that a slip of the finger is refused and does not eat the machine; a
scenario file is 16 MB at most.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec import inspect as mi

from libweft.bench.runs.attacks import AnyAttack
from libweft.peer.errors import UsageError
from libweft.peer.sim.faults import AnyFault, Corrupt, Truncate
from libweft.peer.sim.latency import Latency, Uniform

YEAR = 31_536_000.0
MOST_NODES = 1_000_000
LARGEST_FILE = 16_000_000

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=YEAR)]
Period: TypeAlias = Annotated[float, Meta(gt=0, le=YEAR)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
ShareOrCount: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NODES)] | Annotated[float, Meta(ge=0, le=1)]
"""A whole number counts nodes, a number with a point is a share of them: 1 is one node, 1.0 is all; `head_count` reads it."""

Node: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_NODES)]
Option: TypeAlias = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[float, Meta(ge=-1e308, le=1e308)] | str
Options: TypeAlias = dict[Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")], Option]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a scenario file."""


class Workload(Section, frozen=True, kw_only=True):
    """Who subscribes to what, and who publishes how much; `exponent` is Zipf's s, or the rate of the exponential.

    With `answers` the messages are questions, and subscribers answer each time that they have heard so many:
    `libweft.bench.runs.discussion`. `phased`: each publisher publishes at equal intervals from a moment that is drawn for it, all
    of them together at `rate`. `subscribing` and `publishing` name the nodes instead of drawing them.
    """

    topics: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    popularity: Literal["uniform", "zipf", "exponential"] = "uniform"
    exponent: Annotated[float, Meta(ge=0, le=100)] = 1.0
    subscribers: ShareOrCount = 1.0
    subscribing: tuple[Node, ...] = ()
    interests: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    publishers: ShareOrCount = 1.0
    publishing: tuple[Node, ...] = ()
    messages: Annotated[int, Meta(ge=0, le=10_000_000)] = 10
    rate: Annotated[float, Meta(gt=0, le=1_000_000)] = 10.0
    arrivals: Literal["regular", "poisson", "phased"] = "regular"
    order: Literal["none", "fifo", "causal"] = "none"
    size: Annotated[int, Meta(ge=0, le=900_000)] = 100
    answers: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    answer_ms: Annotated[int, Meta(ge=0, le=1_000_000)] = 100
    turns: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


class Network(Section, frozen=True, kw_only=True):
    """`bandwidth` is a node's, in bytes a second, 0 for no limit; `queue` is what may wait on a link."""

    codec: bool = False
    bandwidth: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    queue: Annotated[int, Meta(ge=1, le=2**40)] = 1 << 20
    detection: Seconds = 5.0
    dial_timeout: Period = 5.0
    idle: Period = 60.0


class Churn(Section, frozen=True, kw_only=True):
    """`session`, `subscriptions` and `swaps` are means of exponential draws; `correlated` leaves together each `every`.

    Of the nodes up to the share `changing` subscribe, or do not any more, each `every`.
    """

    session: Seconds = 0.0
    replace: bool = True
    graceful: bool = False
    correlated: Share = 0.0
    every: Period = 10.0
    subscriptions: Seconds = 0.0
    swaps: Seconds = 0.0
    changing: Share = 0.0
    start: Seconds = 0.0
    stop: Seconds | None = None


class TraceSettings(Section, frozen=True, kw_only=True):
    """No `kinds` means all of them."""

    level: Literal["none", "default", "full"] = "default"
    kinds: tuple[str, ...] = ()


class Scenario(Section, frozen=True, kw_only=True):
    """Nodes come up one each `join_every`, or with 0 all at time 0; the first message is published after the `warmup`."""

    stack: str = "static/flood"
    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 100
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    duration: Seconds | None = None
    join_every: Seconds = 0.0
    warmup: Seconds = 5.0
    window: Period = 10.0
    overlay: Options = {}
    router: Options = {}
    latency: Latency = Uniform(low=10.0, high=100.0)
    network: Network = Network()
    workload: Workload = Workload()
    churn: Churn = Churn()
    faults: tuple[AnyFault, ...] = ()
    attacks: tuple[AnyAttack, ...] = ()
    trace: TraceSettings = TraceSettings()


def head_count(share: int | float, nodes: int) -> int:
    """How many of so many nodes a ShareOrCount stands for; a share above 0 is at least one node."""
    if isinstance(share, int):
        return min(share, nodes)
    return max(1, round(share * nodes)) if share > 0 else 0


def load(path: Path) -> Scenario:
    return of_table(read(path), str(path))


def of_table(data: dict[str, Any], where: str) -> Scenario:
    """The scenario that a table of TOML holds; `where` it stands is what an error names."""
    try:
        return _build(data)
    except _Wrong as wrong:
        raise UsageError(f"{where}: {wrong.text}") from None


def read(path: Path, what: str = "scenario") -> dict[str, Any]:
    """The tables of a TOML file; `what` it is, an error says."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise UsageError(f"{path}: a {what} file is {LARGEST_FILE} bytes at most")
        return tomllib.loads(raw.decode())
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the {what} is not text in UTF-8; it must be a TOML file") from None
    except RecursionError:
        raise UsageError(f"{path}: the {what} is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{path}: the {what} is not valid TOML: {_one_line(str(error))}") from None


def merge(
    base: Scenario | None,
    pairs: Sequence[tuple[str, object]],
    names: Mapping[str, str] | None = None,
    where: str = "the command line",
) -> Scenario:
    """Set keys such as `workload.size` over a scenario, in that order; `names` gives the flag that a key came from.

    `where` all of it came from is what an error names that no key is to blame for alone.
    """
    data = to_dict(base or Scenario())
    flags = {key: f"--set {key}" for key, _ in pairs} | dict(names or {})
    try:
        for key, value in pairs:
            _put(data, key, value)
        return _build(data)
    except _Wrong as wrong:
        raise UsageError(f"{_blame(wrong, flags) or where}: {wrong.text}") from None


def validate(scenario: Scenario) -> None:
    """For a scenario that a program built: what a file is checked for, the stack and its options included."""
    try:
        _build(to_dict(scenario))
    except _Wrong as wrong:
        raise UsageError(f"the scenario: {wrong.text}") from None


def assignment(text: str) -> tuple[str, object]:
    """`KEY=VALUE` of a flag; the value is TOML where it can be read as such, else a plain string."""
    key, equals, value = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UsageError(f"--set {_shown(text)} is not KEY=VALUE; write for example --set workload.size=200")
    return key.strip(), value_of(value)


def value_of(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (RecursionError, ValueError):
        return text
    value = parsed.get("value")
    return value if len(parsed) == 1 and isinstance(value, bool | int | float | str | list | dict) else text


def to_dict(scenario: Scenario) -> dict[str, Any]:
    """Plain values, with the keys that a scenario file has; what has no value is left out, as in TOML."""
    data: dict[str, Any] = _without_none(msgspec.to_builtins(scenario))
    data["latency"].pop("rows", None)
    return data


def to_toml(scenario: Scenario) -> str:
    data = to_dict(scenario)
    lists = {key: data.pop(key) for key in ("faults", "attacks")}
    tables = {key: value for key, value in data.items() if isinstance(value, dict)}
    lines = _assignments({key: value for key, value in data.items() if key not in tables})
    for key, table in tables.items():
        if table:
            lines += ["", f"[{key}]", *_assignments(table)]
    for key, items in lists.items():
        for item in items:
            lines += ["", f"[[{key}]]", *_assignments(item)]
    return "\n".join(lines) + "\n"


def command(scenario: Scenario) -> str:
    """One shell line that replays the scenario: all that differs from the defaults, and always who, how many and seed."""
    words = ["weft", "sim"]
    for key, value in _differences(scenario):
        words += ["--set", f"{key}={_argument(value)}"]
    return shlex.join(words)


def _differences(scenario: Scenario) -> Iterator[tuple[str, object]]:
    plain = to_dict(Scenario())
    for key, value in to_dict(scenario).items():
        if isinstance(value, dict) and key != "latency":
            yield from ((f"{key}.{name}", item) for name, item in value.items() if plain[key].get(name) != item)
        elif key in ("stack", "nodes", "seed") or plain.get(key) != value:
            yield key, value


class _Wrong(Exception):
    """A key that is wrong, and a text that says why; who asks knows whether a file or a flag is to be named."""

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        self.text = text


def _build(data: dict[str, Any]) -> Scenario:
    latency = data.get("latency")
    if isinstance(latency, dict) and "rows" in latency:
        raise _Wrong("latency.rows", "latency.rows is no key; the rows are read from latency.file")
    try:
        scenario = msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        raise _explained(str(error), data) from None
    for key, text in _contradictions(scenario):
        raise _Wrong(key, f"{key} {text}")
    _check_stack(scenario)
    return scenario


def _check_stack(scenario: Scenario) -> None:
    # Late, because it imports every protocol, and who only builds the flags' parser needs none.
    from libweft.pubsub import stacks

    try:
        stacks.check(scenario.stack, scenario.overlay, scenario.router, scenario.nodes)
    except UsageError as error:
        text = _one_line(str(error))
        named = re.search(r"\b(?:overlay|router)\.[\w-]+", text)
        raise _Wrong(named.group() if named else "stack", text) from None


def _contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Values that are fine alone but not together."""
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


def _attack_contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if scenario.attacks and not scenario.stack.endswith("/gossipsub"):
        yield "attacks", f"are of gossipsub, and the stack is {scenario.stack}"
    for number, attack in enumerate(scenario.attacks):
        for node in (*attack.targets, *getattr(attack, "censors", ())):
            if not 0 <= node < scenario.nodes:
                yield f"attacks[{number}]", f"names node {node}; honest nodes are numbered from 0 to {scenario.nodes - 1}"


def _nodes_of(fault: AnyFault) -> Iterator[int]:
    for name in ("nodes", "sources", "targets"):
        yield from getattr(fault, name, ())
    for group in getattr(fault, "groups", ()):
        yield from group
    yield from (node for node in (getattr(fault, "a", None), getattr(fault, "b", None)) if node is not None)


def _trace_contradictions(scenario: Scenario) -> Iterator[tuple[str, str]]:
    if not scenario.trace.kinds:
        return
    from libweft.peer.trace.kinds import KINDS

    for kind in scenario.trace.kinds:
        if kind not in KINDS:
            yield "trace.kinds", f"holds {_shown(kind)}; {_choices(kind, tuple(KINDS))}"


def _put(data: dict[str, Any], key: str, value: object) -> None:
    *tables, last = key.split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise _Wrong(key, f"{key} is no key; {table} is not a table, so give it a value whole")
    if key == "latency.kind" and data.get("kind") != value:
        # The parameters of one model mean nothing to another.
        data.clear()
    data[last] = value


def _blame(wrong: _Wrong, flags: Mapping[str, str]) -> str | None:
    """The flag whose key is nearest to the wrong one; a contradiction may also name the key in its text."""
    keys = sorted(flags, key=len, reverse=True)
    inside = [key for key in keys if wrong.key == key or wrong.key.startswith((f"{key}.", f"{key}["))]
    around = [key for key in keys if key.startswith((f"{wrong.key}.", f"{wrong.key}["))]
    told = [key for key in keys if re.search(rf"(?<![\w.]){re.escape(key)}\b", wrong.text)]
    beside = [key for key in keys if "." in key and key.rpartition(".")[0] == wrong.key.rpartition(".")[0]]
    found = inside or around or told or beside
    return flags[found[0]] if found else None


def _explained(message: str, data: dict[str, Any]) -> _Wrong:
    """msgspec says where it stopped, in its own words; look there again and say what stands there and what may."""
    place = re.search(r" - at (?:`key` in )?`\$(\S*)`$", message)
    text = message[: place.start()] if place else message
    kind: mi.Type = mi.type_info(Scenario)
    value: Any = data
    key = ""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place.group(1) if place else ""):
        if isinstance(value, dict) and index:
            name = _spoiled(value)
        kind = _inner(kind, value, name)
        value = value[name] if isinstance(value, dict) else value[int(index)]
        key += f"[{index}]" if index.isdigit() else f".{name}" if key else name
    return _wrong_at(key, kind, value, text)


def _spoiled(options: dict[str, Any]) -> str:
    """msgspec does not say which key of a dict has the wrong value."""
    for name, value in options.items():
        try:
            msgspec.convert(value, Option)
        except msgspec.ValidationError:
            return name
    return next(iter(options))


def _inner(kind: mi.Type, value: Any, name: str) -> mi.Type:
    if isinstance(kind, mi.VarTupleType):
        return kind.item_type
    if isinstance(kind, mi.DictType):
        return kind.value_type
    if isinstance(kind, mi.UnionType) and name == "kind":
        return mi.LiteralType(values=_tags(kind))
    fields = {field.name: field.type for field in _struct(kind, value).fields}
    return fields[name]


def _struct(kind: mi.Type, value: Any) -> mi.StructType:
    members = kind.types if isinstance(kind, mi.UnionType) else (kind,)
    structs = [member for member in members if isinstance(member, mi.StructType)]
    return next(struct for struct in structs if struct.tag is None or struct.tag == value.get("kind"))


def _tags(kind: mi.UnionType) -> tuple[str, ...]:
    return tuple(str(member.tag) for member in kind.types if isinstance(member, mi.StructType))


def _wrong_at(key: str, kind: mi.Type, value: Any, text: str) -> _Wrong:
    if isinstance(kind, mi.DictType) and isinstance(value, dict):
        bad = next(name for name in value if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name))
        return _Wrong(key, f"{key} has the key {_shown(bad)}; names of options are letters, digits, _ and -")
    tagged = isinstance(kind, mi.UnionType) and _tags(kind)
    if isinstance(value, dict) and tagged and "kind" not in value:
        return _Wrong(key, f"{key} has no kind; it must be one of {', '.join(tagged)}")
    if isinstance(value, dict) and (tagged or isinstance(kind, mi.StructType)):
        return _wrong_table(key, _struct(kind, value), value, text)
    if isinstance(kind, mi.LiteralType):
        return _Wrong(key, f"{key} is {_shown(value)}; {_choices(value, kind.values)}")
    return _Wrong(key, f"{key} is {_shown(value)}; it must be {_allowed(kind)}")


def _wrong_table(key: str, struct: mi.StructType, value: dict[str, Any], text: str) -> _Wrong:
    prefix = f"{key}." if key else ""
    names = tuple(field.name for field in struct.fields if field.name != "rows")
    names = ("kind", *names) if struct.tag is not None else names
    for name in value:
        if name not in names:
            wrong = f"{prefix}{name}" if re.fullmatch(r"[\w-]{1,64}", name) else f"{prefix}{_shown(name)}"
            return _Wrong(wrong, f"{wrong} is no key; {_choices(name, names, _elsewhere(name))}")
    for field in struct.fields:
        if field.required and field.name not in value:
            return _Wrong(f"{prefix}{field.name}", f"{prefix}{field.name} is missing; it must be {_allowed(field.type)}")
    first = text.partition(" ")[0]
    joined = f"{prefix}{text}" if first in names else f"{key}: {text}"
    return _Wrong(f"{prefix}{first}" if first in names else key, _one_line(joined))


def _elsewhere(name: str) -> list[str]:
    """Keys of that very name in other tables: `rate` for `workload.rate` is the commonest slip."""
    sections = [field for field in msgspec.structs.fields(Scenario) if isinstance(field.default, Section)]
    return [f"{section.name}.{name}" for section in sections if name in section.default.__struct_fields__]


def _choices(given: object, allowed: Sequence[object], elsewhere: Sequence[str] = ()) -> str:
    names = [str(name) for name in allowed]
    near = elsewhere or get_close_matches(str(given), names, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}allowed: {', '.join(names)}"


def _allowed(kind: mi.Type) -> str:
    if isinstance(kind, mi.IntType):
        return f"a whole number{_range(kind)}"
    if isinstance(kind, mi.FloatType):
        return f"a number{_range(kind)}"
    if isinstance(kind, mi.UnionType):
        return _allowed_of_union(kind)
    if isinstance(kind, mi.VarTupleType):
        return f"a list, each item {_allowed(kind.item_type)}"
    if isinstance(kind, mi.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}"
    return "true or false" if isinstance(kind, mi.BoolType) else "a string" if isinstance(kind, mi.StrType) else "a table"


def _allowed_of_union(kind: mi.UnionType) -> str:
    if tags := _tags(kind):
        return f"a table with a kind: {', '.join(tags)}"
    members = [member for member in kind.types if not isinstance(member, mi.NoneType)]
    if any(isinstance(member, mi.BoolType) for member in members):  # an option of a layer, whose type its stack knows
        return "true, false, a finite number or a string"
    return ", or ".join(map(_allowed, members))


def _range(kind: mi.IntType | mi.FloatType) -> str:
    if kind.le is None:
        return ""
    if kind.gt is not None:
        return f" above {_plain(kind.gt)}, up to {_plain(kind.le)}"
    return f" from {_plain(kind.ge or 0)} to {_plain(kind.le)}"


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.12g}"


def _shown(value: object) -> str:
    if isinstance(value, dict | list | tuple):
        return "a table" if isinstance(value, dict) else "a list"
    text = inline(value) if isinstance(value, bool | int | float | str) else str(value)
    return text if len(text) <= 60 else f"{text[:56]}..."


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value


def _assignments(table: Mapping[str, object]) -> list[str]:
    return [f"{key} = {inline(value)}" for key, value in table.items()]


def _argument(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() and value_of(value) == value else inline(value)


def inline(value: object) -> str:
    """The value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(_assignments(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for the pairs of surrogates that ensure_ascii would make; and a command is one line.
        plain = json.dumps(value, ensure_ascii=False)
        return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in plain)
    return repr(value)
