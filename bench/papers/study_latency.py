"""study.latency: from the publish call to a subscriber, against the rate and the size of messages."""

from __future__ import annotations

from libweft.bench.papers.figure import number
from libweft.bench.papers.study import figure

FIGURE = figure(
    {
        "p50 (ms)": lambda measures: number(measures, "latency_ms", "p50"),
        "p99 (ms)": lambda measures: number(measures, "latency_ms", "p99"),
    }
)
