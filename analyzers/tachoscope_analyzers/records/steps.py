"""Step records as tables: one row a step and rank, then matrices of step x rank with every second in one cause or in waiting."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records import activity, idle_gaps, pauses
from tachoscope_analyzers.records import profiled_steps as profiled
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.facts import facts
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.step_table import DEVICE_SEGMENTS, Array, StepTable
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.linear_fit import fitted
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs import notes as job_notes
from tachoscope_core.records.records import PHASES, JobStarted

if TYPE_CHECKING:
    import pandas as pd

CAUSES = (
    "data_wait",
    "host_to_device",
    "compute",
    "cpu_wait",
    "paused",
    "gc",
    "launch",
    "checkpoint",
    "evaluation",
    "compile",
    "other",
)
"""What a rank spends its own time on. Waiting for others is not a cause: it is the outcome of another rank's causes."""

Column = Callable[[str], Matrix]
"""Returns a column of the table as a matrix."""

_WARM_UP_STEPS = 2
_LEAST_SHARE = 0.5
_GAP_PHASES = ("data_wait", "checkpoint", "evaluation", "compile", "gc", "other")


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps that all ranks of one attempt recorded, in order.

    Attributes:
        numbers: step numbers, shape (K,). ranks: global ranks, shape (R,).
        wall: seconds of each step, shape (K, R); own + waiting, summed over causes, is wall.
        own: seconds of the rank's own time by cause, each of shape (K, R).
        waiting: seconds blocked in collectives, for a later rank or for the transfer, shape (K, R).
        own_input: part of `own["data_wait"]` that the training thread spent outside of loaders, making or fetching what the model
            is called with, shape (K, R).
        data_cpu, other_cpu: CPU seconds within `data_wait` and `other`, shape (K, R), NaN for a rank where it was never read.
        ends: end of each step in seconds of the host's monotonic clock, shape (K, R); unix_ends: in Unix seconds.
        consumed: what the step of the rank worked on, shape (K, R), NaN where it is not known: tokens, else numbers in the batches,
            else samples.
        forward: seconds from the batch to backward, shape (K, R); backward: the rank's own part of backward, NaN in the steps in
            which its clock was not read.
        still: seconds within computing in which the thread neither ran nor wanted a core, shape (K, R); part of the causes.
        shared: part of `own["compute"]` that all ranks are given alike, shape (K, R): on accelerators a backward lasts as long for
            all as for the rank that waited least, and only of that rank is it known to be its own work.
        transfer_measured: whether the least wait of a step is the transfer; on accelerators it cannot be determined.
        waiting_unmeasured: ranks of which it is not known how much of backward they waited; of one process alone, none.
        optimizer: seconds in the optimizer, part of `own`, shape (K, R). backward_calls: micro-batches of the step, shape (K, R).
        starts: the `JobStarted` of each rank. lost_seconds: wall time within the window that no record covers, by rank.
        profiled: numbers of steps that were left out since they ran under a profiler; their time is not in the window.
        gap_seconds: pauses of the job before each step, shape (K, R), not part of `wall`; gaps: what is known of them.
        device_keeps_up: whether the device was done with forward and backward as soon as the host had queued them: then it may
            have waited for the host within them.
    """

    job: str
    attempt: int
    numbers: npt.NDArray[np.int64]
    ranks: list[int]
    world_size: int
    device: str
    wall: Matrix
    own: dict[str, Matrix]
    waiting: Matrix
    own_input: Matrix
    data_cpu: Matrix
    other_cpu: Matrix
    consumed: Matrix
    forward: Matrix
    backward: Matrix
    still: Matrix
    ends: Matrix
    unix_ends: Matrix
    shared: Matrix
    optimizer: Matrix
    backward_calls: Matrix
    transfer_measured: bool
    waiting_unmeasured: list[int]
    cpu_wait_measured: bool
    loader_seen: bool
    writers: list[str]
    starts: list[JobStarted]
    window_start: float
    window_end: float
    lost_seconds: npt.NDArray[np.float64]
    profiled: npt.NDArray[np.int64]
    gap_seconds: Matrix
    gaps: list[idle_gaps.IdleGap]
    device_keeps_up: bool

    @property
    def begins(self) -> Matrix:
        """Begin of each step in seconds of the host's monotonic clock, shape (K, R); a gap lies after it."""
        return self.ends - self.wall - self.gap_seconds


