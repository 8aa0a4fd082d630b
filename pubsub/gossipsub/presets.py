"""Scores by name, for options that are plain text: a ready set, and what is to be different in it.

score = "filecoin"
score_with = "invalid_weight=0, graylist=-20000"
"""

from __future__ import annotations

from dataclasses import fields, replace
from difflib import get_close_matches
from functools import lru_cache

from libweft.peer.errors import UsageError
from libweft.pubsub.gossipsub.score_config import DEFAULT, ETHEREUM, FILECOIN, PeerScore, ScoreConfig, Thresholds, TopicScore

SCORES: dict[str, ScoreConfig | None] = {"default": DEFAULT, "ethereum": ETHEREUM, "filecoin": FILECOIN, "off": None}
PARTS = {"peer": PeerScore, "topic": TopicScore, "thresholds": Thresholds}
NUMBERS = {
    each.name: (part, type(each.default))
    for part, kind in PARTS.items()
    for each in fields(kind)
    if isinstance(each.default, (int, float))
}


@lru_cache(maxsize=64)
def named_score(name: str, changes: str = "") -> ScoreConfig | None:
    """One for all nodes of a simulation; None where nothing is scored."""
    if name not in SCORES:
        raise UsageError(f"score is {name!r}; choose one of: {', '.join(SCORES)}")
    config = SCORES[name]
    found: dict[str, dict[str, int | float]] = {part: {} for part in PARTS}
    for text in filter(None, map(str.strip, changes.split(","))):
        key, sign, value = (word.strip() for word in text.partition("="))
        part, number = _number(key, value if sign else "")
        found[part][key] = number
    if config is None:
        if any(found.values()):
            raise UsageError(f"score_with is {changes!r}, but score is off")
        return None
    try:
        return replace(config, **{part: replace(getattr(config, part), **numbers) for part, numbers in found.items()})
    except UsageError as error:
        raise UsageError(f"score_with is {changes!r}, but {error}") from None


def _number(key: str, value: str) -> tuple[str, int | float]:
    """The part that it belongs to, and what it is to be."""
    if key not in NUMBERS:
        near = get_close_matches(key, NUMBERS, 1)
        raise UsageError(f"score_with: {key!r} is no number of a score{f' (did you mean {near[0]}?)' if near else ''}")
    part, kind = NUMBERS[key]
    try:
        return part, kind(value)
    except ValueError:
        whole = "whole number" if kind is int else "number"
        raise UsageError(f"score_with has {value!r} for {key}; it must be a {whole}, as in {key}=1") from None
