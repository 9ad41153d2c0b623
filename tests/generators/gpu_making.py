"""Makes GPU jobs for tests: step records and, in the agent's own format, samples of GPUs that did what was planted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from making import envelope
from tachoscope_core.metrics.gpu import (
    GPU_ACTIVE,
    GPU_CLOCK,
    GPU_MEMORY_BYTES,
    GPU_PCIE_BYTES,
    GPU_PCIE_LINK,
    GPU_POWER,
    GPU_TEMPERATURE,
    GPU_THROTTLED,
    GPU_THROTTLED_SECONDS,
    GPU_UTILIZATION,
    GPU_WORKLOAD,
)
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store
from tachoscope_node.spool.metric_samples import lines
from tachoscope_service.metrics.family import Family

BEGIN = 1.7e9
MAX_CLOCK = 1980e6
HOST = "node-1"


def uuid(rank: int) -> str:
    return f"0000000{rank}-1111-4222-8333-444444444444"


@dataclass(frozen=True)
class Held:
    """Clocks held down from `start` to `end`, in seconds after the begin of the job, to a ratio of the maximum."""

    start: float
    end: float
    ratio: float
    reason: str = "hardware_thermal"

    def seconds(self, start: float, end: float) -> float:
        return max(0.0, min(end, self.end) - max(start, self.start))


@dataclass(frozen=True)
class FakeGpu:
    """A GPU whose state at each moment, in seconds after the begin of the job, is known. Gauges not named here are not told.

    Attributes:
        rank: whose GPU it is; none if None. jobs: that use it. counters: whether the driver counts throttled time.
        gauges: more of them, by metric and label values, as functions of the moment.
    """

    rank: int
    held: Sequence[Held] = ()
    jobs: Sequence[str] = ("planted",)
    counters: bool = True
    flags: bool = True
    mig: str = ""
    gauges: dict[tuple[Metric, *tuple[str, ...]], Callable[[float], float]] = field(default_factory=dict)

    def clock(self, at: float) -> float:
        return min((one.ratio for one in self.held if one.start <= at < one.end), default=1.0)

    def points(self, at: float) -> Iterable[tuple[Metric, tuple[str, ...], float]]:
        told: dict[tuple[Metric, *tuple[str, ...]], float] = {
            (GPU_CLOCK, "sm", "current"): self.clock(at) * MAX_CLOCK,
            (GPU_CLOCK, "sm", "max"): MAX_CLOCK,
            (GPU_UTILIZATION,): 1.0,
            (GPU_POWER, "usage"): 500.0,
            (GPU_POWER, "limit"): 700.0,
            (GPU_TEMPERATURE, "gpu"): 90.0 if self.clock(at) < 1 else 60.0,
        }
        for reason in ("power_cap", "hardware_thermal", "power_brake"):
            mine = [one for one in self.held if one.reason == reason]
            if self.flags:
                told[GPU_THROTTLED, reason] = float(any(one.start <= at < one.end for one in mine))
            if self.counters:  # since the driver was loaded, 1000 seconds of it before the job
                told[GPU_THROTTLED_SECONDS, reason] = 1000.0 + sum(one.seconds(0.0, at) for one in mine)
        told |= {key: value(at) for key, value in self.gauges.items()}
        for (metric, *labels), value in told.items():
            yield metric, (str(self.rank), f"GPU-{uuid(self.rank)}", self.mig, *labels), value
        for job in self.jobs:
            yield GPU_WORKLOAD, (str(self.rank), f"GPU-{uuid(self.rank)}", self.mig, "", "", "", job, str(self.rank)), 1.0


def use(**units: float) -> dict[tuple[Metric, *tuple[str, ...]], Callable[[float], float]]:
    """Return gauges of GPM: `sm=0.9, tensor=0.5`."""
    return {(GPU_ACTIVE, unit): lambda at, value=value: value for unit, value in units.items()}  # type: ignore[misc]


def memory(used: Callable[[float], float], gigabytes_per_second: Callable[[float], float] = lambda at: 0.0) -> dict:
    """Return gauges of a device of 80 GB on a PCIe link of generation 4: the ratio that is used, and what it receives."""
    return {
        (GPU_MEMORY_BYTES, "total"): lambda at: 80e9,
        (GPU_MEMORY_BYTES, "used"): lambda at: 80e9 * used(at),
        (GPU_PCIE_BYTES, "receive"): lambda at: gigabytes_per_second(at) * 1e9 * at,
        (GPU_PCIE_BYTES, "transmit"): lambda at: 0.0,
        (GPU_PCIE_LINK, "generation", "current"): lambda at: 4.0,
        (GPU_PCIE_LINK, "width", "current"): lambda at: 16.0,
    }


def sample_lines(gpus: Sequence[FakeGpu], at: float) -> bytes:
    """Return what an agent writes at a moment."""
    families: dict[Metric, list] = {}
    for gpu in gpus:
        for metric, labels, value in gpu.points(at):
            families.setdefault(metric, []).append((labels, value))
    return lines([Family(metric, points) for metric, points in families.items()], BEGIN + at)


def write_samples(
    store: Store, gpus: Sequence[FakeGpu], seconds: float, *, every: float = 15.0, host: str = HOST, skip: Held | None = None
) -> None:
    """Sample GPUs from 30 s before the job to 30 s after it, in objects of a minute. skip: when the agent was away."""
    moments = [-30.0 + every * number for number in range(int((seconds + 60) / every) + 1)]
    moments = [at for at in moments if skip is None or not skip.start <= at < skip.end]
    starts = [at for at in moments if at == moments[0] or int(at // 60) != int((at - every) // 60)]
    for number, (start, end) in enumerate(pairwise([*starts, float("inf")])):
        content = b"".join(sample_lines(gpus, at) for at in moments if start <= at < end)
        store.write_samples(host=host, name=f"{int(BEGIN + start)}-{number}", time=BEGIN + start, lines=content)


OWN = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
"""Device seconds of a step at full clocks."""


def gpu_job(
    gpus: Sequence[FakeGpu],
    seconds: float,
    *,
    own: dict[str, float] = OWN,
    gap: float = 0.0,
    extra: dict[int, float] | None = None,
    by_clock: float = 1.0,
) -> bytes:
    """Return the records of a data-parallel job on GPUs that are as slow as their clocks: all ranks end backward together.

    gap: seconds of each step in which the device has nothing to do. extra: by rank, seconds of forward more than the others.
    by_clock: part of the work that takes longer at a lower clock; the rest waits for memory.
    """
    rows: list[records.Record] = [
        records.JobStarted(**envelope(gpu.rank, host=HOST), world_size=len(gpus), pid=1, device="cuda", gpu_uuid=uuid(gpu.rank))
        for gpu in gpus
    ]
    now, number = 0.0, 0
    while now < seconds:
        number += 1
        slower = [by_clock / gpu.clock(now + 1e-6) + 1.0 - by_clock for gpu in gpus]
        mine = [{name: value * times for name, value in own.items()} for times in slower]
        for gpu, one in zip(gpus, mine, strict=True):
            one["forward"] += (extra or {}).get(gpu.rank, 0.0)
        latest = max(one["forward"] + one["backward"] for one in mine)
        wall = gap + latest + max(one["optimizer"] for one in mine)
        for gpu, one in zip(gpus, mine, strict=True):
            waits = wall - gap - sum(one.values())
            device = one | {"gap": gap, "backward": one["backward"] + waits}
            rows.append(
                records.StepDone(
                    **envelope(gpu.rank, number, host=HOST, monotonic_ns=round((now + wall) * 1e9), time=BEGIN + now + wall),
                    step=number,
                    wall_seconds=wall,
                    phase_seconds={"data_wait": gap, "forward": wall - gap},
                    device_seconds=device,
                )
            )
        now += wall
    return b"".join(map(records.encode, rows))


def write_job(store: Store, content: bytes) -> None:
    """Put the records into a store as the agent of the host does."""
    by_writer: dict[str, list[bytes]] = {}
    for line in content.splitlines(keepends=True):
        by_writer.setdefault(records.decode(line).writer, []).append(line)
    for writer, rows in by_writer.items():
        store.write("planted", host=HOST, writer=writer, attempt=0, offset=0, time=BEGIN, lines=b"".join(rows))
