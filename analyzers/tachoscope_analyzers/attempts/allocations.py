"""When the job held its accelerators, as the scheduler, the launcher or the node agent reports it, or else the records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tachoscope_analyzers.attempts import overlaps
from tachoscope_analyzers.attempts.processes import START_KNOWN_SECONDS, Clock, RankProcess
from tachoscope_analyzers.attempts.step_numbering import Run
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.load import CLOCKS_AGREE_SECONDS, JobRecords
from tachoscope_analyzers.schedulers.common import allocation as allocations_
from tachoscope_core.metrics.catalogue import UNEXPLAINED
from tachoscope_core.records import records

Source = Literal["slurm", "kubernetes", "launcher", "agent", "records"]
_PRECEDENCE: tuple[Source, ...] = ("slurm", "kubernetes", "launcher", "agent", "records")


@dataclass(frozen=True, slots=True)
class Launch:
    """A start of the command on a host, as its launcher or, for want of one, the node agent tells.

    Attributes:
        end: the last thing known. attempt: at its begin; restarts count on from it.
    """

    source: Literal["launcher", "agent"]
    host: str
    start: float
    end: float
    ended: records.JobEnded | None
    command: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class HeldTime:
    """A time in which units (accelerators; on CPU, places for ranks) were the job's.

    Attributes:
        lanes: the processes that ran on each unit that was used, in order. unused: units of which nothing is known.
        unused_state: where their time goes.
    """

    source: Source
    start: float
    end: float
    lanes: list[list[RankProcess]]
    unused: int = 0
    unused_state: str = UNEXPLAINED

    @property
    def units(self) -> int:
        return len(self.lanes) + self.unused


@dataclass(frozen=True, slots=True)
class JobAllocations:
    """All grants of a job.

    Attributes:
        denominator: the weakest of their sources. launch_of: by (attempt, generation), the last launch that it belongs to.
        queued: intervals and units of waiting for an allocation; None: nobody says.
        missing_ranks: ranks that were to run and left no record.
        ignored: what a scheduler reports beside this job, by its names.
    """

    denominator: Source
    grants: list[HeldTime]
    launch_of: dict[tuple[int, int], Launch]
    queued: list[tuple[float, float, int]] | None = None
    missing_ranks: int = 0
    unseen_accelerators: int = 0
    launches: list[Launch] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


def job_allocations(
    job: JobRecords, runs: Sequence[Run], clock: Clock, allocations: Sequence[allocations_.Allocation] = (), now: float = 0.0
) -> JobAllocations:
    """Return when the job held what. `now`: Unix seconds, up to which an allocation without an end lasts."""
    launches = _launches(job, clock)
    owner = {process.writer: _launch_of(process, launches) for run in runs for process in run.processes}
    grants, left, queued, unseen, ignored = _of_scheduler(runs, clock, allocations, now)
    left, of_launches = _of_launches(left, launches, owner, runs, clock, allocated=bool(grants))
    grants += of_launches
    grants += _of_records(left, clock)
    grants = [_covering(grant) for grant in grants if grant.units]
    missing = _missing(grants, runs) if not unseen else []
    weakest: Source = max((grant.source for grant in grants), key=_PRECEDENCE.index, default="records")
    launch_of = {}
    for run in runs:
        own = [one for process in run.processes if (one := owner[process.writer]) is not None]
        if own:
            launch_of[run.attempt, run.generation] = max(own, key=lambda one: (one.ended is not None, one.end))
    return JobAllocations(
        denominator=weakest,
        grants=[*grants, *missing],
        launch_of=launch_of,
        queued=queued,
        missing_ranks=sum(grant.unused for grant in missing),
        unseen_accelerators=unseen,
        launches=launches,
        ignored=ignored,
    )


def _launches(job: JobRecords, clock: Clock) -> list[Launch]:
    """Return the launches in order. A killed launcher is known until its last record."""
    ends = {row.writer: row for row in job.ends if row.rank == records.LAUNCHER_RANK}
    last: dict[str, float] = {}
    for wrote in (*job.failures, *job.hangs, *job.restarts, *job.notices):
        last[wrote.writer] = max(clock.unix_seconds(wrote), last.get(wrote.writer, 0.0))
    found: list[Launch] = []
    agents: dict[str, list[Launch]] = defaultdict(list)
    for start in job.starts:
        if start.rank != records.LAUNCHER_RANK:
            continue
        ended = ends.get(start.writer)
        end = clock.unix_seconds(ended) if ended else max(clock.unix_seconds(start), last.get(start.writer, 0.0))
        command = start.lineage.get("launch_command", "")
        # An agent comes to know of a job by its processes, a launcher before there are any.
        if start.process_time:
            agents[start.host].append(
                Launch("agent", start.host, clock.seconds(start.process_time), end, ended, command, start.attempt)
            )
        else:
            found.append(Launch("launcher", start.host, clock.unix_seconds(start), end, ended, command, start.attempt))
    for rows in agents.values():  # the node is held between the attempts that its agent saw
        rows.sort(key=lambda one: one.start)
        whole = rows[0]
        for row in rows[1:]:
            if row.start - whole.end > threshold("same_allocation_seconds"):
                found.append(whole)
                whole = row
            else:
                whole = replace(whole, end=max(whole.end, row.end), ended=row.ended)
        found.append(whole)
    return sorted(found, key=lambda one: one.start)


def _launch_of(process: RankProcess, launches: Sequence[Launch]) -> Launch | None:
    """Return the launch that a process belongs to: the newest on its host that was before it, else the newest that was.

    One of a later attempt than the process's is of another run of the job's name that began at the same time.
    """
    off = {one.host: START_KNOWN_SECONDS if one.host == process.host else CLOCKS_AGREE_SECONDS for one in launches}
    before = [one for one in launches if one.start <= process.start + off[one.host]]
    fitting = [one for one in before if one.ended is None or process.start <= one.end + off[one.host]]
    return max(fitting, key=lambda one: _likeness(one, process), default=None)


def _likeness(launch: Launch, process: RankProcess) -> tuple[bool, bool, bool, float]:
    return launch.host == process.host, launch.attempt <= process.attempt, launch.source == "launcher", launch.start


def _of_scheduler(
    runs: Sequence[Run], clock: Clock, allocations: Sequence[allocations_.Allocation], now: float
) -> tuple[list[HeldTime], list[RankProcess], list[tuple[float, float, int]] | None, int, list[str]]:
    """Return the scheduler's grants, the processes that it does not know, the queue, accelerators without a rank, names ignored."""
    if not allocations:
        return [], [process for run in runs for process in run.processes], None, 0, []
    launches = [
        allocations_.Launch(
            start=clock.unix(run.start), end=clock.unix(run.end), hosts=tuple(sorted({p.host for p in run.processes}))
        )
        for run in runs
    ]
    matched = allocations_.match(allocations, launches)
    told = {f"{one.source} {one.name}" for one in allocations}
    allocations = allocations_.of_job(allocations, launches)
    ignored = sorted(told - {f"{one.source} {one.name}" for one in allocations})
    world = max((process.world_size for run in runs for process in run.processes), default=1)
    grants: list[HeldTime] = []
    queued: list[tuple[float, float, int]] = []
    unseen = 0
    for one in allocations:
        members = [p for run, found in zip(runs, matched, strict=True) if found is one for p in run.processes]
        lanes = _lanes(members)
        units = max(len(lanes), one.accelerators, 0 if members else world)
        since = one.placed if one.placed is not None else one.started
        waited = allocations_.queued_seconds(one, now=now)
        if waited and one.submitted is not None:
            queued.append((clock.seconds(one.submitted), clock.seconds(one.submitted) + waited, units))
        if since is None:
            continue
        end = one.ended if one.ended is not None else now
        unused = units - len(lanes)
        unseen += unused if members else 0
        state = UNEXPLAINED if members else "initialisation"
        grants.append(HeldTime(one.source, clock.seconds(since), clock.seconds(max(end, since)), lanes, unused, state))
    left = [p for run, found in zip(runs, matched, strict=True) if found is None for p in run.processes]
    return grants, left, queued if any(one.submitted is not None for one in allocations) else None, unseen, ignored


