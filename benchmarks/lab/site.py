"""Where a fault happens: one rank of one run, what was found out about it before, and the clock that the truth is measured with.

Nothing here uses the probe: the truth comes from clocks of the lab's own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.lab.spec import Planned, Spec

clock = time.monotonic


@dataclass(slots=True)
class Measured:
    """What a rank measures of itself, by step: seconds of the step, of waiting for a batch, of CPU, and injected by class.

    `clean_step_seconds` and `clean_wait_seconds` are medians of steps before the job is watched and before any fault.
    """

    steps: int
    step: int = 0
    clean_step_seconds: float = 0.0
    clean_wait_seconds: float = 0.0
    clean_cpu_seconds: float = 0.0
    clean_delay_seconds: float = 0.0
    wall: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    injected: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, slug: str, seconds: float) -> None:
        """Count seconds as injected in the present step."""
        row = self.injected.setdefault(slug, [0.0] * self.steps)
        if self.step < self.steps:
            row[self.step] += seconds

    @contextmanager
    def time(self, slug: str) -> Iterator[None]:
        """Count the block's seconds as injected."""
        begin = clock()
        try:
            yield
        finally:
            self.add(slug, clock() - begin)

    def write(self, path: Path) -> None:
        """Leave all of it for the lab."""
        names = [name for name in Measured.__slots__ if name != "step"]
        path.write_text(json.dumps({name: getattr(self, name) for name in names}))


@dataclass(frozen=True, slots=True)
class Site:
    """One rank of one run.

    Attributes:
        folder: the run's folder for data, checkpoints and measurements. attempt: restarts of the job before this one.
        dice: random numbers of this rank; those that all ranks share come from the spec's seed.
        progress: finished steps by rank, in memory that the lab shares. namespaces: of the run's network, see `network`.
        tell: writes a line into the run's log.
    """

    spec: Spec
    rank: int
    folder: Path
    job: str
    attempt: int
    dice: Random
    measured: Measured
    progress: Any
    namespaces: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of the clean step."""
        return self.measured.clean_step_seconds

    def target_seconds(self, planned: Planned) -> float:
        """Return what a fault is to cost in each step in which it is there, so that it costs its ratio over all of them."""
        steps = self.spec.steps
        return planned.seconds_ratio * self.seconds * steps / (steps - planned.first_step)

    def is_culprit(self, planned: Planned) -> bool:
        """Return whether the fault is this rank's."""
        return planned.rank in {-1, self.rank}


Load = Callable[[int], None]
"""Called with the number of the batch for each sample that is loaded, in the process that loads it."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Where a fault enters the training; each is called with the step, from 0.

    Attributes:
        load: for each sample. forward: between the loss and its backward, once a step. backward: between the last backward and the
            optimizer. updated: after the optimizer, with the live training.
        before: before the first watched step. after: when training is over, or failed.
        length: how many times the usual length the samples of a batch are. ballast_bytes: gradients beside the model's.
        timed_exchange: whether the moments of the gradient exchange are to be noted.
    """

    load: Load | None = None
    forward: Callable[[int], None] | None = None
    backward: Callable[[int], None] | None = None
    updated: Callable[[int, Any], None] | None = None
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    length: Callable[[int], float] | None = None
    ballast_bytes: int = 0
    timed_exchange: bool = False


def run_delay_seconds() -> float:
    """Return how long the calling thread was ready to run without a core so far, by the kernel's count; 0 where it keeps none."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def repeats_for(unit: Callable[[], object], seconds: float) -> int:
    """Return how often to call `unit` for it to take so long, at least once."""
    for _ in range(3):
        unit()
    times = []
    for _ in range(5):
        begin = clock()
        for _ in range(5):
            unit()
        times.append((clock() - begin) / 5)
    return max(1, round(seconds / sorted(times)[2]))
