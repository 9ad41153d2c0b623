"""A reading of a GPU at one moment, in one form for all sources; metrics, health and pods use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.family import Labels


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG instance of one.

    Attributes:
        index: the driver's number for the GPU when it was first seen. uuid: of the instance, where it is one.
        mig: id of the GPU instance, empty for a whole GPU. parent_uuid: of the whole GPU, for an instance.
    """

    index: int
    uuid: str
    mig: str = ""
    parent_uuid: str = ""
    model: str = ""
    pci_bus_id: str = ""
    driver_version: str = ""
    mig_profile: str = ""

    @property
    def labels(self) -> Labels:
        """Values of the labels that all its series begin with."""
        return (str(self.index), self.uuid, self.mig)


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU. memory_bytes: None where the driver does not tell, as in containers."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU at one moment.

    Attributes:
        up: whether it answered. fault: why not, one of `FAULTS`; detail: the driver's words.
        values: by name of the metric and by the labels that come after those of the GPU; what a GPU cannot tell is absent.
        processes: None where the driver does not tell. seconds: how long its calls took.
        source: nvml or dcgm. at: when it was said, in monotonic seconds; a page of dcgm-exporter, when it first said so.
        parts: the readings that this one joins, the one whose word goes first.
    """

    gpu: Gpu
    up: bool = True
    fault: str = ""
    detail: str = ""
    values: Mapping[str, Mapping[Labels, float]] = field(default_factory=dict)
    processes: tuple[GpuProcess, ...] | None = None
    seconds: float = 0.0
    source: str = "nvml"
    at: float = 0.0
    parts: tuple[Reading, ...] = ()

    def value(self, metric: Metric, *labels: str) -> float | None:
        """Return a value, None for what the GPU did not tell."""
        return self.values.get(metric.name, {}).get(labels)

    def measured_at(self, metric: Metric, *labels: str) -> float:
        """Return when a gauge's value was said, in monotonic seconds: one from another source may be older than the reading."""
        return next((part.at for part in self.parts if part.value(metric, *labels) is not None), self.at)


DRIVERS = ("works", "starting", "absent", "error")
"""State of a GPU source. absent: no driver is installed. error: the driver failed to start."""
FAULTS = ("lost", "no_answer", "driver_error")
"""lost: the driver says that the GPU has fallen off the bus, or no longer lists it. no_answer: a call hangs."""