def _of_launches(
    left: Sequence[RankProcess],
    launches: Sequence[Launch],
    owner: dict[str, Launch | None],
    runs: Sequence[Run],
    clock: Clock,
    *,
    allocated: bool,
) -> tuple[list[RankProcess], list[HeldTime]]:
    by_launch: dict[int, list[RankProcess]] = defaultdict(list)
    without = []
    for process in left:
        launch = owner[process.writer]
        if launch is None:
            without.append(process)
        else:
            by_launch[launches.index(launch)].append(process)
    usual = max((len(_lanes(members)) for members in by_launch.values()), default=0)
    usual = usual or max((process.world_size for run in runs for process in run.processes), default=1)
    ran = [(launches[index].start, launches[index].end) for index in by_launch] + [(one.start, one.end) for one in without]
    grants = []
    for index, launch in enumerate(launches):
        members = by_launch.get(index, [])
        if members:
            grants += _of_launch(launch, overlaps.non_overlapping_groups(members, clock))
        elif not allocated and launch.end > launch.start and not _beside(launch, ran):
            # It never came to a step.
            grants.append(HeldTime(launch.source, launch.start, launch.end, [], usual, "initialisation"))
    return without, grants


def _beside(launch: Launch, ran: Sequence[tuple[float, float]]) -> bool:
    """Return whether ranks that are not its own ran in the same time: then it only started processes elsewhere, or watched."""
    return any(start <= launch.end and launch.start <= end for start, end in ran)


