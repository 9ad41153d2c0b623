"""The collector `dcgm`: reads a dcgm-exporter's page. Where NVML is asked too, the collector `nvml` takes its readings;
where NVML is off, this one gives the GPU metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.net.http_client import HttpError
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.gpu.dcgm.parser import NotDcgmError, Page, read
from tachoscope_node.gpu.dcgm.xids import OnXid
from tachoscope_node.gpu.inventory import Inventory
from tachoscope_node.gpu.metrics import METRICS, families
from tachoscope_node.gpu.reading import Reading
from tachoscope_service.common.http_get import get
from tachoscope_service.metrics.family import Family

INTERVAL_SECONDS = 15.0
"""Half of the interval at which a dcgm-exporter itself looks unless told otherwise."""
ANSWER_SECONDS = 0.9
MOST_BYTES = 4 << 20
"""A page of 8 GPUs with 7 instances each and all fields that are read has 0.9 MB."""
STALE_SECONDS = 2.5 * INTERVAL_SECONDS


class DcgmError(Exception):
    """The dcgm-exporter did not give a page that can be used."""


class DcgmCollector:
    """Readings of all GPUs that a dcgm-exporter reports.

    Args:
        url: of its page. alone: NVML is off, and this gives the GPU metrics.
        state: file that remembers the GPUs over a restart; None: nothing does.
        expected: GPUs that the node should have; 0: the most that were ever seen.
        on_xid: called when a GPU's last Xid error is another than before; those that stand at the first look are from before.
        log: gets a sentence when the file cannot be written. clock, unix_clock: monotonic and Unix seconds.
    """

    name: Final = "dcgm"
    interval_seconds: Final = INTERVAL_SECONDS

    def __init__(
        self,
        url: str,
        *,
        alone: bool = False,
        state: Path | None = None,
        expected: int = 0,
        on_xid: OnXid = lambda *_: None,
        log: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.metrics: tuple[Metric, ...] = METRICS if alone else ()
        self._url = url
        self._alone = alone
        self._known = Inventory(state, expected)
        self._on_xid = on_xid
        self._log = log
        self._clock = clock
        self._unix_clock = unix_clock
        self._last: tuple[float, tuple[Reading, ...]] = (float("-inf"), ())
        self._said: tuple[float, tuple[Reading, ...]] = (float("-inf"), ())
        """What the page last said, and since when: the exporter looks less often than its page is read."""
        self._xids: dict[str, frozenset[int]] = {}
        """The last codes by UUID, of every GPU that it has told of."""

    def readings(self) -> tuple[Reading, ...]:
        """Return the exporter's last readings; empty if it failed or they are too old. Thread-safe."""
        at, readings = self._last
        return readings if self._clock() - at <= STALE_SECONDS else ()

    def expected(self) -> int:
        """Return the expected number of GPUs. Thread-safe."""
        return self._known.expected

    def driver(self) -> str:
        """Return `works` while the exporter reports GPUs, else `absent`. Thread-safe."""
        return "works" if self.readings() else "absent"

    def close(self) -> None:
        """Nothing is open between two looks."""

    def collect(self) -> list[Family]:
        """Read the page. Returns within a second, whatever the exporter does.

        Raises:
            DcgmError: it gives no page, or one that is not a dcgm-exporter's. NoDataError: it reports no GPU.
        """
        now, self._last = self._clock(), (float("-inf"), ())
        try:
            page = read(get(self._url, seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES).decode(errors="replace"))
        except (HttpError, NotDcgmError) as error:
            raise DcgmError(f"{self._url}: {error}; is gpu.dcgm_url the page of a running dcgm-exporter?") from None
        if not page.readings:
            raise NoDataError(f"{self._url} reports no GPU")
        if self._xids and not self._xids.keys() & page.uuids:
            raise DcgmError(
                f"{self._url} reports other GPUs than before: name the exporter of this node, not a Service over all nodes"
            )
        self._note_xids(page)
        if page.readings != self._said[1]:
            self._said = now, page.readings
        readings = (*(replace(reading, at=self._said[0]) for reading in page.readings), *self._lost(page.readings))
        self._last = now, readings
        return families(readings, self.expected()) if self._alone else []

    def _note_xids(self, page: Page) -> None:
        now = self._unix_clock()
        for uuid in page.uuids:
            codes = page.xids.get(uuid, frozenset()) - {0}
            for code in sorted(codes - self._xids.get(uuid, codes)):
                self._on_xid(uuid, code, now, "dcgm")
            self._xids[uuid] = codes

    def _lost(self, readings: tuple[Reading, ...]) -> Iterator[Reading]:
        """Yield GPUs that the exporter no longer reports, as down."""
        whole = [reading.gpu for reading in readings if not reading.gpu.mig]
        try:
            self._known.add_seen(whole)
        except TachoscopeError as error:
            self._log(str(error))
        for gpu in self._known.missing(whole):
            yield Reading(gpu, up=False, fault="lost", detail="the dcgm-exporter no longer reports it", source="dcgm")
