"""The verdict of a comparison, for who has seconds: which stack is the most redundant, the slowest, the least reliable.

Stacks are compared where there are several, else runs. A stack of one run has that run's figure and its 95 % interval over the
messages; one of several runs has their mean, and as its interval their range. For each measure all are ranked, the worst first,
and a sentence names the worst and how far the best is from it. What chance may explain is not called a difference:

    two intervals over messages    the difference is clear where it is larger than the root of the sum of their halves squared
    ranges over runs               it is clear where they do not meet
    no interval, as of a p99       it is clear from a twentieth on, and the sentence says that it has no interval

Promises: nothing for fewer than two to compare; no figure that the analysis lacks. Bounds: RANKED bars a measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from statistics import fmean
from typing import NamedTuple

from libweft.bench.report.cards import key_colour
from libweft.bench.report.input import Given, Run
from libweft.bench.report.scale import linear
from libweft.bench.report.text import between, decimals, escape, figure, percent, plain

RANKED = 8
NEAR = 0.05  # of the larger: figures without intervals that are nearer are not told apart
NAMED = 3  # labels in a sentence


class Measure(NamedTuple):
    title: str
    name: str
    part: str | None
    unit: str
    none: str
    """What is said where nobody has any of it."""
    missed: bool = False
    """Whether it is the share that is missing to one."""


MEASURES = (
    Measure("Most redundant", "rmr", None, "spare copies a receiver", "No stack sends a spare copy."),
    Measure("Least reliable", "reliability", None, "missed", "Nobody missed a message in time.", missed=True),
    Measure("Slowest, p99", "latency_ms", "p99", "ms", "Every delivery is at once."),
    Measure("Slowest to the last subscriber", "last_ms", None, "ms", "Every delivery is at once."),
)


class Contender(NamedTuple):
    label: str
    colour: int
    value: float
    ends: tuple[float, float] | None
    runs: int


def verdict(given: Given) -> str:
    groups = _groups(given)
    if len(groups) < 2:
        return ""
    cards = [_card(measure, found) for measure in MEASURES if len(found := _ranked(given, measure, groups)) > 1]
    return f'<div class="verdicts">{"".join(cards)}</div>' if cards else ""


def _groups(given: Given) -> list[tuple[str, list[Run]]]:
    """The stacks with their runs; the runs where there is one stack, or where some name none."""
    stacks: dict[str, list[Run]] = {}
    for run in given.runs:
        stacks.setdefault(str(run.facts.get("stack") or ""), []).append(run)
    if len(stacks) > 1 and "" not in stacks:
        return list(stacks.items())
    return [(run.label, [run]) for run in given.runs]


def _ranked(given: Given, measure: Measure, groups: Sequence[tuple[str, list[Run]]]) -> list[Contender]:
    """The worst first; of equals, in the order given."""
    found = [one for label, runs in groups if (one := _contender(given, measure, label, runs)) is not None]
    return sorted(found, key=lambda one: -one.value)


def _contender(given: Given, measure: Measure, label: str, runs: Sequence[Run]) -> Contender | None:
    values = [_turned(measure, value) for run in runs if (value := run.figure(measure.name, measure.part)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return Contender(label, 0, fmean(values), (min(values), max(values)), len(values))
    ends = next((run.interval(measure.name) for run in runs), None) if measure.part is None and len(runs) == 1 else None
    turned = sorted(max(0.0, _turned(measure, end)) for end in ends) if ends else []
    return Contender(label, key_colour(given, runs[0]), values[0], (turned[0], turned[1]) if turned else None, 1)


def _turned(measure: Measure, value: float) -> float:
    return 1 - value if measure.missed else value


def is_clear(worse: Contender, better: Contender) -> bool:
    """Whether more than chance tells them apart."""
    if worse.value <= better.value:
        return False
    if worse.ends is None or better.ends is None:
        return worse.value - better.value > NEAR * abs(worse.value)
    if worse.runs > 1 or better.runs > 1:
        return worse.ends[0] > better.ends[1]
    halves = [(high - low) / 2 for low, high in (worse.ends, better.ends)]
    return worse.value - better.value > hypot(*halves)


def _card(measure: Measure, found: Sequence[Contender]) -> str:
    head, sentence = _words(measure, found)
    rows = "".join(_row(measure, one, found) for one in found[:RANKED])
    rest = f'<p class="rest">and {len(found) - RANKED:,} more</p>' if len(found) > RANKED else ""
    title = f'<h3>{measure.title}</h3><p class="answer"><bdi>{escape(head)}</bdi></p><p class="why">{escape(sentence)}</p>'
    return f'<div class="card verdict">{title}<ol class="ranks">{rows}</ol>{rest}</div>'


def _words(measure: Measure, found: Sequence[Contender]) -> tuple[str, str]:
    """Who it is, and why one may say so."""
    worst, best = found[0], found[-1]
    if worst.value <= 0:
        return "none", measure.none
    alike = [one for one in found[1:] if not is_clear(worst, one)]
    if len(alike) == len(found) - 1:
        span = between(_value(measure, best, found), _value(measure, worst, found))
        return "no clear difference", f"{span} {measure.unit}: {_why(found)}."
    amount = f"{_value(measure, worst, found)} {measure.unit}{_interval(measure, worst, found)}"
    sentence = f"{amount}, {_against(measure, worst, best)}."
    if alike:
        sentence += f" Not clearly apart from {_names(alike)}: {_why([worst, *alike])}."
    elif any(one.ends is None for one in found):
        sentence += " A percentile has no interval here."
    return worst.label if not alike else f"{worst.label} or {_names(alike)}", sentence


def _why(found: Sequence[Contender]) -> str:
    if any(one.ends is None for one in found):
        return "they are within a twentieth of each other"
    return "their runs overlap" if any(one.runs > 1 for one in found) else "chance among the messages may explain it"


def _names(found: Sequence[Contender]) -> str:
    labels = [one.label for one in found[:NAMED]]
    left = len(found) - len(labels)
    if left:
        labels.append(f"{left:,} more")
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} or {labels[-1]}"


def _against(measure: Measure, worst: Contender, best: Contender) -> str:
    if best.value <= 0:
        return f"{best.label} {'missed none' if measure.missed else 'has none'}"
    times = worst.value / best.value
    if times >= 1.95:
        return f"{times:,.0f} times {best.label}" if times >= 9.5 else f"{times:.1f} times {best.label}"
    return f"{100 * (times - 1):.0f} % more than {best.label}"


def _interval(measure: Measure, one: Contender, found: Sequence[Contender]) -> str:
    if one.ends is None or one.ends[0] == one.ends[1]:
        return ""
    text = between(*(_text(measure, end, found) for end in one.ends))
    return f" ({text} over {one.runs} runs)" if one.runs > 1 else f" (95 %: {text})"


def _value(measure: Measure, one: Contender, found: Sequence[Contender]) -> str:
    return _text(measure, one.value, found)


def _text(measure: Measure, value: float, found: Sequence[Contender]) -> str:
    if measure.missed:
        return f"{plain(percent(value))} %"
    return figure(value, decimals([one.value for one in found]))


def _row(measure: Measure, one: Contender, found: Sequence[Contender]) -> str:
    """A bar from nought, and its interval."""
    high = linear([end for each in found for end in (each.value, *(each.ends or ()))], zero=True, tight=True).high
    share = 100 * one.value / high if high > 0 else 0.0
    whisker = ""
    if one.ends is not None and one.ends[1] > one.ends[0]:
        low, top = (f"{100 * min(1.0, end / high):.2f}%" for end in one.ends)
        whisker = f'<line class="whisker" x1="{low}" x2="{top}" y1="7" y2="7"/>'
    bar = f'<svg class="rank c{one.colour}" width="100%" height="14" aria-hidden="true">'
    bar += f'<rect class="bar" width="{max(share, 0.4):.2f}%" y="2" height="10" rx="2"/>{whisker}</svg>'
    text = f"{_value(measure, one, found)}{_interval(measure, one, found)}"
    shown = f"{_value(measure, one, found)}{'' if measure.missed or measure.unit != 'ms' else ' ms'}"
    name = f'<span class="name"><bdi>{escape(one.label)}</bdi></span>'
    return f'<li title="{escape(f"{one.label}: {text}")}">{name}{bar}<span class="amount">{escape(shown)}</span></li>'
