"""The trainings whose advice is followed: each has one cost that a report should advise against, or one that it should leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

KILOBYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training; times in milliseconds for a batch, which is a step.

    Attributes:
        making_ms: of a batch, by `how`: sleep, compute, or read from a server. rest_ms: of computing on one core in the model;
            wide_ms: rounds of computing on all threads. workers: of the loader. data_set: map, iterable, or sharded (iterable, and
            divides itself). batch_bytes: of a batch. epoch_batches: 0: one epoch.
        save_every: steps between checkpoints of `checkpoint_bytes`, 0: none. ranks: that exchange `parameter_bytes` of gradients.
        threads: OMP_NUM_THREADS.
    """

    name: str
    making_ms: float = 0.0
    how: str = "sleep"
    rest_ms: float = 10.0
    wide_ms: float = 0.0
    workers: int = 0
    data_set: str = "map"
    batch_bytes: int = KILOBYTES
    epoch_batches: int = 0
    save_every: int = 0
    checkpoint_bytes: int = 0
    ranks: int = 1
    parameter_bytes: int = 0
    threads: int = 1

    def parameters(self) -> dict[str, object]:
        """Return what the script is given."""
        return asdict(self)


def all_cases() -> list[Case]:
    """Return every case, in the order in which they run."""
    cases = [*_making(), *_workers(), *_idle(), *_kinds(), *_bytes(), *_epochs(), *_saves(), *_exchanges(), *_threads()]
    assert len({case.name for case in cases}) == len(cases)
    return cases


def _making() -> Iterator[Case]:
    """Batches made in the training process."""
    for how in ("sleep", "compute", "read"):
        for making in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 80.0):
            yield Case(name=f"{how}-{making:g}ms", making_ms=making, how=how, rest_ms=min(10.0, 2 * making))
    for making in (15.0, 30.0, 60.0):
        yield Case(name=f"sleep-{making:g}ms-long-rest", making_ms=making, rest_ms=30.0)


def _workers() -> Iterator[Case]:
    """Too few workers, or as many as there are cores."""
    for how in ("sleep", "read"):
        for making in (20.0, 40.0, 80.0):
            yield Case(name=f"{how}-{making:g}ms-1-worker", making_ms=making, how=how, workers=1)
    for how in ("sleep", "compute"):
        yield Case(name=f"{how}-40ms-2-workers", making_ms=40.0, how=how, workers=2)
    yield Case(name="compute-40ms-1-worker", making_ms=40.0, how="compute", workers=1)


def _idle() -> Iterator[Case]:
    """Workers that wait for work."""
    for workers in (1, 2):
        for making in (0.0, 0.2, 0.5):
            yield Case(name=f"idle-{making:g}ms-{workers}-workers", making_ms=making, how="compute", rest_ms=0.5, workers=workers)


def _kinds() -> Iterator[Case]:
    """Iterable data sets, divided among workers or not."""
    for kind in ("iterable", "sharded"):
        for workers in (0, 1):
            yield Case(name=f"{kind}-sleep-40ms-{workers}-workers", making_ms=40.0, data_set=kind, workers=workers)
        yield Case(name=f"{kind}-compute-8ms", making_ms=8.0, how="compute", data_set=kind)


def _bytes() -> Iterator[Case]:
    """Large batches."""
    for megabytes in (1, 10, 40):
        for making in (2.0, 20.0):
            yield Case(
                name=f"{megabytes}MB-{making:g}ms", making_ms=making, how="compute", rest_ms=20.0, batch_bytes=megabytes * 1_000_000
            )
    yield Case(name="10MB-1-worker", making_ms=1.0, how="compute", rest_ms=2.0, batch_bytes=10_000_000, workers=1)


def _epochs() -> Iterator[Case]:
    """Short epochs, whose workers start again each time."""
    for workers in (1, 2):
        yield Case(name=f"epochs-{workers}-workers", making_ms=2.0, workers=workers, epoch_batches=40)


def _saves() -> Iterator[Case]:
    """Checkpoints far too often."""
    for every in (5, 20):
        for megabytes in (20, 100):
            yield Case(
                name=f"save-{megabytes}MB-every-{every}", save_every=every, checkpoint_bytes=megabytes * 1_000_000, rest_ms=20.0
            )


def _exchanges() -> Iterator[Case]:
    """Two ranks whose exchange takes a part of the step."""
    for megabytes in (4, 16, 32):
        yield Case(name=f"exchange-{megabytes}MB", ranks=2, parameter_bytes=megabytes * 1_000_000, rest_ms=20.0)


def _threads() -> Iterator[Case]:
    """Two ranks with more threads than cores."""
    for rounds in (20, 60):
        yield Case(name=f"threads-{rounds}-rounds", ranks=2, threads=4, rest_ms=0.0, wide_ms=rounds)
