"""The same measures in DuckDB: the yardstick of `weft bench spark`, and a second opinion on every figure.

Written from the definitions in `docs/architecture.md` as SQL that suits DuckDB, not as a copy of Spark's plans: ASOF joins
for stays and subscriptions, grouping sets for means, its own exact percentile, which with a decimal share is the smallest
value with at least that share at or below it. Each step is one statement that makes a temporary table of its name, and
the steps are those of `libweft.bench.spark.gather`, so that the two can be timed side by side.

It asks for whole traces with all kinds of rows: what a trace lacks is for `libweft.bench.spark.run_figures` to say.
Bounds: DuckDB keeps in memory the tables, and the values of a distribution while it is taken. It spills to disk when it holds
80 % of the machine's memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libweft.bench.spark.traces import Run
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import SECOND

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

INSTALL = "the yardstick is DuckDB, which is not installed: pip install duckdb"
NEVER = 1 << 62
UNKNOWN = (1 << 16) - 1  # hops, packed below the time of a delivery
SANE = 1 << 46  # microseconds: a latency above it is a clock
QUOTE = "'"

QUIET = """
CREATE TEMP TABLE quiet AS
  SELECT run, t, node, kind, topic AS name, msg, copies, dependencies FROM rows
  WHERE kind NOT IN ('send', 'receive', 'duplicate', 'deliver', 'drop');
CREATE TEMP TABLE topics AS
  SELECT name, row_number() OVER (ORDER BY name)::INTEGER AS topic
  FROM (SELECT DISTINCT name FROM quiet WHERE kind IN ('publish', 'joined', 'leave'));
"""

PUBLISHES = """
CREATE TEMP TABLE publishes AS
  WITH first AS (
    SELECT DISTINCT ON (run, msg) run, msg, node AS publisher, name, t, dependencies
    FROM quiet WHERE kind = 'publish' ORDER BY t, node
  ), known AS (SELECT DISTINCT ON (run, msg) run, msg, source, epoch, sequence FROM messages)
  SELECT run, msg, publisher, topic, t, t + "window" AS deadline, source, epoch, sequence, dependencies
  FROM first JOIN topics ON topics.name IS NOT DISTINCT FROM first.name JOIN runs USING (run) LEFT JOIN known USING (run, msg);
"""

STAYS = f"""
CREATE TEMP TABLE stays AS
  WITH coded AS (SELECT run, node, kind, topic, t FROM quiet JOIN topics ON topics.name IS NOT DISTINCT FROM quiet.name),
  joined AS (SELECT * FROM coded WHERE kind = 'joined'),
  ended AS (
    SELECT joined.run, joined.topic, joined.node, joined.t, coalesce(least(leaves.t, downs.t), {NEVER}) AS until
    FROM joined
    ASOF LEFT JOIN (SELECT * FROM coded WHERE kind = 'leave') leaves
      ON leaves.run = joined.run AND leaves.node = joined.node AND leaves.topic = joined.topic AND leaves.t >= joined.t
    ASOF LEFT JOIN (SELECT * FROM quiet WHERE kind = 'node_down') downs
      ON downs.run = joined.run AND downs.node = joined.node AND downs.t >= joined.t
  )
  SELECT run, topic, node, min(t) AS since, until FROM ended WHERE t < until GROUP BY run, topic, node, until;
