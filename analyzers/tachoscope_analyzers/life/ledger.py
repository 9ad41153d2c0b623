"""The ledger of a whole life: every second in which a unit was the job's in exactly one state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.attempts import hangs
from tachoscope_analyzers.attempts.allocations import HeldTime
from tachoscope_analyzers.attempts.attribution import Block, blocks
from tachoscope_analyzers.attempts.endings import AttemptEnding, at_work
from tachoscope_analyzers.attempts.hangs import HangEvidence, HangThreshold
from tachoscope_analyzers.attempts.maintenance import NetTime, clipped
from tachoscope_analyzers.attempts.processes import RankProcess
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.records.life_records import Progress
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.distribution import Distribution
from tachoscope_core.metrics.catalogue import UNEXPLAINED

States = defaultdict[str, float]
"""Seconds by state."""
_NUMBERS_AT_ONCE = 1_000_000
Mask = npt.NDArray[np.bool_]


def _add(states: States, more: Mapping[str, float]) -> None:
    for name, seconds in more.items():
        states[name] += seconds


@dataclass(slots=True)
class RunBooks:
    """What the processes of one attempt did.

    Attributes:
        by_process: net seconds by state, by writer; they sum to the net time from the process's start to its end.
        redone_seconds, tail_seconds: rank-seconds of steps done again, and of the step that was under way when it failed.
        hung_seconds: rank-seconds of hangs. hangs: those that passed by themselves.
        redone_until: when the last of the steps done before was done again; None: none was. first_new: end of the first new one.
        new_seconds: net seconds of each new step on its slowest rank, of this attempt and those before.
        redone_steps, new_steps: counts.
    """

    run: Run
    new_seconds: Distribution
    by_process: dict[str, States] = field(default_factory=dict)
    redone_seconds: float = 0.0
    tail_seconds: float = 0.0
    hung_seconds: float = 0.0
    hangs: list[hangs.Hang] = field(default_factory=list)
    redone_until: float | None = None
    first_new: float | None = None
    first_begin: float | None = None
    redone_steps: int = 0
    new_steps: int = 0


def books_of(
    run: Run,
    ending: AttemptEnding,
    normal: HangThreshold,
    net: NetTime,
    said: Sequence[HangEvidence],
    new_seconds: Distribution,
    progress: Progress,
) -> RunBooks:
    """Return the books of one attempt.

    Args:
        said: what watchers saw of hangs. new_seconds: takes what `RunBooks` has of it. progress: is told which part of the
            attempt's steps was attributed, 0 to 1.
    """
    books = RunBooks(run, new_seconds, {process.writer: defaultdict(float) for process in run.processes})
    for first in range(1, run.own_steps + 1, _NUMBERS_AT_ONCE):
        own = np.arange(first, min(first + _NUMBERS_AT_ONCE, run.own_steps + 1))
        books.redone_steps += int(run.redone(own).sum())
    books.new_steps = run.own_steps - books.redone_steps
    done = 0
    for block in blocks(run.processes):
        _book_block(books, block, normal, net, said)
        done += int(block.present.sum())
        progress(done / max(sum(process.steps for process in run.processes), 1))
    for process in run.processes:
        _book_around_steps(books, process, ending, normal, net)
    return books


def _book_block(books: RunBooks, block: Block, normal: HangThreshold, net: NetTime, said: Sequence[HangEvidence]) -> None:
    run = books.run
    hung, found = hangs.subtract_hangs(block, run.processes, normal, said)
    books.hangs += found
    redone = run.redone(block.numbers)
    restored = np.zeros_like(block.wall)
    for column, process in enumerate(run.processes):
        _take_restores(block, process, column, restored)
    lengths = net(block.ends) - net(block.begins)
    scale = np.divide(lengths, block.wall, out=np.zeros_like(lengths), where=block.wall > 0)
    again = np.zeros_like(block.wall)
    for values in block.states.values():
        again[redone] += values[redone]
        values[redone] = 0.0
    sums = {name: (values * scale).sum(axis=0) for name, values in block.states.items()}
    sums |= {
        "lost_work": (again * scale).sum(axis=0),
        "hung": (hung * scale).sum(axis=0),
        "restore": (restored * scale).sum(axis=0),
    }
    for column, process in enumerate(run.processes):
        _add(books.by_process[process.writer], {name: float(values[column]) for name, values in sums.items()})
    books.redone_seconds += float(sums["lost_work"].sum())
    books.hung_seconds += float(sums["hung"].sum())
    _remember(books, block, redone, lengths)


def _remember(books: RunBooks, block: Block, redone: Mask, lengths: Matrix) -> None:
    if books.first_begin is None:
        books.first_begin = float(block.begins[0][block.present[0]].min())
    if redone.any():
        books.redone_until = float(block.ends[redone].max())
    if not redone.all():
        if books.first_new is None:
            books.first_new = float(block.ends[np.flatnonzero(~redone)[0]].max())
        books.new_seconds.add(lengths[~redone].max(axis=1))


def _take_restores(block: Block, process: RankProcess, column: int, restored: Matrix) -> None:
    """Take the seconds in which a process read a checkpoint within a step out of that step's states."""
    begins, ends = block.begins[:, column], block.ends[:, column]
    for start, end in process.restores:
        for step in np.flatnonzero(block.present[:, column] & (ends > start) & (begins < end)).tolist():
            overlap = min(end, float(ends[step])) - max(start, float(begins[step]))
            restored[step, column] += _subtract(block, step, column, overlap)


