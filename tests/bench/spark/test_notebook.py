"""The notebook runs, on a session that is there already, and is kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[3] / "examples" / "analysis.ipynb"


def cells() -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_no_outputs_are_kept() -> None:
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells())


@pytest.mark.slow
def test_the_cells_run_in_their_order(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = spark.conf.get("spark.sql.shuffle.partitions") or ""
    known: dict[str, Any] = {}
    try:
        for cell in cells():
            exec("".join(cell["source"]), known)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert known["spark"] is spark or known["spark"].sparkContext is spark.sparkContext
    table, latencies = known["table"], known["latencies"]
    assert list(table.index) == ["hyparview/flood", "hyparview/plumtree"]
    assert table["rmr"]["hyparview/flood"] > table["rmr"]["hyparview/plumtree"]
    assert latencies.groupby("stack").size().to_dict() == table["deliveries"].to_dict()
    assert known["report"].read_text().startswith("<!DOCTYPE html>")
