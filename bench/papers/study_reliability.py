"""study.reliability: which share of a topic's subscribers gets a message, against the rate and the size of messages."""

from __future__ import annotations

from libweft.bench.papers.figure import number
from libweft.bench.papers.study import figure

FIGURE = figure({"reliability (%)": lambda measures: 100 * number(measures, "reliability")})