"""

PAIRS = f"""
CREATE TEMP TABLE pairs AS
  WITH events AS (
    SELECT run, msg, node, kind, hops, rows.t - publishes.t AS after FROM rows JOIN publishes USING (run, msg)
    WHERE kind IN ('receive', 'deliver') AND node <> publisher
  ), first AS (
    SELECT run, msg, node,
      min(after) FILTER (kind = 'receive' AND after BETWEEN 0 AND {SANE}) AS received,
      min(CASE WHEN kind = 'deliver' AND after BETWEEN 0 AND {SANE}
          THEN after * {UNKNOWN + 1} + least(coalesce(hops, {UNKNOWN}), {UNKNOWN}) END) AS packed,
      count(*) FILTER (after NOT BETWEEN 0 AND {SANE}) AS early
    FROM events GROUP BY run, msg, node
  ), told AS (
    SELECT run, msg, node, topic, t, received, packed // {UNKNOWN + 1} AS delivered,
      nullif(packed % {UNKNOWN + 1}, {UNKNOWN})::INTEGER AS hops, early, deadline
    FROM first JOIN publishes USING (run, msg)
  )
  SELECT told.* EXCLUDE (deadline), at_reception.node IS NOT NULL AS member,
    throughout.node IS NOT NULL AND coalesce(t + delivered <= deadline, false) AS in_time
  FROM told
  LEFT JOIN stays at_reception ON at_reception.run = told.run AND at_reception.topic = told.topic
    AND at_reception.node = told.node AND at_reception.since <= t + received AND at_reception.until > t + received
  LEFT JOIN stays throughout ON throughout.run = told.run AND throughout.topic = told.topic
    AND throughout.node = told.node AND throughout.since <= t AND throughout.until > deadline;
"""

PER_MESSAGE = """
CREATE TEMP TABLE per_message AS
  WITH reached AS (
    SELECT run, msg, count(received) AS receptions, count(received) FILTER (NOT member) AS strangers,
      count(delivered) AS deliveries, count(*) FILTER (in_time) AS in_time, sum(early)::BIGINT AS early,
      max(delivered) AS last, max(hops) AS last_hop
    FROM pairs GROUP BY run, msg
  ), awaited AS (
    SELECT run, msg, count(*) AS expected FROM publishes JOIN stays USING (run, topic)
    WHERE since <= t AND until > deadline AND node <> publisher GROUP BY run, msg
  ), moved AS (
    SELECT run, msg, sum(CASE kind WHEN 'send' THEN coalesce(copies, 1) ELSE -coalesce(copies, 1) END)::BIGINT AS copies
    FROM rows JOIN publishes USING (run, msg)
    WHERE kind IN ('send', 'drop') AND lane = 'payload' AND rows.t >= publishes.t GROUP BY run, msg
  )
  SELECT run, msg, topic, t, publisher, coalesce(expected, 0) AS expected, coalesce(in_time, 0) AS in_time,
    coalesce(receptions, 0) AS receptions, coalesce(strangers, 0) AS strangers, coalesce(deliveries, 0) AS deliveries,
    coalesce(copies, 0) AS copies, coalesce(early, 0) AS early, last, last_hop
  FROM publishes LEFT JOIN reached USING (run, msg) LEFT JOIN awaited USING (run, msg) LEFT JOIN moved USING (run, msg);
"""

LOAD = """
CREATE TEMP TABLE load AS
  WITH kinds AS (
    SELECT run, node, kind, lane = 'payload' AS on_payload, count(*) AS n, sum(coalesce(copies, 1)) AS copies,
      sum(coalesce(copies, 1) * coalesce(bytes, 0)) AS bytes
    FROM rows GROUP BY ALL
  )
  SELECT run, node,
    coalesce(sum(copies) FILTER (kind = 'send' AND on_payload), 0)::BIGINT AS payload,
    coalesce(sum(copies) FILTER (kind = 'send' AND on_payload IS NOT TRUE), 0)::BIGINT AS control,
    coalesce(sum(bytes) FILTER (kind = 'send'), 0)::BIGINT AS bytes,
    coalesce(sum(n) FILTER (kind = 'receive'), 0)::BIGINT AS receptions,
    coalesce(sum(n) FILTER (kind = 'duplicate'), 0)::BIGINT AS duplicates,
    coalesce(sum(n) FILTER (kind = 'deliver'), 0)::BIGINT AS deliveries,
    coalesce(sum(copies) FILTER (kind = 'drop'), 0)::BIGINT AS dropped
  FROM kinds GROUP BY run, node;
