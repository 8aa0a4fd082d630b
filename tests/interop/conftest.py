"""weft's own log beside those of the other side, when a test of interoperation fails."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def weft_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "libweft")
