"""The collector `nvml` where a dcgm-exporter is read too: both readings as one, and the exporter's alone where there is no NVML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import Collector, NoDataError, NotSupportedError, PartialError
from tachoscope_node.gpu.dcgm.merge import Series, merged
from tachoscope_node.gpu.metrics import METRICS, families
from tachoscope_node.gpu.reading import Reading
from tachoscope_service.metrics.family import Family


class Gpus(Protocol):
    """Who reads GPUs."""

    def readings(self) -> tuple[Reading, ...]: ...

    def expected(self) -> int: ...

    def driver(self) -> str: ...


class GpuSource(Gpus, Collector, Protocol):
    """A collector that reads GPUs."""

    def close(self) -> None: ...


class JoinedCollector:
    """Stands for the collector `nvml`, which it runs.

    Args:
        dcgm: a collector of its own, to be run before this one. required: without NVML this fails, whatever the exporter says.
        log: gets a sentence when NVML stops to work, and the exporter reports the GPUs alone.
    """

    name = "nvml"
    metrics: tuple[Metric, ...] = METRICS

    def __init__(
        self, nvml: GpuSource, dcgm: GpuSource, *, required: bool = False, log: Callable[[str], None] = lambda _: None
    ) -> None:
        self.interval_seconds = nvml.interval_seconds
        self.dcgm = dcgm
        self._nvml = nvml
        self._required = required
        self._log = log
        self._trouble = ""
        self._foreign = False
        self._counted: set[Series] = set()
        self._readings: tuple[Reading, ...] = ()
        self._failure: NoDataError | PartialError | None = None

    def readings(self) -> tuple[Reading, ...]:
        """Return the last readings of all GPUs, also of those that are down. Thread-safe."""
        return self._readings

    def expected(self) -> int:
        """Return the expected number of GPUs. Thread-safe."""
        return self._nvml.expected() if self._foreign else max(self._nvml.expected(), self.dcgm.expected())

    def driver(self) -> str:
        """Return the state of NVML, one of DRIVERS; `works` if the exporter reports GPUs. Thread-safe."""
        return "works" if self.dcgm.readings() and not self._foreign else self._nvml.driver()

    def collect(self) -> list[Family]:
        """Ask all GPUs, and return what they and the exporter say.

        Raises:
            What the collector of NVML raises, where the exporter says nothing either.
        """
        others = self.dcgm.readings()
        own, trouble = self._own(others)
        self._foreign = _foreign(own, others)
        if self._foreign:
            others, trouble = (), "the dcgm-exporter reports none of this node's GPUs: name the exporter of this node"
        if trouble and trouble != self._trouble:
            self._log(trouble)
        self._trouble = trouble
        self._readings = merged(own, others, self._counted)
        found = families(self._readings, self.expected())
        if self._failure is not None and (self._required or not others):
            raise type(self._failure)(str(self._failure), found)
        return found

    def close(self) -> None:
        """Let go of the driver."""
        self._nvml.close()

    def _own(self, others: tuple[Reading, ...]) -> tuple[tuple[Reading, ...], str]:
        """Return NVML's readings, or none if only the exporter works, and a message about it."""
        self._failure = None
        try:
            self._nvml.collect()
        except NotSupportedError as error:
            if others and not self._required:
                return (), ""
            self._readings = ()
            raise NoDataError(f"{error}; and no dcgm-exporter reports a GPU") from error  # asked again soon: one may begin to
        except Exception as error:
            if others and not self._required and not (isinstance(error, PartialError) and self._nvml.readings()):
                quiet = isinstance(error, NoDataError) or isinstance(error.__cause__, NotSupportedError)
                return (), "" if quiet else _nvml_only_reason(str(error))
            if not isinstance(error, NoDataError | PartialError) or not error.families or (others and not self._nvml.readings()):
                self._readings = ()
                raise
            self._failure = error
        own = self._nvml.readings()
        if not others or any(reading.up or reading.fault != "driver_error" for reading in own):
            return own, ""
        told = {reading.gpu.uuid for reading in others}
        return tuple(reading for reading in own if reading.gpu.uuid not in told), _nvml_only_reason(own[0].detail) if own else ""


def _nvml_only_reason(trouble: str) -> str:
    return f"the NVIDIA driver: {trouble}; the dcgm-exporter alone reports the GPUs"


def _foreign(own: tuple[Reading, ...], others: tuple[Reading, ...]) -> bool:
    """Return whether the exporter is another node's, such as behind a Service: no GPU is the same."""
    here = {reading.gpu.uuid for reading in own}
    return any(reading.up for reading in own) and bool(others) and not any(reading.gpu.uuid in here for reading in others)


def sources(gpus: GpuSource) -> list[Collector]:
    """Return the collectors to run for a source, in this order."""
    return [gpus.dcgm, gpus] if isinstance(gpus, JoinedCollector) else [gpus]