def _of_launch(launch: Launch, strands: Sequence[list[RankProcess]]) -> list[HeldTime]:
    """Return the grants of a launch; attempts that ran at the same time have separate ones."""
    first = min(process.start for strand in strands for process in strand)
    last = max(process.end for strand in strands for process in strand)
    grants = []
    for strand in strands:
        start, end = min(process.start for process in strand), max(process.end for process in strand)
        whole = (launch.start if start == first else start, launch.end if end == last else end)
        grants.append(HeldTime(launch.source, *whole, _lanes(strand)))
    return grants


def _of_records(left: Sequence[RankProcess], clock: Clock) -> list[HeldTime]:
    groups: list[list[RankProcess]] = []
    for strand in overlaps.non_overlapping_groups(left, clock):
        groups += _close_together(strand)
    return [HeldTime("records", min(p.start for p in group), max(p.end for p in group), _lanes(group)) for group in groups]


def _close_together(strand: Sequence[RankProcess]) -> list[list[RankProcess]]:
    """Return processes in groups between which the nodes cannot have been held."""
    groups: list[list[RankProcess]] = []
    until = 0.0
    for process in sorted(strand, key=lambda one: one.start):
        if not groups or process.start - until > threshold("same_allocation_seconds"):
            groups.append([])
        groups[-1].append(process)
        until = max(until, process.end) if len(groups[-1]) > 1 else process.end
    return groups


def _lanes(members: Sequence[RankProcess]) -> list[list[RankProcess]]:
    """Assign consecutive processes to as few units as possible, a rank to its previous unit if that is free."""
    lanes: list[list[RankProcess]] = []
    for process in sorted(members, key=lambda one: (one.start, one.rank)):
        first = overlaps.first_sign(process)
        free = [lane for lane in lanes if _follows(process, first, lane[-1])]
        lane = max(free, key=lambda row: (row[-1].host == process.host, row[-1].rank == process.rank, row[-1].end), default=None)
        if lane is None:
            lanes.append([process])
        else:
            lane.append(process)
    return lanes


def _follows(process: RankProcess, first: float, before: RankProcess) -> bool:
    """Return whether a process came after another. That one was gone is seen a little late, and clocks of hosts differ a little.

    Args:
        first: see `overlaps.first_sign`; it is asked for as many others as there are ranks.
    """
    late = before.end - process.start
    return before.end <= first and (late <= 0 or (late <= CLOCKS_AGREE_SECONDS and process.attempt > before.attempt))


def _covering(grant: HeldTime) -> HeldTime:
    """Extend a grant to all of its processes: schedulers give whole seconds, killed launchers no end."""
    members = [process for lane in grant.lanes for process in lane]
    return replace(
        grant,
        start=min([grant.start, *(process.start for process in members)]),
        end=max([grant.end, *(process.end for process in members)]),
    )


def _missing(grants: Sequence[HeldTime], runs: Sequence[Run]) -> list[HeldTime]:
    """Return grants for ranks without records, for the time of those that share an attempt with others."""
    found = []
    pool = [(grant, {(p.attempt, p.generation) for lane in grant.lanes for p in lane}) for grant in grants if grant.lanes]
    while pool:
        group, keys = [pool[0][0]], set(pool.pop(0)[1])
        while more := [one for one in pool if one[1] & keys]:
            pool = [one for one in pool if not one[1] & keys]
            group += [grant for grant, _ in more]
            keys |= {key for _, own in more for key in own}
        own_runs = [run for run in runs if (run.attempt, run.generation) in keys]
        world = max(process.world_size for run in own_runs for process in run.processes)
        seen = max(len({process.rank for process in run.processes}) for run in own_runs)
        if world > seen:
            start, end = min(grant.start for grant in group), max(grant.end for grant in group)
            found.append(HeldTime(group[0].source, start, end, [], world - seen))
    return found
