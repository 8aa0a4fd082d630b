"""Calls of Python functions as Spark tasks, behind the interface of `concurrent.futures`: the pool of sweeps and reproductions.

    with SparkExecutor(spark) as pool:
        future = pool.submit(function, argument)

Each call is a Spark job of one task, and not a task of one large job: a job fails as a whole when the process of one of its
tasks dies, and answers only when the last is over. What that costs is some hundredths of a second a job. What a call
raises comes out of its future as a WeftError of one line; so does the death of its process.
When the block ends by an error, the calls under way are ended too, and none of them runs on after it.

It asks of below: that function, arguments and result can be pickled, and that the workers can import the function.
Bounds: as many jobs wait in Spark as there are threads here: `most`, else two a core embedded and `ON_CLUSTER` elsewhere, where
the number of cores may change at any time.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar
from uuid import uuid4

from libweft.bench.spark.session import cause
from libweft.peer.errors import WeftError, one_line

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession

ON_CLUSTER = 256
A_CORE = 2  # one runs, and one is planned meanwhile
AGAIN_S = 1.0  # a job that is only being planned cannot be ended yet

Pool: TypeAlias = Callable[[], AbstractContextManager[Executor]]
"""What opens an executor for simulations, when there is something to run; after its block none of them goes on."""

P = ParamSpec("P")
T = TypeVar("T")


class SparkExecutor(Executor):
    def __init__(self, spark: SparkSession, most: int | None = None) -> None:
        self._tag = f"weft-{uuid4().hex}"
        self._jobs = _ConnectJobs(spark, self._tag) if is_connect() else _Jobs(spark, self._tag)
        self._calls: set[Future[Any]] = set()
        self._threads = ThreadPoolExecutor(most or _threads(spark), "weft-spark-task", self._jobs.begin)

    def submit(self, call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        future = self._threads.submit(self._outcome, partial(call, *args, **named))
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=True, cancel_futures=kind is not None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """With `cancel_futures` those under way end as well."""
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            self._end_calls()
        self._threads.shutdown(wait)

    def _end_calls(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        while under_way := set(self._calls):
            with suppress(PySparkException, Py4JError, OSError):  # where Java is gone, they are over
                self._jobs.end()
            wait(under_way, AGAIN_S)

    def _outcome(self, call: Callable[[], T]) -> T:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            told = self._jobs.run(call)
        except (PySparkException, Py4JError) as error:
            raise WeftError(f"its Spark task was lost: {cause(str(error))}") from error
        fine, outcome = pickle.loads(told)
        if not fine:
            raise WeftError(outcome)
        result: T = outcome
        return result


class _Jobs:
    """Jobs on a SparkContext, of an RDD: to plan a DataFrame takes twice the CPU time, which small simulations would feel."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._context = spark.sparkContext
        self._tag = tag
        self._one = self._context.parallelize([0], 1)

    def begin(self) -> None:
        """In each thread that runs jobs."""
        self._context.addJobTag(self._tag)
        self._context.setInterruptOnCancel(True)

    def end(self) -> None:
        self._context.cancelJobsWithTag(self._tag)

    def run(self, call: Callable[[], Any]) -> bytes:
        (told,) = self._one.map(partial(_told, call)).collect()
        return bytes(told)


class _ConnectJobs:
    """Jobs through Spark Connect, which knows DataFrames alone."""

    def __init__(self, spark: SparkSession, tag: str) -> None:
        self._spark = spark
        self._tag = tag

    def begin(self) -> None:
        self._spark.addTag(self._tag)

    def end(self) -> None:
        self._spark.interruptTag(self._tag)

    def run(self, call: Callable[[], Any]) -> bytes:
        (row,) = self._spark.range(0, 1, 1, 1).mapInArrow(partial(_batches, call), "told binary").collect()
        return bytes(row.told)


def is_connect() -> bool:
    from pyspark.sql.utils import is_remote

    return bool(is_remote())


def is_embedded(spark: SparkSession) -> bool:
    return not is_connect() and (spark.sparkContext.master or "").startswith("local")


def _threads(spark: SparkSession) -> int:
    return A_CORE * spark.sparkContext.defaultParallelism if is_embedded(spark) else ON_CLUSTER


def _told(call: Callable[[], Any], _: object = None) -> bytes:
    """In a worker: whether the call went well, and its result or what the error says."""
    try:
        return pickle.dumps((True, call()))
    except Exception as error:  # noqa: BLE001 - any error is the result of this call, and costs no other
        return pickle.dumps((False, one_line(error)))


def _batches(call: Callable[[], Any], batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """One row in, one row out."""
    from pyarrow import RecordBatch

    for batch in batches:
        yield RecordBatch.from_pydict({"told": [_told(call) for _ in range(batch.num_rows)]})
