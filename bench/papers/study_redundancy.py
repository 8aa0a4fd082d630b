"""study.redundancy: copies beyond the one that each who handles a message needs, and copies for each delivery.

The first, RMR, does not see that a router makes nodes relay what they did not ask for; the second does.
"""

from __future__ import annotations

from libweft.bench.papers.figure import number
from libweft.bench.papers.study import figure

FIGURE = figure(
    {
        "copies a delivery": lambda measures: number(measures, "payload_per_delivery"),
        "RMR": lambda measures: number(measures, "rmr"),
        "relayed for others (%)": lambda measures: 100 * number(measures, "false_positives"),
        "bytes a delivery": lambda measures: number(measures, "bytes") / number(measures, "deliveries"),
    }
)
