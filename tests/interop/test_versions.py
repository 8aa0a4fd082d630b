"""versions.toml is the one place for versions: what Go and Cargo read beside it says the same."""

from __future__ import annotations

import re
import tomllib

from tests.interop.foreign import HERE, versions


def test_go_mod_asks_for_the_pinned_versions() -> None:
    asked = re.findall(r"^\t(\S+) (v\S+)$", (HERE / "go" / "go.mod").read_text(), re.MULTILINE)
    assert dict(asked) == versions("go")["packages"]


def test_cargo_toml_asks_for_the_pinned_versions() -> None:
    asked = tomllib.loads((HERE / "rust" / "Cargo.toml").read_text())["dependencies"]
    exact = {name: wanted if isinstance(wanted, str) else wanted["version"] for name, wanted in asked.items()}
    assert exact == {name: f"={version}" for name, version in versions("rust")["packages"].items()}
