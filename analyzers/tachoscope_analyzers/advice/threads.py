"""How many compute threads a rank should have, where the ranks of a host have more of them than it has cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tachoscope_analyzers.advice.advised import NONE, Advised
from tachoscope_analyzers.advice.number_text import count
from tachoscope_core.records.records import JobStarted


def threads_that_fit(cores: int, ranks: int) -> int:
    """Return the compute threads of each rank that share the cores without taking turns: cores / ranks, rounded down, at least one.

    PyTorch's own rule for one rank is one thread a core, https://docs.pytorch.org/docs/stable/notes/cpu_threading_torchscript_inference.html.
    """
    return max(1, cores // ranks)


def advice(starts: Sequence[JobStarted]) -> Advised:
    """Return the number of threads to set, or that they are not the reason; none where they are not known."""
    fits = bool(starts)
    for host, ranks in Counter(start.host for start in starts).items():
        here = [start for start in starts if start.host == host]
        threads, cores = max(start.cpu_threads for start in here), max(start.cpu_count for start in here)
        fits &= 0 < threads * ranks <= cores
        fit = threads_that_fit(cores, ranks) if cores else 0
        if cores and threads * ranks > cores and fit < threads:
            return Advised(
                f"OMP_NUM_THREADS={fit}, unless each rank is pinned to cores of its own: {count(ranks, 'rank')} x "
                f"{count(threads, 'thread')} on {host} share {count(cores, 'core')}, and floor({cores} / {ranks}) = {fit} fit",
                {"OMP_NUM_THREADS": fit},
            )
    if not fits:
        return NONE
    return Advised(
        "the compute threads fit the cores: find who shares these (`pidstat -u 1`), move it, or pin the ranks to cores of their own"
    )