def table(job: JobRecords) -> pd.DataFrame:
    """Return one row for each step and rank of the last attempt that has steps; phases and clocks in columns, in seconds.

    Raises:
        TachoscopeError: the job recorded no step.
    """
    if not job.steps and job.broken:
        raise TachoscopeError(f"no step of job {job.job!r} can be read: {job.broken[0]}", fix="restore that object, or remove it")
    if not job.steps:
        raise TachoscopeError(
            f"job {job.job!r} has {job.source.records} records but no training step: {job_notes.why_no_steps(facts(job))}",
        )
    import pandas as pd  # half of the time of a `tachoscope run` that says why its command failed, which needs none

    attempt = job.steps.last_attempt()
    frame = pd.DataFrame(columns(job.steps.in_attempt(attempt)))
    frame.attrs["attempt"] = attempt
    return _without_short_ones(_one_writer_a_rank(frame), job, attempt)


def columns(steps: StepTable) -> dict[str, Array]:
    """Return what the records of steps hold as columns of equal length, times in seconds; NaN where a clock was not read."""
    found: dict[str, Array] = {
        "consumed": consumed(steps),
        "step": steps.column("step"),
        "rank": steps.column("rank"),
        "writer": np.array(steps.writers, dtype=object)[steps.column("writer")],
        "time": steps.column("time"),
        "end_seconds": steps.column("monotonic_ns") / 1e9,
        "wall_seconds": steps.column("wall_seconds"),
        "backward_calls": steps.column("backward_calls"),
    }
    for phase in PHASES:
        found[f"{phase}_seconds"] = np.nan_to_num(steps.column(f"{phase}_seconds"))
    found |= _where_read(steps, [f"{phase}_cpu_seconds" for phase in PHASES])
    for name in ("step", "backward"):
        found[f"{name}_delay_seconds"] = steps.column(f"{name}_delay_seconds")
    return found | _where_read(steps, [f"device_{name}_seconds" for name in DEVICE_SEGMENTS])


def consumed(steps: StepTable) -> Array:
    """Return what each step worked on, in the most telling unit that is known of any; NaN where it is not."""
    units = ("tokens", "elements", "samples")
    amounts = steps.column(next((unit for unit in units if steps.column(unit).any()), units[-1]))
    return np.where(amounts > 0, amounts, np.nan)


def _where_read(steps: StepTable, names: Sequence[str]) -> dict[str, Array]:
    """Return columns of one clock: in a step in which any of them was read, what is absent took no time."""
    absent = {name: np.isnan(steps.column(name)) for name in names}
    unread = np.logical_and.reduce(list(absent.values()))
    return {name: np.where(absent[name] & ~unread, 0.0, steps.column(name)) for name in names}


