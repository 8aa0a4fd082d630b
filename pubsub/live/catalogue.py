"""`weft stacks`: all stacks in groups, each with a line that tells when to use it; or one stack with its promises and options."""

from __future__ import annotations

import json
from textwrap import fill

from libweft.pubsub.options import describe
from libweft.pubsub.promises import Promise
from libweft.pubsub.stacks import OVERLAYS, ROUTERS, find, full_name, names

WIDTH = 110


def show_stacks(as_json: bool) -> None:
    """Print the stacks overlay by overlay."""
    if as_json:
        print(json.dumps({"stacks": [_as_data(name) for name in names()]}))
        return
    width = max(map(len, names()))
    for overlay in OVERLAYS.values():
        print(f"{overlay.name}: {overlay.use}")
        for name in names():
            lower, _, upper = name.partition("/")
            if lower == overlay.name:
                print(f"  {name:{width}}  {ROUTERS[upper].use}")
        print()
    usual = ", ".join(f"{name} is {full_name(name)}" for name in (*ROUTERS, *OVERLAYS))
    print(fill(f"A single name stands for its usual stack: {usual}.", WIDTH))
    print("weft stacks STACK tells what one promises, and its options.")


def show_stack(name: str, as_json: bool) -> None:
    """Print one stack: its papers, its promises, and its options as `--set` and scenario files take them."""
    stack, options = find(name, {}, {}), describe(name)
    if as_json:
        print(json.dumps(_as_data(stack.name) | {"options": [each._asdict() for each in options]}))
        return
    print(f"{stack.name}: {stack.router.use}")
    print(f"  {stack.overlay.name}: {stack.overlay.paper}")
    print(f"  {stack.router.name}: {stack.router.paper}")
    print("Promises, while no copy travels for longer than a second:")
    for promise in stack.promises:
        print(fill(_in_words(promise), WIDTH, initial_indent="  ", subsequent_indent="    "))
    print("Options:")
    told = [(f"{each.option}={str(each.default).lower()}", each.meaning) for each in options]
    width = max(len(option) for option, _ in told)
    for option, meaning in told:
        print(f"  {option:{width}}  {meaning}".rstrip())
    print(f"Times are in microseconds. Set one with weft sim --stack {stack.name} --set {told[-1][0]}, or in a scenario's file.")


def _in_words(promise: Promise) -> str:
    within = f", within {promise.within_s:g} s of its publishing or of the end of the last fault" if promise.within_s else ""
    faults = ", ".join(sorted(promise.withstands))
    return f"{promise.property.value}: {promise.property.meaning}{within}, under {faults}. {promise.limit}".rstrip()


def _as_data(name: str) -> dict[str, object]:
    stack = find(name, {}, {})
    promises = [
        {"property": each.property.value, "withstands": sorted(each.withstands), "within_s": each.within_s, "limit": each.limit}
        for each in stack.promises
    ]
    papers = [stack.overlay.paper, stack.router.paper]
    return {"stack": name, "overlay": stack.overlay.use, "router": stack.router.use, "papers": papers, "promises": promises}