"""

OVER_MESSAGES = {
    "reliability": "in_time / nullif(expected, 0)",
    "rmr": "copies / nullif(receptions, 0) - 1",
    "payload_per_delivery": "copies / nullif(deliveries, 0)",
    "ldh_mean": "last_hop",
    "last_ms": "last / 1000",
}
HALF = "1.959964 * stddev_samp({value}) / sqrt(count({value}))"
MEAN = f"avg({{value}}) AS {{name}}, avg({{value}}) - {HALF} AS {{name}}_low, avg({{value}}) + {HALF} AS {{name}}_high"

MEANS = f"""
CREATE TEMP TABLE stretches AS
  SELECT run, min(t) AS first, ((max(t) - min(t)) // {60 * SECOND} + 1) * {SECOND} AS width FROM publishes GROUP BY run;
CREATE TEMP TABLE means AS
  WITH placed AS (SELECT *, first + (t - first) // width * width AS stretch FROM per_message JOIN stretches USING (run))
  SELECT run, CASE WHEN GROUPING(topic) = 0 THEN 'topic' WHEN GROUPING(stretch) = 0 THEN 'stretch' ELSE 'delivery' END AS what,
    coalesce(topic, stretch, 0) AS key, count(*) AS messages, sum(deliveries)::BIGINT AS deliveries,
    sum(copies)::BIGINT AS payload_messages, min({OVER_MESSAGES["reliability"]}) AS reliability_min, max(last_hop) AS ldh_max,
    sum(strangers) / nullif(sum(receptions), 0) AS false_positives,
    {", ".join(MEAN.format(name=name, value=f"({value})") for name, value in OVER_MESSAGES.items())}
  FROM placed GROUP BY GROUPING SETS ((run), (run, topic), (run, stretch));
"""

PLACED = "pairs JOIN stretches USING (run)"
LOADS = "(UNPIVOT load ON COLUMNS(* EXCLUDE (run, node)) INTO NAME sort VALUE amount)"
SUBSCRIPTIONS = """(
    SELECT joined.run, joined.t - called.t AS wait
    FROM (SELECT * FROM quiet WHERE kind = 'joined') joined ASOF JOIN (SELECT * FROM quiet WHERE kind = 'join') called
      ON called.run = joined.run AND called.node = joined.node AND called.name IS NOT DISTINCT FROM joined.name
      AND called.t <= joined.t
    QUALIFY row_number() OVER (PARTITION BY joined.run, joined.node, joined.name, called.t ORDER BY joined.t) = 1
  )"""


def _spread(what: str, key: str, value: str, source: str) -> str:
    taken = f"count({value}) AS count, avg({value}) AS mean, quantile_disc({value}, [0.5, 0.9, 0.99]) AS p, max({value}) AS max"
    return f"SELECT run, {what} AS what, {key} AS key, {taken} FROM {source} GROUP BY ALL"


SPREADS = f"""
CREATE TEMP TABLE spreads AS
  SELECT run, what, key::BIGINT AS key, count, mean, p[1] AS p50, p[2] AS p90, p[3] AS p99, max FROM (
    {_spread("'delivery'", "0", "delivered", "pairs WHERE delivered IS NOT NULL")}
    UNION ALL {_spread("'reception'", "0", "received", "pairs WHERE received IS NOT NULL AND member")}
    UNION ALL {_spread("'held back'", "0", "delivered - received", "pairs WHERE delivered >= received")}
    UNION ALL {_spread("'barrier'", "0", "coalesce(len(dependencies), 0)", "publishes")}
    UNION ALL {_spread("'subscription'", "0", "wait", SUBSCRIPTIONS)}
    UNION ALL {_spread("'waiting'", "0", "coalesce(copies, 1)::BIGINT", "quiet WHERE kind = 'queue'")}
    UNION ALL {_spread("'topic'", "topic", "delivered", "pairs WHERE delivered IS NOT NULL")}
    UNION ALL {_spread("'hop'", "hops", "delivered", "pairs WHERE delivered IS NOT NULL AND hops IS NOT NULL")}
    UNION ALL {_spread("'stretch'", "first + (t - first) // width * width", "delivered", f"{PLACED} WHERE delivered IS NOT NULL")}
    UNION ALL {_spread("sort", "0", "amount", LOADS)}
  );
"""


def _bins(what: str, value: str, source: str) -> str:
    """Forty at most, of a whole width, from zero to the largest value, which the spread has told."""
    widths = "(SELECT run, what, max // 40 + 1 AS width FROM spreads WHERE key = 0)"
    placed = f"SELECT run, what, width, {value} // width AS bin, count(*) AS count FROM {source} JOIN {widths} USING (run)"
    return f"{placed} WHERE what = {what} AND {value} >= 0 GROUP BY ALL"


BINS = f"""
CREATE TEMP TABLE bins AS
  SELECT run, what, bin * width AS low, (bin + 1) * width AS high, count FROM (
    {_bins("'delivery'", "delivered", "pairs")}
    UNION ALL {_bins("'reception'", "received", "(SELECT * FROM pairs WHERE member)")}
    UNION ALL {_bins("'held back'", "(delivered - received)", "pairs")}
    UNION ALL {_bins("sort", "amount", LOADS)}
  );
"""

DELIVERIES = "deliveries AS (SELECT run, msg, node, topic, t + delivered AS moment FROM pairs WHERE delivered IS NOT NULL)"

FIFO = f"""
CREATE TEMP TABLE fifo AS
  WITH {DELIVERIES},
  positions AS (
    SELECT run, msg, dense_rank() OVER (ORDER BY run, topic, source, epoch) AS stream, row_number() OVER in_order AS position,
      lag(t) OVER in_order AS published_before, lag(publisher) OVER in_order AS publisher_before,
      count(*) OVER (PARTITION BY run, topic, source, epoch) > 1 AS has_order
    FROM publishes WHERE sequence IS NOT NULL
    WINDOW in_order AS (PARTITION BY run, topic, source, epoch ORDER BY sequence, msg)
  ), seen AS (
    SELECT run, node, topic, moment, published_before, publisher_before,
      min(moment) OVER (upwards ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) < moment AS overtaken,
      coalesce(lag(position) OVER upwards = position - 1 AND lag(moment) OVER upwards <= moment, false) AS whole
    FROM deliveries JOIN positions USING (run, msg) WHERE has_order
    WINDOW upwards AS (PARTITION BY stream, node ORDER BY position)
  ), judged AS (
    SELECT seen.run, overtaken, whole, stays.node IS NOT NULL AND seen.node <> publisher_before AS checked
    FROM seen LEFT JOIN stays ON stays.run = seen.run AND stays.topic = seen.topic AND stays.node = seen.node
      AND since <= least(published_before, moment) AND until > greatest(published_before, moment)
  ), verdicts AS (
    SELECT run, count(*) FILTER (overtaken) AS fifo_violated, count(*) FILTER (checked) AS gapless_checked,
      count(*) FILTER (checked AND NOT whole) AS gapless_violated
    FROM judged GROUP BY run
  ), counts AS (SELECT run, count(*) AS fifo_checked FROM deliveries JOIN positions USING (run, msg) GROUP BY run)
  SELECT run, fifo_checked, coalesce(COLUMNS(verdicts.* EXCLUDE (run)), 0) FROM counts LEFT JOIN verdicts USING (run);
"""

CAUSAL = f"""
CREATE TEMP TABLE causal AS
  WITH {DELIVERIES},
  needs AS (
    SELECT run, wants.msg, needed, topic, publisher, t
    FROM (SELECT run, msg, unnest(list_distinct(dependencies)) AS needed FROM publishes) wants
    JOIN (SELECT run, msg AS needed, topic, publisher, t FROM publishes) USING (run, needed)
  ), due AS (
    SELECT deliveries.run, needed, deliveries.node, moment FROM deliveries JOIN needs USING (run, msg)
    JOIN stays ON stays.run = deliveries.run AND stays.topic = needs.topic AND stays.node = deliveries.node
      AND since <= least(needs.t, moment) AND until > greatest(needs.t, moment)
    WHERE deliveries.node <> publisher
  )
  SELECT due.run, count(*) AS causal_checked, count(*) FILTER (had.moment IS NULL OR had.moment > due.moment) AS causal_violated
  FROM due LEFT JOIN deliveries had ON had.run = due.run AND had.msg = needed AND had.node = due.node GROUP BY due.run;
"""

RECOVERY = f"""
CREATE TEMP TABLE recovery AS
  WITH struck AS (
    SELECT run, instant, lead(instant, 1, {NEVER}) OVER (PARTITION BY run ORDER BY instant) AS next
    FROM (SELECT DISTINCT * FROM faults)
  ),
  after AS (
    SELECT struck.run, instant, t, in_time / expected AS share,
      max(t) FILTER (in_time * 100 < expected * 99) OVER fault AS last_low
    FROM struck LEFT JOIN per_message ON per_message.run = struck.run AND t >= instant AND t < next AND expected > 0
    WINDOW fault AS (PARTITION BY struck.run, instant)
  )
  SELECT run, instant, count(t) AS messages, min(share) AS lowest,
    min(t) FILTER (last_low IS NULL OR t > last_low) - instant AS recovered
  FROM after GROUP BY run, instant;
"""

STEPS = {
    **{"quiet": QUIET, "publishes": PUBLISHES, "stays": STAYS, "pairs": PAIRS, "per_message": PER_MESSAGE, "load": LOAD},
    **{"means": MEANS, "spreads": SPREADS, "bins": BINS, "fifo": FIFO, "causal": CAUSAL, "recovery": RECOVERY},
}
"""What is computed, in this order."""

MEANS_SHOWN = "messages, deliveries, reliability, reliability_min, rmr, payload_per_delivery, false_positives, ldh_mean"
LOAD_NAMES = "('payload', 'control', 'bytes', 'receptions', 'duplicates', 'deliveries', 'dropped')"


def _in(unit: int) -> str:
    return ", ".join(f"{name} / {unit} AS {name}" for name in ("mean", "p50", "p90", "p99", "max"))


def _with_times(what: str) -> str:
    """Means over the messages of each key, beside the latency of its deliveries."""
    times = f"(SELECT run, what, key, {_in(1_000)} FROM spreads) times"
    return f"FROM means LEFT JOIN {times} USING (run, what, key) WHERE what = '{what}'"


TABLES = {
    "by_topic": f"""SELECT run, name AS topic, {MEANS_SHOWN}, mean, p50, p90, p99, max
        FROM (SELECT * {_with_times("topic")}) JOIN topics ON topic = key""",
    "over_time": f"SELECT run, key / {SECOND} AS from_s, {MEANS_SHOWN}, mean, p50, p90, p99, max {_with_times('stretch')}",
    "by_hop": f"SELECT run, key AS hops, count, {_in(1_000)} FROM spreads WHERE what = 'hop'",
    "latency_distribution": f"""SELECT run, what, low / 1000 AS low_ms, high / 1000 AS high_ms, count
        FROM bins WHERE what NOT IN {LOAD_NAMES}""",
    "load": f"SELECT run, what, count, {_in(1)} FROM spreads WHERE what IN {LOAD_NAMES}",
    "load_distribution": f"SELECT run, what, low, high, count AS nodes FROM bins WHERE what IN {LOAD_NAMES}",
    "queues": f"SELECT run, what, count, {_in(1)} FROM spreads WHERE what = 'waiting'",
    "barriers": f"""SELECT run, what, count, {_in(1)} FROM spreads WHERE what = 'barrier'
        UNION ALL SELECT run, 'held back, ms', count, {_in(1_000)} FROM spreads WHERE what = 'held back'""",
    "order": "SELECT run, coalesce(COLUMNS(* EXCLUDE (run)), 0) FROM fifo LEFT JOIN causal USING (run)",
    "subscription": f"SELECT run, 'subscription, ms' AS what, count, {_in(1_000)} FROM spreads WHERE what = 'subscription'",
    "recovery": f"SELECT run, instant / {SECOND} AS at_s, messages, lowest, recovered / {SECOND} AS recovered_s FROM recovery",
}


def _times(of: str, name: str) -> str:
    numbers = ", ".join(f"'{number}': {of}.{number} / 1000" for number in ("mean", "p50", "p90", "p99", "max"))
    return f"{{{numbers}}} AS {name}"


def _limits(name: str) -> str:
    return f"'{name}': CASE WHEN {name}_low IS NOT NULL THEN [{name}_low, {name}_high] END"


RUNS = f"""
SELECT run, coalesce(messages, 0) AS messages, coalesce(deliveries, 0) AS deliveries,
  coalesce(payload_messages, 0) AS payload_messages, coalesce(control, 0) AS control_messages, coalesce(bytes, 0) AS bytes,
  control / nullif(deliveries, 0) AS control_per_delivery, bytes / nullif(deliveries, 0) AS bytes_per_delivery,
  reliability_min, ldh_max, false_positives, {", ".join(OVER_MESSAGES)}, {{{", ".join(map(_limits, OVER_MESSAGES))}}} AS ci95,
  {_times("delivery", "latency_ms")}, {_times("reception", "reception_ms")}
FROM runs LEFT JOIN (FROM means WHERE what = 'delivery') USING (run)
LEFT JOIN (SELECT run, sum(control)::BIGINT AS control, sum(bytes)::BIGINT AS bytes FROM load GROUP BY run) USING (run)
LEFT JOIN (FROM spreads WHERE what = 'delivery') delivery USING (run)
LEFT JOIN (FROM spreads WHERE what = 'reception') reception USING (run)
ORDER BY run
"""


def connect(runs: Sequence[Run]) -> DuckDBPyConnection:
    """A database in memory that sees the files of these runs and works on all cores; nothing is computed yet."""
    try:
        import duckdb
    except ImportError as error:
        raise UsageError(INSTALL) from error
    spill = str(Path(tempfile.gettempdir()) / "weft-duckdb")
    cores = os.cpu_count() or 1
    connection = duckdb.connect(config={"threads": cores, "preserve_insertion_order": False, "temp_directory": spill})
    for name in ("rows", "messages"):
        connection.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(_files(run, name) for run in runs)}")
    for statement in _small("runs", "window", [(run.number, run.window) for run in runs]):
        connection.execute(statement)
    for statement in _small("faults", "instant", [(run.number, at) for run in runs for at in _faults(run)]):
        connection.execute(statement)
    return connection


def measure(connection: DuckDBPyConnection) -> Iterator[str]:
    """Goes through the steps, and tells the name of each when it is over."""
    import duckdb

    for step, sql in STEPS.items():
        try:
            connection.execute(sql)
        except duckdb.Error as error:
            raise WeftError(f"DuckDB failed at the step {step}: {str(error).partition(chr(10))[0]}") from error
        yield step


def answer(connection: DuckDBPyConnection) -> dict[str, Any]:
    """After all steps: `runs` and `tables` as `libweft.bench.spark.analysis` has them, the rows of a table in any order."""
    columns, rows = _fetched(connection, RUNS)
    tables = {name: dict(zip(("columns", "rows"), _fetched(connection, sql), strict=True)) for name, sql in TABLES.items()}
    return {"runs": [dict(zip(columns, row, strict=True)) for row in rows], "tables": tables}


def _files(run: Run, name: str) -> str:
    assert run.path is not None
    files = ", ".join(f"'{str(path.resolve()).replace(QUOTE, QUOTE * 2)}'" for path in sorted(run.path.glob(f"{name}-*.parquet")))
    nothing = "(SELECT NULL::BIGINT AS msg, NULL::BIGINT AS source, NULL::BIGINT AS epoch, NULL::BIGINT AS sequence LIMIT 0)"
    return f"SELECT {run.number} AS run, * FROM {f'read_parquet([{files}])' if files else nothing}"


def _small(name: str, column: str, rows: Sequence[tuple[int, int]]) -> Iterator[str]:
    yield f'CREATE TABLE {name} (run INTEGER, "{column}" BIGINT)'
    if rows:
        yield f"INSERT INTO {name} VALUES {', '.join(map(str, rows))}"


def _faults(run: Run) -> list[int]:
    return [round(float(fault.get("at", 0.0)) * SECOND) for fault in run.manifest.get("scenario", {}).get("faults", ())]


def _fetched(connection: DuckDBPyConnection, sql: str) -> tuple[list[str], list[list[Any]]]:
    found = connection.execute(sql)
    return [column[0] for column in found.description], [list(row) for row in found.fetchall()]