def _subtract(block: Block, step: int, column: int, seconds: float) -> float:
    taken = 0.0
    for name in (UNEXPLAINED, *(state for state in block.states if state != UNEXPLAINED)):
        part = min(max(float(block.states[name][step, column]), 0.0), seconds - taken)
        block.states[name][step, column] -= part
        taken += part
    return taken


def _book_around_steps(books: RunBooks, process: RankProcess, ending: AttemptEnding, normal: HangThreshold, net: NetTime) -> None:
    """Book what lies before, between and after the steps of a process; what nothing explains is `unexplained`."""
    states = books.by_process[process.writer]
    first = process.end if process.first_begin is None else process.first_begin
    reading = sum(net.length(*one) for one in clipped(process.restores, process.start, first))
    states["restore"] += reading
    states["initialisation"] += net.length(process.start, first) - reading
    last = process.last_step_end
    if last is not None:
        tail = _tail(process, last, ending, normal, net)
        _add(states, tail)
        if ending.failed or ending.lasts:
            books.tail_seconds += tail["lost_work"]
            books.hung_seconds += tail["hung"]
    _close(states, net.length(process.start, process.end))


def _close(states: States, whole: float) -> None:
    """Make the states sum to the whole: what no record covers is unexplained; steps that overlap are shortened."""
    rest = whole - sum(states.values())
    if rest >= 0 or states[UNEXPLAINED] + rest >= 0:
        states[UNEXPLAINED] += rest
        return
    scale = whole / (whole - rest)
    for name in states:
        states[name] *= scale


def _tail(process: RankProcess, last: float, ending: AttemptEnding, normal: HangThreshold, net: NetTime) -> States:
    """Return the net seconds by state between a process's last step and its end."""
    tail: States = defaultdict(float)
    whole = net.length(last, process.end)
    reading = sum(net.length(*one) for one in clipped(process.restores, last, process.end))
    tail["restore"] += reading
    rest = whole - reading
    phase = at_work(process, last, process.end)
    if process.left_in_order or not (ending.failed or ending.lasts):
        # A save counts in the step after the one that it is of: of the last one there is no such step.
        saving = min(sum(row.blocking_seconds for row in process.saves if row.step >= process.last_step), rest)
        tail["checkpoint"] += saving
        tail[phase or UNEXPLAINED] += rest - saving
        return tail
    if phase:
        tail[phase] += rest
    elif ending.hang is not None or process.end - last >= normal.hang_seconds:
        tail["hung"] += rest
    else:
        tail["lost_work"] += rest
    return tail


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The waterfall: net unit-seconds by state over all grants, the queue in it, and what maintenance took out.

    `after_seconds`: of the unexplained, what lies between the last process of a unit and the end of the command.
    """

    states: Mapping[str, float]
    allocated_seconds: float
    excluded_seconds: float
    after_seconds: float = 0.0


def total(grants: Sequence[HeldTime], by_process: Mapping[str, States], net: NetTime) -> Waterfall:
    """Add up the books of all units. Between two processes of a unit, and before the first, it waits for one to start."""
    states: States = defaultdict(float)
    allocated = excluded = after = 0.0
    for grant in grants:
        length = net.length(grant.start, grant.end)
        allocated += length * grant.units
        excluded += net.excluded(grant.start, grant.end) * grant.units
        states[grant.unused_state] += length * grant.unused
        for lane in grant.lanes:
            after += _add_lane(states, lane, grant, by_process, net)
    return Waterfall({name: seconds for name, seconds in states.items() if seconds > 0}, allocated, excluded, after)


def _add_lane(
    states: States, lane: Sequence[RankProcess], grant: HeldTime, by_process: Mapping[str, States], net: NetTime
) -> float:
    """Add the books of one unit; return the seconds after its last process."""
    at = grant.start
    for process in lane:
        own = defaultdict(float, by_process[process.writer])
        if process.start > at:
            states["initialisation"] += net.length(at, process.start)
        else:  # the end of the one before was seen late, and this one was starting meanwhile
            own["initialisation"] -= net.length(process.start, at)
        _add(states, own)
        at = process.end
    after = net.length(at, grant.end)
    states[UNEXPLAINED] += after
    return after
