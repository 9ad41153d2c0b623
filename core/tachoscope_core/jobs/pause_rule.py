"""Which part of the time outside of all phases the training thread paused, by the samples of what it was seen doing there.

The clock of a phase alone does not tell what a thread did between the optimizer and the next batch: it may compute a metric, or
sleep. Heartbeats say in how many samples it was seen waiting for time, disk, file or pipe (`Heartbeat.activity`).
"""

from __future__ import annotations

from collections.abc import Mapping

PAUSING_KINDS = ("sleep", "disk", "file", "pipe")
LEAST_SAMPLES = 5
"""Design choice; with fewer samples the time stays unexplained."""
OUTSIDE = "other"


def outside_samples(activity: Mapping[str, Mapping[str, int]]) -> tuple[int, int]:
    """Return how many samples of a heartbeat belong to no phase, wherever the clock was: in which the thread paused, and all."""
    pausing, everything = 0, 0
    for counts in activity.values():
        for key, count in counts.items():
            belongs_to, _, kind = key.partition(" ")
            if belongs_to == OUTSIDE and count > 0:
                everything += count
                pausing += count if kind in PAUSING_KINDS else 0
    return pausing, everything


def paused_ratio(pausing: int, everything: int) -> float:
    """Return the part of the time outside of all phases that the thread paused, 0 to 1, by its samples so far."""
    return pausing / everything if pausing >= LEAST_SAMPLES else 0.0
