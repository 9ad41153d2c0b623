"""Writes what the sampler saw since the last heartbeat, with what the training itself counts."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tachoscope.compilation.compilations import Compilations
from tachoscope.sampling.other_threads import OtherThreads
from tachoscope.sampling.sampler import Counts
from tachoscope.spool.outbox import Outbox
from tachoscope.training.collectives import Collectives
from tachoscope.training.loaders import LoaderWatch, private_bytes, worker_pids
from tachoscope.training.step_machine import StepMachine
from tachoscope_core.records import records


class Heartbeats:
    """Writes the heartbeats and the sums of collectives of one process; called on the sampler's thread, and at the end."""

    def __init__(
        self,
        outbox: Outbox,
        machine: StepMachine,
        collectives: Collectives,
        compilations: Compilations,
        other_threads: OtherThreads,
        loaders: LoaderWatch,
    ) -> None:
        self._outbox = outbox
        self._machine = machine
        self._collectives = collectives
        self._compilations = compilations
        self._other_threads = other_threads
        self._loaders = loaders

    def write(
        self, window_seconds: float, signals: dict[str, float], wait_samples: Counts, where: Counts, activity: Counts
    ) -> None:
        """Write a heartbeat, after the sums of collectives."""
        self.write_collectives()
        self._outbox.write(
            records.Heartbeat,
            step=self._machine.steps,
            phase="compile" if self._compilations.elsewhere else records.PHASES[self._machine.timeline.phase_now],
            window_seconds=window_seconds,
            signals=signals | self._own_signals(),
            wait_samples=wait_samples,
            where=where,
            activity=activity,
            loader=self._loaders.settings,
            dropped_total=self._outbox.dropped,
        )

    def write_collectives(self) -> None:
        """Write the sums of collectives since the last call, if there were any."""
        now = time.monotonic_ns()
        rows = [(records.CollectiveDone, now, {**fields, "step": self._machine.steps}) for fields in self._collectives.new_sums()]
        if rows:
            self._outbox.write_all(rows)

    def loader_workers(self) -> Sequence[int]:
        """Return the process ids of the loader's workers."""
        return worker_pids(self._machine.loader)

    def _own_signals(self) -> dict[str, float]:
        """Return what the sampler does not see; a count of 0 says nothing and is left out."""
        counts = {
            "gradient_bytes": self._collectives.gradient_bytes,
            records.OTHER_THREADS: self._other_threads.count,
            records.GRADIENT_STEPS: self._machine.gradient_steps.counted,
        }
        signals = {name: float(count) for name, count in counts.items() if count}
        compilations = self._compilations.count
        if compilations is not None:  # of these 0 says that nothing was compiled
            signals[records.COMPILATIONS] = float(compilations)
        worker = next(iter(self.loader_workers()), None)
        if worker is not None and (size := private_bytes(worker)) is not None:
            signals["worker_bytes"] = size
        return signals
