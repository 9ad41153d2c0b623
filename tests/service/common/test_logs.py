from __future__ import annotations

import logging

from tachoscope_service.common.log import Log


def test_no_line_of_the_log_shows_a_secret(logged: list[str]) -> None:
    log = Log(logging.getLogger("tachoscope"))
    log.info("store s3://key:hunter2@bucket/tachoscope")
    log.warning(None, "posting to https://user:hunter2@collector:4318")
    log.warning("subject", "Authorization: Bearer hunter2hunter2hunter2")
    assert len(logged) == 3
    assert "hunter2" not in "".join(logged)
    assert "s3://***@bucket/tachoscope" in logged[0]
