"""One Spark session for all tests of the measures: starting one takes longer than most of them.

It ends with them, since a process has one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from bench.spark.session import spark_session


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with spark_session("local[2]", memory="1g", short=True) as session:
        yield session
