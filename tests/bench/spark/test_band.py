"""The bands of distributions, against their formula written out message by message."""

from __future__ import annotations

from math import sqrt
from random import Random
from statistics import mean, stdev

import pytest
from pyspark.sql import SparkSession

from libweft.bench.spark.band import bands
from libweft.bench.spark.gather import DELIVERY, RECEPTION
from libweft.bench.spark.message_measures import NORMAL_95
from libweft.bench.spark.percentiles import BINS

COLUMNS = "run int, number long, delivered long, received long, member boolean"
SPREADS = "run int, what int, max long"


def of(times: dict[int, list[int]], end: int) -> tuple[float, float]:
    """The interval of the share that came before the end."""
    pairs = [(sum(time < end for time in several), len(several)) for several in times.values()]
    total = sum(n for _, n in pairs)
    share = sum(c for c, _ in pairs) / total
    left = sum((c - share * n) ** 2 for c, n in pairs)
    half = NORMAL_95 * sqrt(len(pairs) / (len(pairs) - 1) * left) / total
    return share - half, share + half


def test_a_band_is_that_of_a_ratio_over_messages(spark: SparkSession) -> None:
    rng = Random(5)
    slow = [rng.randint(1, 4) for _ in range(12)]
    times = {m: [rng.randint(0, 90_000 * slow[m]) for _ in range(rng.randint(1, 40))] for m in range(12)}
    rows: list[tuple[object, ...]] = [(1, m, time, time, True) for m, several in times.items() for time in several]
    rows += [(1, 0, None, None, False), (1, 1, None, 5, False)]
    rows += [(2, 99, 7, 7, True), (2, 99, 9, 9, True)]  # one message is too few
    most = max(time for several in times.values() for time in several)
    spreads = [(1, DELIVERY, most), (1, RECEPTION, most), (2, DELIVERY, 9), (2, RECEPTION, 9)]
    found = bands(spark.createDataFrame(rows, COLUMNS), spark.createDataFrame(spreads, SPREADS))
    assert {(end.run, end.what) for end in found} == {(1, "delivery"), (1, "reception")}
    delivery, reception = ([end for end in found if end.what == what] for what in ("delivery", "reception"))
    assert [end[2:] for end in delivery] == [end[2:] for end in reception]
    width = most // BINS + 1
    assert [end.at_ms for end in delivery] == sorted(end.at_ms for end in delivery) and len(delivery) > BINS / 2
    for end in delivery:
        assert (1_000 * end.at_ms) % width == pytest.approx(0, abs=1e-6)
        low, high = of(times, round(1_000 * end.at_ms))
        assert [end.low, end.high] == pytest.approx([max(0, low), min(1, high)], abs=1e-9)
    assert delivery[-1][3:] == (1.0, 1.0)
    assert max(end.high - end.low for end in delivery) > 0.05


def test_with_as_many_deliveries_of_each_it_is_the_interval_of_their_mean(spark: SparkSession) -> None:
    rng = Random(6)
    times = {m: [rng.randint(0, 1_000) * (1 + m % 3) for _ in range(10)] for m in range(9)}
    rows = [(0, m, time, None, True) for m, several in times.items() for time in several]
    most = max(time for several in times.values() for time in several)
    found = bands(spark.createDataFrame(rows, COLUMNS), spark.createDataFrame([(0, DELIVERY, most)], SPREADS))
    middle = found[len(found) // 2]
    shares = [mean(time < 1_000 * middle.at_ms for time in several) for several in times.values()]
    half = NORMAL_95 * stdev(shares) / sqrt(len(shares))
    assert [middle.low, middle.high] == pytest.approx([mean(shares) - half, mean(shares) + half])
