"""What a GPU said within the last window, as far as its health needs it: how long a state lasted, how much a counter grew.

Pure: `observe` takes what is known and a new reading, and returns what is known then. Of a GPU that is well it keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tachoscope_core.metrics.gpu import GPU_NVLINK_ERRORS, GPU_PCIE_REPLAYS, GPU_THROTTLED
from tachoscope_node.gpu.reading import Reading

_MAX_STEP_SECONDS = 20.0
"""A gap in the readings that is longer says nothing of the time between."""
_COUNTERS = {
    "pcie_replays": ((GPU_PCIE_REPLAYS, ()),),
    "nvlink_errors": ((GPU_NVLINK_ERRORS, ("replay",)), (GPU_NVLINK_ERRORS, ("recovery",))),
    "nvlink_crc": ((GPU_NVLINK_ERRORS, ("crc_flit",)), (GPU_NVLINK_ERRORS, ("crc_data",))),
}
_EXACT = frozenset({"hardware_thermal", "power_brake"})
"""Why the hardware slows down, where it says so."""
_THROTTLES = frozenset({*_EXACT, "hardware_slowdown", "thermal"})


class _Amount(NamedTuple):
    """Seconds of a state, or growth of a counter, at a time."""

    at: float
    what: str
    amount: float


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """The last window of one GPU.

    Attributes:
        amounts: oldest first. counters: as they were read last. grown: those that were read twice.
        watched_seconds: how long it has answered, ever.
        silent_seconds: how long it has not answered. stale_seconds: how long nobody has read it again.
    """

    at: float | None = None
    amounts: tuple[_Amount, ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    grown: frozenset[str] = frozenset()
    watched_seconds: float = 0.0
    silent_seconds: float = 0.0
    stale_seconds: float = 0.0
    reading: Reading | None = None

    def seconds(self, state: str) -> float:
        """Return how many seconds of the window a state lasted."""
        return sum(amount.amount for amount in self.amounts if amount.what == state)

    def growth(self, counter: str) -> float | None:
        """Return the growth of a counter within the window; None before it was read twice."""
        return self.seconds(counter) if counter in self.grown else None


def observe(past: GpuHistory, reading: Reading, at: float, held: frozenset[str], window_seconds: float) -> GpuHistory:
    """Return the past with one more reading, without what is older than the window.

    Args:
        at: monotonic seconds. held: states that hold now beside those of throttling.
    """
    seconds = max(min(at - past.at, _MAX_STEP_SECONDS), 0.0) if past.at is not None else 0.0
    counters = _counters(reading)
    # A counter that fell was reset: what it has counted since is all that is known.
    growth = {
        name: value - past.counters[name] if value >= past.counters[name] else value
        for name, value in counters.items()
        if name in past.counters
    }
    added = [_Amount(at, state, seconds) for state in held | _throttles(reading)]
    added += [_Amount(at, name, amount) for name, amount in growth.items() if amount]
    return GpuHistory(
        at,
        (*(old for old in past.amounts if at - old.at < window_seconds), *added),
        {**past.counters, **counters},
        past.grown | growth.keys(),
        past.watched_seconds + seconds * reading.up,
        past.silent_seconds + seconds if not reading.up else 0.0,
        past.stale_seconds + seconds if reading is past.reading else 0.0,
        reading,
    )


def _throttles(reading: Reading) -> frozenset[str]:
    """Return the throttle reasons that matter; `hardware_slowdown` only without a more precise one."""
    told = reading.values.get(GPU_THROTTLED.name, {})
    found = frozenset(reason for reason in _THROTTLES if told.get((reason,)))
    return found - {"hardware_slowdown"} if found & _EXACT else found


def _counters(reading: Reading) -> dict[str, float]:
    found = {}
    for name, parts in _COUNTERS.items():
        values = [value for metric, labels in parts if (value := reading.value(metric, *labels)) is not None]
        if values:
            found[name] = sum(values)
    return found
