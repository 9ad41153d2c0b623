"""An Xid error counts once, also where a dcgm-exporter reports it a minute after others did."""

from __future__ import annotations

import logging
from pathlib import Path

from gpu.fake_dcgm_exporter import uuid
from tachoscope_node.gpu.dcgm.xids import LATE_SECONDS, not_counted_yet
from tachoscope_node.gpu.xid.counter import Boot, XidCounter
from tachoscope_service.common.log import Log


def test_an_error_that_nvml_or_the_kernel_told_of_first_is_not_counted_again(tmp_path: Path) -> None:
    counter = XidCounter(tmp_path, Boot("b", 0.0), Log(logging.getLogger("test")))
    seen = not_counted_yet(counter)

    counter.count_error(uuid(0), 79, 1000.0, "nvml")
    seen(uuid(0), 79, 1000.0 + LATE_SECONDS, "dcgm")
    seen(uuid(1), 79, 1000.0, "dcgm")
    seen(uuid(0), 79, 1001.0 + LATE_SECONDS, "dcgm")

    assert {(each.uuid, each.xid.code, each.count) for each in counter.all()} == {(uuid(0), 79, 2), (uuid(1), 79, 1)}
