"""versions.toml is the one place for versions: what Go and Cargo read beside it says the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from libweft.bench.perf.rivals.programs import RIVALS
from tests.interop.foreign import HERE, versions


def asked_by(go_mod: Path) -> dict[str, str]:
    return dict(re.findall(r"^\t(\S+) (v\S+)$", go_mod.read_text(), re.MULTILINE))


def test_go_mod_asks_for_the_pinned_versions() -> None:
    assert asked_by(HERE / "go" / "go.mod") == versions("go")["packages"]


def test_go_mod_of_the_bench_asks_for_the_same() -> None:
    asked = asked_by(RIVALS / "go_libp2p_live" / "go.mod")
    assert "github.com/libp2p/go-libp2p-pubsub" in asked
    assert asked.items() <= versions("go")["packages"].items()


def test_cargo_toml_asks_for_the_pinned_versions() -> None:
    asked = tomllib.loads((HERE / "rust" / "Cargo.toml").read_text())["dependencies"]
    exact = {name: wanted if isinstance(wanted, str) else wanted["version"] for name, wanted in asked.items()}
    assert exact == {name: f"={version}" for name, version in versions("rust")["packages"].items()}
