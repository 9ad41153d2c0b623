from __future__ import annotations

import logging

import pytest

from tachoscope_service.common.log import Log


def test_no_line_of_the_log_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    log = Log(logging.getLogger("tachoscope"))
    with caplog.at_level(logging.INFO, logger="tachoscope"):
        log.info("store s3://key:hunter2@bucket/tachoscope")
        log.warning(None, "posting to https://user:hunter2@collector:4318")
        log.warning("subject", "Authorization: Bearer hunter2hunter2hunter2")
    assert len(caplog.messages) == 3
    assert "hunter2" not in caplog.text
    assert "s3://***@bucket/tachoscope" in caplog.text
