"""What a node itself knows at a hang: what its network moved, what its kernel said, what NCCL's RAS answers."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable

from tachoscope_core.redaction import redact
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError, PartialError
from tachoscope_node.collectors.infiniband import InfinibandCollector
from tachoscope_node.collectors.kernel_log import KernelLog
from tachoscope_node.collectors.network import NetworkCollector
from tachoscope_node.nccl.ras_client import MOST_BYTES as MOST_RAS_BYTES
from tachoscope_node.nccl.ras_client import NobodyError, Question, RasError, UnsafeError
from tachoscope_node.nccl.ras_report import is_safe, read
from tachoscope_service.metrics.family import Family

LOOK_BACK_SECONDS = 900.0
_MOST_LINES = 100
_RAS_PAUSE_SECONDS = 0.05
_TOLD = re.compile(
    r"NVRM|Xid|blocked for more than|not responding|I/O error|soft lockup|link (?:is )?down|mlx5",
    re.IGNORECASE,
)
"""Lines of the kernel's log that may tell why a process stands still: of devices and file systems, not of others' processes."""


def network_moved(proc: str, sys: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return by how much each counter of the node's network moved in so many seconds, by metric and its labels.

    Raises:
        OSError, ValueError: the counters cannot be read.
    """
    collectors: tuple[NetworkCollector | InfinibandCollector, ...] = (NetworkCollector(proc), InfinibandCollector(sys))
    before = [_counters(collector) for collector in collectors]
    time.sleep(seconds)
    moved: dict[str, dict[str, float]] = {}
    for collector, old in zip(collectors, before, strict=True):
        for (device, name), value in _counters(collector).items():
            moved.setdefault(device, {})[name] = value - old.get((device, name), value)
    return moved


def _counters(collector: NetworkCollector | InfinibandCollector) -> dict[tuple[str, str], float]:
    try:
        families: Iterable[Family] = collector.collect()
    except PartialError as error:
        families = error.families
    except (NoDataError, NotSupportedError):
        return {}
    return {
        (str(labels[0]) if labels else "all", " ".join([family.metric.name, *map(str, labels[1:])])): float(value)
        for family in families
        if family.metric.name.endswith("_total")
        for labels, value in family.points
        if isinstance(value, int | float)
    }


def kernel_lines(path: str = "/dev/kmsg") -> list[str]:
    """Return what the kernel said lately of GPUs, file systems, links and tasks that stand still, the newest last.

    Raises:
        NotSupportedError: the log may not be read. OSError: it cannot be.
    """
    log = KernelLog(path)
    since = (time.clock_gettime(time.CLOCK_BOOTTIME) - LOOK_BACK_SECONDS) * 1e6
    found: deque[str] = deque(maxlen=_MOST_LINES)
    try:
        while not log.drained:
            for record in log.records():
                if record.microseconds >= since and _TOLD.search(record.text):
                    found.append(redact(f"{record.microseconds / 1e6:.3f} {record.text}")[:400])
    finally:
        log.close()
    return list(found)


def ras_answer(address: tuple[str, int]) -> str:
    """Return what NCCL's RAS says of all communicators of the node's job, as JSON.

    Raises:
        RasError: nobody listens, it does not answer in time, or its version is not safe to ask.
    """
    try:
        question = Question(address, time.monotonic())
    except NobodyError:
        raise RasError(f"nothing listens at {address[0]}:{address[1]}: no job with NCCL, or NCCL_RAS_ENABLE=0") from None
    try:
        while (answer := question.advance(time.monotonic())) is None:
            time.sleep(_RAS_PAUSE_SECONDS)
    except (NobodyError, UnsafeError) as error:
        raise RasError(str(error) or f"nothing listens at {address[0]}:{address[1]}") from None
    finally:
        question.close()
    try:
        version = read(answer).nccl_version
    except ValueError as error:
        raise RasError(f"invalid answer: {error}") from None
    if not is_safe(version):
        raise RasError(f"NCCL {version[:32]} is not safe to query")
    return redact(answer[:MOST_RAS_BYTES].decode(errors="replace"))
