"""Calls of Python functions as Spark tasks, behind the interface of `concurrent.futures`.

    with SparkExecutor(spark) as pool:
        future = pool.submit(function, argument)

Each call is a Spark job of one task, and not a task of one large job: a job fails as a whole when the process of one of its
tasks dies, and answers only when the last is over. What that costs is the planning of a job, some hundredths of a
second. What a call raises comes out of its future as a WeftError of one line; so does the death of its process.

It asks of below: that function, arguments and result can be pickled, and that the workers can import the function.
Bounds: as many jobs wait in Spark as there are threads here, two a core embedded and `ON_CLUSTER` elsewhere, where the number
of cores may change at any time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from bench.spark.session import cause
from peer.errors import WeftError, one_line

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

ON_CLUSTER = 256
A_CORE = 2  # one runs, and one is planned meanwhile

P = ParamSpec("P")
T = TypeVar("T")


class SparkExecutor(Executor):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._threads = ThreadPoolExecutor(_threads(spark), "weft-spark-task")

    def submit(self, call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        return self._threads.submit(self._job, partial(call, *args, **named))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error nobody waits for the calls under way; the end of the session ends them."""
        self.shutdown(wait=kind is None, cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)

    def _job(self, call: Callable[[], T]) -> T:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            (row,) = self._spark.range(0, 1, 1, 1).mapInArrow(partial(_task, call), "outcome binary").collect()
        except (PySparkException, Py4JError) as error:
            raise WeftError(f"its Spark task was lost: {cause(str(error))}") from error
        fine, outcome = pickle.loads(row.outcome)
        if not fine:
            raise WeftError(outcome)
        result: T = outcome
        return result


def _threads(spark: SparkSession) -> int:
    from pyspark.sql.utils import is_remote

    if is_remote() or not (spark.sparkContext.master or "").startswith("local"):
        return ON_CLUSTER
    return A_CORE * spark.sparkContext.defaultParallelism


def _task(call: Callable[[], Any], batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """Runs in a worker: one row in, one row out."""
    from pyarrow import RecordBatch

    for batch in batches:
        outcomes = [pickle.dumps(_outcome(call)) for _ in range(batch.num_rows)]
        yield RecordBatch.from_pydict({"outcome": outcomes})


def _outcome(call: Callable[[], Any]) -> tuple[bool, Any]:
    try:
        return True, call()
    except Exception as error:  # whatever it is, it is this call's alone
        return False, one_line(error)