def _one_writer_a_rank(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the writer with the most steps where several processes say they are the same rank (scripts run one after another)."""
    pairs = set(zip(frame["rank"].tolist(), frame["writer"].tolist(), strict=True))
    if len(pairs) == len({rank for rank, _ in pairs}):
        return frame
    counts = frame.groupby(["rank", "writer"]).size().sort_values(ascending=False, kind="stable").reset_index()
    kept = counts.drop_duplicates("rank").set_index("rank")["writer"]
    return frame[frame["writer"] == frame["rank"].map(kept)]


def _without_short_ones(frame: pd.DataFrame, job: JobRecords, attempt: int) -> pd.DataFrame:
    """Leave out processes that claim the rank of another and trained less than half as long: only steps that all ranks have are
    judged, and those of the others would be lost for a trial beside them.
    """
    for shared in job.shared:
        if shared.attempt == attempt:
            counts = frame[frame["rank"].isin(shared.ranks)].groupby("rank").size()
            short = counts[counts < counts.max() * _LEAST_SHARE].index
            frame = frame[~frame["rank"].isin(short)]
    return frame


def warm_up_steps(wall: Matrix, first: int = 1) -> int:
    """Return how many first steps to leave out: two (DDP rebuilds its buckets after the first), and more while they are over
    three times the median, but never more than a tenth of the run. What begins after those two, with step `first`, is not a begin
    of a run.
    """
    if first > _WARM_UP_STEPS:
        return 0
    most = len(wall) // 10
    slow = wall > 3 * np.median(wall)
    leading = int(np.argmin(slow)) if not slow.all() else 0
    return min(most, max(_WARM_UP_STEPS, leading))


def aligned(job: JobRecords, frame: pd.DataFrame | None = None) -> Steps:
    """Return the steps that every rank has, without the warm-up and those under a profiler, each second in one cause or in waiting.

    Args:
        frame: the job's `table`, where it was made before.

    Raises:
        TachoscopeError: no step is common to all ranks.
    """
    frame = table(job) if frame is None else frame
    attempt = int(frame.attrs["attempt"])
    ranks = sorted(int(rank) for rank in frame["rank"].unique())
    common, under_profiler = _judged(frame, job, attempt)
    frame = frame[frame["step"].isin(common)].sort_values(["step", "rank"], kind="stable")
    shape = (len(common), len(ranks))
    writers = [str(writer) for writer in frame["writer"].to_numpy().reshape(shape)[0]]
    frame, gap_seconds, gaps = idle_gaps.without_gaps(frame, job, writers)

    column = _matrices(frame, shape)
    starts = [start for start in job.starts if start.writer in writers]
    device = next((start.device for start in starts), "cuda" if _ever_read(column("device_backward_seconds")).any() else "cpu")
    world = max((start.world_size for start in starts), default=len(ranks))
    on_host, ends = column("wall_seconds"), column("end_seconds")
    wall = on_host if device == "cpu" else device_step_seconds(column)
    begins = ends - on_host - gap_seconds
    job = idle_gaps.without_gap_heartbeats(job, writers, begins, gap_seconds)
    started = {start.writer: start for start in starts}
    split = split_steps(
        column, [started.get(writer) for writer in writers], job.beats_of(writers), device=device, together=world > 1
    )
    spans = ends[-1] - begins[0] - profiled.seconds(common, under_profiler, begins, ends) - gap_seconds.sum(axis=0)
    return Steps(
        job=job.job,
        attempt=attempt,
        numbers=common.astype(np.int64),
        ranks=ranks,
        world_size=world,
        device=device,
        wall=wall,
        **split._asdict(),
        other_cpu=_by_ratio(column("other_cpu_seconds"), column("other_seconds")),
        consumed=column("consumed"),
        forward=column("forward_seconds") + column("loss_seconds") if device == "cpu" else column("device_forward_seconds"),
        ends=ends,
        unix_ends=column("time"),
        optimizer=column("optimizer_seconds"),
        backward_calls=column("backward_calls"),
        **_what_was_measured(column, ranks, device=device, world=world)._asdict(),
        writers=writers,
        starts=starts,
        window_start=float(column("time")[0].min() - (wall + gap_seconds)[0].max()),
        window_end=float(column("time")[-1].max()),
        lost_seconds=np.maximum(spans - on_host.sum(axis=0), 0.0),
        profiled=under_profiler,
        gap_seconds=gap_seconds,
        gaps=gaps,
    )


def _matrices(frame: pd.DataFrame, shape: tuple[int, int]) -> Column:
    """Return the columns of a table as matrices of a shape, a copy at each call."""
    known: dict[str, Matrix] = {}

    def column(name: str) -> Matrix:
        if name not in known:
            known[name] = frame[name].to_numpy(dtype=float).reshape(shape)
        return known[name].copy()

    return column


class _Measured(NamedTuple):
    """What the clocks of the ranks can tell; see the attributes of `Steps`."""

    transfer_measured: bool
    waiting_unmeasured: list[int]
    cpu_wait_measured: bool
    loader_seen: bool
    device_keeps_up: bool


def _what_was_measured(column: Column, ranks: Sequence[int], *, device: str, world: int) -> _Measured:
    on_cpu = device == "cpu"
    waited = _ever_read(column("backward_cpu_seconds" if on_cpu else "device_backward_seconds"))
    return _Measured(
        transfer_measured=on_cpu and len(ranks) == world,
        waiting_unmeasured=[rank for rank, known in zip(ranks, waited, strict=True) if not known and world > 1],
        cpu_wait_measured=on_cpu and bool(_ever_read(column("step_delay_seconds")).all()),
        loader_seen=bool((column("data_wait_seconds") + column("preparation_seconds")).any()),
        device_keeps_up=not on_cpu and _keeps_up(column),
    )


class StepSplit(NamedTuple):
    """Seconds of each step by what the rank spent them on, shape (K, R); see the attributes of `Steps`."""

    own: dict[str, Matrix]
    waiting: Matrix
    shared: Matrix
    own_input: Matrix
    data_cpu: Matrix
    backward: Matrix
    still: Matrix


def split_steps(
    column: Column,
    starts: Sequence[JobStarted | None],
    beats: Sequence[Heartbeats],
    *,
    device: str,
    together: bool,
) -> StepSplit:
    """Split the seconds of steps by what their ranks spent them on: the one rule for reports on steps and on whole lives.

    Args:
        column: gives values of the steps by name, shape (K, R), see `columns`. starts, beats: of the process of each column.
        device: `cpu` or a kind of accelerator. together: there are other ranks to wait for.
    """
    return _split_of_cpu(column, starts, beats, together=together) if device == "cpu" else _split_of_device(column, beats)


def _split_of_cpu(column: Column, starts: Sequence[JobStarted | None], beats: Sequence[Heartbeats], *, together: bool) -> StepSplit:
    """Split the seconds of training on CPU, by the thread's clocks."""
    own, waiting = cpu_causes(column, together=together)
    shared = functools.cache(column)  # what is only read, of one rank at a time: not a copy of all ranks for each
    moved = activity.move(beats, shared, own)
    still = pauses.split(starts, beats, shared, own, waiting)
    checkpoints_take_what_surrounds_them(own, column("data_wait_seconds"))
    own_input, data_cpu = column("preparation_seconds") + moved.seconds, _data_cpu(column) + moved.cpu_seconds
    return StepSplit(own, waiting, np.zeros_like(waiting), own_input, data_cpu, column("backward_cpu_seconds"), still)


def _split_of_device(column: Column, beats: Sequence[Heartbeats]) -> StepSplit:
    """Split the seconds of training on a device, by the events that time it."""
    own, waiting, shared = device_causes(column, device_step_seconds(column))
    pauses.outside_of_phases(beats, own)
    own_input = np.minimum(column("preparation_seconds"), own["data_wait"])
    checkpoints_take_what_surrounds_them(own, column("data_wait_seconds"))
    unknown = np.full_like(waiting, np.nan)
    return StepSplit(own, waiting, shared, own_input, _data_cpu(column), unknown, np.zeros_like(waiting))


def _data_cpu(column: Column) -> Matrix:
    seconds = column("data_wait_cpu_seconds") + column("preparation_cpu_seconds")
    return _by_ratio(seconds, column("data_wait_seconds") + column("preparation_seconds"))


def _judged(frame: pd.DataFrame, job: JobRecords, attempt: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the numbers of the steps that all ranks have, without the warm-up, and of those that ran under a profiler."""
    numbers, rows = np.unique(frame["step"].to_numpy(), return_inverse=True)
    ranks, places = np.unique(frame["rank"].to_numpy(), return_inverse=True)
    wall = np.full((len(numbers), len(ranks)), np.nan)
    wall[rows, places] = frame["wall_seconds"].to_numpy()
    longest = wall.max(axis=1)  # NaN in the steps that a rank has not
    common = numbers[~np.isnan(longest)]
    if not len(common):
        raise TachoscopeError(f"the ranks of job {job.job!r} have no step in common")
    common = common[warm_up_steps(longest[~np.isnan(longest)], int(common[0])) :]
    kept = profiled.without_profiled(common, job, attempt)
    return kept, np.setdiff1d(common, kept)


def _ever_read(clock: Matrix) -> npt.NDArray[np.bool_]:
    """Return for each rank whether a clock was read in any step, shape (R,)."""
    return np.asarray((~np.isnan(clock)).any(axis=0))


def cpu_causes(column: Column, *, together: bool) -> tuple[dict[str, Matrix], Matrix]:
    """Split host time. On CPU, backward runs on the training thread: what it neither computed nor waited for a core, it was
    blocked, and in a job of several ranks that is the gradient exchange (DDP waits there for its reducer).

    The probe reads the clocks in some steps only: between these, a rank's own backward and its waiting for a core are interpolated.
    """
    backward = column("backward_seconds")
    delay = _between(column("step_delay_seconds"))
    backward_delay = np.minimum(_between(column("backward_delay_seconds")), delay)
    backward_cpu = _own_backward(_between(column("backward_cpu_seconds"), unmeasured=backward), column)
    blocked = np.maximum(backward - backward_cpu - backward_delay, 0.0) if together else 0.0 * backward
    backward_delay = np.minimum(backward_delay, backward - blocked)
    rest = column("forward_seconds") + column("loss_seconds") + column("optimizer_seconds")
    rest_delay = np.minimum(delay - backward_delay, rest)
    own = {
        "data_wait": column("data_wait_seconds") + column("preparation_seconds"),
        "host_to_device": column("host_to_device_seconds"),
        "compute": rest - rest_delay + backward - blocked - backward_delay,
        "cpu_wait": rest_delay + backward_delay,
        "paused": 0.0 * backward,
        "gc": column("gc_seconds"),
        "launch": 0.0 * backward,
        "checkpoint": column("checkpoint_seconds"),
        "evaluation": column("evaluation_seconds"),
        "compile": column("compile_seconds"),
        "other": column("other_seconds"),
    }
    return own, blocked + column("collective_seconds")


def _own_backward(between: Matrix, column: Column) -> Matrix:
    """Return the CPU seconds of backward, shape (K, R): as read, else what forward tells, else the given interpolation.

    Where both follow the data, forward of a step (which is measured in each) tells more of its backward than the steps around it
    do: then the line through the steps in which both are known is used, rank by rank.

    Args:
        between: interpolated between the steps in which the clock was read, shape (K, R).
        column: returns a column of the steps' table.
    """
    read_seconds, forward, backward = column("backward_cpu_seconds"), column("forward_seconds"), column("backward_seconds")
    found = between.copy()
    for rank in range(found.shape[1]):
        read = ~np.isnan(read_seconds[:, rank])
        if read.all() or read.sum() < threshold("imbalance_steps"):
            continue
        line = fitted(forward[read, rank], read_seconds[read, rank])
        if line.correlation >= threshold("imbalance_correlation"):
            told = line.slope * forward[~read, rank] + line.intercept
            found[~read, rank] = np.clip(told, 0.0, backward[~read, rank])
    return found


def _between(values: Matrix, unmeasured: Matrix | None = None) -> Matrix:
    """Interpolate, for each rank, the steps in which a clock was not read; a rank that never read it gets `unmeasured`, or zero."""
    rows = np.arange(len(values))
    filled = np.zeros_like(values) if unmeasured is None else unmeasured.copy()
    for rank in range(values.shape[1]):
        read = ~np.isnan(values[:, rank])
        if read.any():
            filled[:, rank] = np.interp(rows, rows[read], values[read, rank])
    return filled


def _by_ratio(cpu: Matrix, wall: Matrix) -> Matrix:
    """Spread the share of CPU that a rank used in the steps in which the clock was read over all its steps."""
    read = ~np.isnan(cpu)
    known = np.where(read, wall, 0.0).sum(axis=0)
    share = np.divide(np.nansum(cpu, axis=0), known, out=np.full(cpu.shape[1], np.nan), where=known > 0)
    return np.asarray(np.where(read, cpu, wall * share))


def _keeps_up(column: Column) -> bool:
    """Return whether forward and backward took the device as long as the host took to queue them, on any rank."""
    host = (column("forward_seconds") + column("loss_seconds"), column("backward_seconds"))
    device = (column("device_forward_seconds"), column("device_backward_seconds"))
    return bool(
        np.all(
            [
                np.abs(np.nansum(there, axis=0) - here.sum(axis=0)) <= threshold("device_keeps_up_tolerance") * here.sum(axis=0)
                for here, there in zip(host, device, strict=True)
            ],
            axis=0,
        ).any()
    )


def device_step_seconds(column: Column) -> Matrix:
    """Return how long each step took the device, shape (K, R), and where events did not time it, how long it took the host.

    A host queues work ahead of the device, so its own steps are now shorter and now longer than what they make the device do: in
    a GPT on an H200 they took 21 to 64 ms where each took the device 36.3 ms.
    """
    segments = sum(column(f"device_{name}_seconds") for name in DEVICE_SEGMENTS)
    return np.where(np.isnan(segments), column("wall_seconds"), segments)


def device_causes(column: Column, wall: Matrix) -> tuple[dict[str, Matrix], Matrix, Matrix]:
    """Split the device's time into causes, waiting and shared computing. The gap in which nothing was queued goes to what the host
    did then, the rest of it to launching; a rank waits in backward for as long as its backward is longer than the shortest one.
    """
    gap = np.nan_to_num(column("device_gap_seconds"))
    host = {name: column(f"{name}_seconds") for name in _GAP_PHASES}
    host["data_wait"] = host["data_wait"] + column("preparation_seconds")
    total = np.maximum(sum(host.values()), 1e-12)
    share = np.minimum(gap / total, 1.0)
    backward = np.nan_to_num(column("device_backward_seconds"))
    waiting = backward - backward.min(axis=1, keepdims=True)
    own = {cause: np.zeros_like(gap) for cause in CAUSES} | {name: seconds * share for name, seconds in host.items()}
    own["launch"] = np.maximum(gap - total, 0.0)
    own["host_to_device"] = np.nan_to_num(column("device_host_to_device_seconds"))
    own["compute"] = np.nan_to_num(column("device_forward_seconds") + column("device_optimizer_seconds")) + backward - waiting
    without_gradients = np.nan_to_num(column("device_no_grad_seconds"))
    evaluates = host["evaluation"] > 0
    own["evaluation"] = own["evaluation"] + np.where(evaluates, without_gradients, 0.0)
    own["compute"] = own["compute"] + np.where(evaluates, 0.0, without_gradients)
    own["other"] = own["other"] + np.where(np.isnan(column("device_backward_seconds")), wall, 0.0)
    return own, waiting, backward - waiting


def checkpoints_take_what_surrounds_them(own: dict[str, Matrix], loading: Matrix) -> None:
    """Move to `checkpoint` what a rank spends outside of all phases in the steps in which it saves, beyond what it spends there in
    its other steps: collecting the state before the save, opening, closing and renaming the file.

    Args:
        loading: seconds of waiting for a loader, shape (K, R): the rest of waiting for data is what stands before the model.
    """
    saving = own["checkpoint"] > 0
    for cause, kept in (("other", np.zeros_like(loading)), ("data_wait", np.minimum(loading, own["data_wait"]))):
        around = own[cause] - kept
        for column in range(saving.shape[1]):
            steps = saving[:, column]
            if steps.any() and not steps.all():
                extra = np.maximum(around[steps, column] - np.median(around[~steps, column]), 0.0)
                own[cause][steps, column] -= extra
                own["checkpoint"][steps, column] += extra


def lines_seen(job: JobRecords, steps: Steps, phase: str, ranks: list[int] | None = None) -> Counter[str]:
    """Return the lines of user code seen in a phase, with the number of samples, over the given ranks (all by default)."""
    wanted = {writer for writer, rank in zip(steps.writers, steps.ranks, strict=True) if ranks is None or rank in ranks}
    return +job.heartbeats.of_writers(wanted).samples("where", phase)
