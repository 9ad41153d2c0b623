"""What really happened in a run: read from the marks that its scripts wrote."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mark:
    """One line of a marks file: what, when it began, how long it took, its CPU time."""

    kind: str
    began: float
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Truth:
    """The planted fault in a window of time.

    Attributes:
        seconds_per_step: of the ranks that have it, the mean of what the fault took per iteration.
        step_seconds: mean of an iteration.
        steps: iterations of one process in the window.
        ranks: the ranks that have it.
        cpu_share: CPU time of the fault over its wall time.
    """

    seconds_per_step: float
    step_seconds: float
    steps: int
    ranks: tuple[int, ...]
    cpu_share: float


Marks = dict[tuple[int, int], list[Mark]]
"""By rank and process id."""


def read_marks(folder: Path) -> Marks:
    """Read what the processes wrote."""
    marks: Marks = {}
    for path in sorted(folder.glob("marks-*.txt")):
        _, rank, process = path.stem.split("-")
        marks[int(rank), int(process)] = [_mark(line) for line in path.read_text().splitlines()]
    return marks


def truth_of(marks: Marks, start: float, end: float) -> Truth | None:
    """Return what was planted between two times; None: no iteration was seen there.

    Of a loader's worker only the loop's wait counts: what it sleeps behind the step costs nothing.
    """
    within = {key: [mark for mark in own if start <= mark.began <= end] for key, own in marks.items()}
    steps = {key: [mark for mark in own if mark.kind == "step"] for key, own in within.items()}
    trained = [key for key, own in steps.items() if len(own) > 1]
    if not trained:
        return None
    kind = "wait" if any(mark.kind == "wait" for key in trained for mark in within[key]) else "fault"
    planted = {key: [mark for mark in within[key] if mark.kind == kind] for key in trained}
    sleepy = faulty_ranks(within)
    having = [key for key in trained if key[0] in sleepy] or trained
    per_step = [sum(mark.seconds for mark in planted[key]) / len(steps[key]) for key in having]
    wall = sum(mark.seconds for key in having for mark in planted[key])
    cpu = sum(mark.cpu_seconds for key in having for mark in planted[key])
    return Truth(
        seconds_per_step=statistics.mean(per_step),
        step_seconds=statistics.mean(_pace(steps[key]) for key in trained),
        steps=round(statistics.mean(len(steps[key]) for key in trained)),
        ranks=tuple(sorted(sleepy)),
        cpu_share=cpu / wall if wall else 0.0,
    )


def faulty_ranks(marks: Marks) -> set[int]:
    """Return the ranks in which the fault itself was measured, in whatever process."""
    found: dict[int, int] = defaultdict(int)
    for (rank, _), own in marks.items():
        found[rank] += sum(mark.kind == "fault" for mark in own)
    return {rank for rank, count in found.items() if count}


def step_seconds(marks: Marks, skip: int = 10) -> float:
    """Return the median iteration after the first ones."""
    paces = []
    for own in marks.values():
        ends = [mark.seconds for mark in own if mark.kind == "step"]
        paces += [after - before for before, after in zip(ends[skip:], ends[skip + 1 :], strict=False)]
    return statistics.median(paces) if paces else 0.0


def _pace(steps: list[Mark]) -> float:
    return (steps[-1].seconds - steps[0].seconds) / (len(steps) - 1)


def _mark(line: str) -> Mark:
    kind, began, seconds, cpu = line.split()
    return Mark(kind, float(began), float(seconds), float(cpu))
