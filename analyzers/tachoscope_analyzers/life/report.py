"""From the records of a job to the report on its whole life."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.attempts import allocations as grants
from tachoscope_analyzers.attempts import notes as odd_jobs
from tachoscope_analyzers.attempts.allocations import JobAllocations
from tachoscope_analyzers.attempts.endings import AttemptEnding, ending, launch_of, with_hang_until
from tachoscope_analyzers.attempts.hangs import HangEvidence, HangThreshold, normal_of
from tachoscope_analyzers.attempts.maintenance import Interval, NetTime, merged
from tachoscope_analyzers.attempts.processes import Clock, processes
from tachoscope_analyzers.attempts.step_numbering import Run, runs
from tachoscope_analyzers.checkpoint_policy import advisor
from tachoscope_analyzers.classify import outside_torch
from tachoscope_analyzers.data.prices import Price, cost
from tachoscope_analyzers.failures.report import failures_of_runs, with_root
from tachoscope_analyzers.findings.missing_signals import missing_signals
from tachoscope_analyzers.job.report import unread
from tachoscope_analyzers.life import checkpoint_costs as saves
from tachoscope_analyzers.life import findings as verdicts
from tachoscope_analyzers.life import losses, recoveries, suspects
from tachoscope_analyzers.life import phases as course
from tachoscope_analyzers.life.counted_time import LifeTime, life_time
from tachoscope_analyzers.life.ledger import RunBooks, States, Waterfall, books_of, total
from tachoscope_analyzers.life.quality import notes
from tachoscope_analyzers.records.life_records import LifeRecords, Progress, of_job
from tachoscope_analyzers.records.lineage import in_quarantine, lineage, review
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.stats.distribution import Distribution
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import TRAINING_STATES
from tachoscope_core.report.failures import Failure
from tachoscope_core.report.job_life import NOBODYS, Advice, Attempt, CheckpointCosts, Cost, Life, Recovery, Suspect
from tachoscope_core.report.report import Finding, Ledger, NotMeasured, Report, StepSeconds, Window
from tachoscope_core.report.taxonomy import BY_SLUG

_OF_ONE_ATTEMPT = "judged for one attempt: tachoscope analyze"


@dataclass(frozen=True, slots=True)
class LifeParts:
    """What was made out of a job's records, for the parts of its report. new_seconds: see `RunBooks`, of all attempts."""

    job: JobRecords
    clock: Clock
    runs: list[Run]
    endings: list[AttemptEnding]
    books: list[RunBooks]
    new_seconds: Distribution
    held: JobAllocations
    time: LifeTime
    normal: HangThreshold
    failures: list[Failure]
    recoveries: list[Recovery]
    costs: CheckpointCosts | None

    @property
    def total(self) -> Waterfall:
        """Seconds by state of all attempts and of the time between them."""
        return self.time.total


def analyze_life(
    recorded: JobRecords | LifeRecords,
    *,
    allocations: Sequence[Allocation] = (),
    maintenance: Sequence[Interval] = (),
    prices: Sequence[Price] = (),
    now: float | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge a job over all its attempts.

    The main ledger is in rank-seconds; its wall time is what was allocated, and the queue before it.

    Args:
        allocations: those of a scheduler; without any, the records of launcher and agent give how long the job held its ranks.
        maintenance: intervals in Unix seconds that count for nothing.
        prices: of an hour of each device.
        now: Unix seconds, up to which what still runs is counted; default: the clock's.
        progress: called with the part of the steps that was attributed, 0 to 1.

    Raises:
        TachoscopeError: there is no record of a start of the job.
    """
    records = recorded if isinstance(recorded, LifeRecords) else of_job(recorded)
    job = records.job
    if not job.starts:
        raise TachoscopeError(
            f"job {job.job!r} has {job.source.records} records but no start of a process", fix="tachoscope store ls"
        )
    story = _story(records, allocations, maintenance, time.time() if now is None else now, progress or (lambda _: None))
    allocated, states = story.total.allocated_seconds, dict(story.total.states)
    queued = _queued(story.held, story.clock, maintenance)
    if queued:
        states["queued"] = queued
    walls = story.new_seconds
    p50, p95, p99 = walls.quantiles([0.5, 0.95, 0.99])
    new_steps = sum(book.new_steps for book in story.books)
    ledger = Ledger(
        unit="rank",
        wall_seconds=allocated + (queued or 0.0),
        states={state: states[state] for state in TRAINING_STATES if states.get(state, 0.0) > 0},
    )
    faults = story.costs.faults if story.costs is not None else None
    advice = _advice(story, walls.mean)
    return Report(
        job=job.job,
        window=_window(story, new_steps),
        ranks=_ranks(story),
        sources=[job.source, *([job.gpus.source] if job.gpus.source else [])],
        step_seconds=StepSeconds(mean=walls.mean, p50=p50, p95=p95, p99=p99),
        ledgers=[ledger],
        goodput=states.get("compute", 0.0) / allocated if allocated > 0 and outside_torch.goodput_measured(records.steps) else None,
        findings=_findings(story, new_steps, advice),
        not_measured=_not_measured(story),
        quality=[
            *odd_jobs.notes_of_records(job),
            *unread(job),
            *notes(job, story.runs, story.held, story.total, story.clock),
            *story.time.notes,
        ],
        lineage=lineage(job),
        review=review(job, faults),
        failures=story.failures,
        life=_life(story, prices, queued, new_steps, advice),
    )


def _window(story: LifeParts, steps: int) -> Window:
    """Return the time in which the job held its ranks."""
    start = min((grant.start for grant in story.held.grants), default=0.0)
    end = max((grant.end for grant in story.held.grants), default=0.0)
    return Window(start=story.clock.unix(start), end=story.clock.unix(end), steps=steps)


def _life(story: LifeParts, prices: Sequence[Price], queued: float | None, new_steps: int, advice: list[Advice]) -> Life:
    return Life(
        denominator=story.held.denominator,
        ledger=story.time.ledger,
        allocated_seconds=story.total.allocated_seconds,
        queued_seconds=queued,
        excluded_seconds=story.total.excluded_seconds,
        new_steps=new_steps,
        attempts=_attempts(story),
        recoveries=story.recoveries,
        notices=recoveries.notices(story.job, story.runs, story.endings, story.clock),
        suspects=_suspects(story),
        checkpoints=story.costs,
        advice=advice,
        cost=_cost(story, prices),
    )


def _story(
    life: LifeRecords, allocations: Sequence[Allocation], maintenance: Sequence[Interval], now: float, progress: Progress
) -> LifeParts:
    job = life.job
    clock = Clock(job)
    found = processes(life, clock)
    attempts = runs(found, clock)
    normal = normal_of(life, found)
    if attempts:
        attempts[-1] = with_hang_until(attempts[-1], job, clock, normal, now)
        found = [process for run in attempts for process in run.processes]
    held = grants.job_allocations(job, attempts, clock, allocations, now)
    net = NetTime((clock.seconds(start), clock.seconds(end)) for start, end in maintenance)
    said = [HangEvidence(clock.seconds(row.since_time), row.failed_writer, row.why) for row in job.hangs]
    witnesses = [launch_of(run, attempts, held, clock) for run in attempts]
    endings = [
        ending(run, job, clock, normal, launch, last=last, now=now) for run, (launch, last) in zip(attempts, witnesses, strict=True)
    ]
    # How an attempt ended does not hang on the numbers of its steps, but these hang on that.
    completed = {run.key for run, end in zip(attempts, endings, strict=True) if end.kind == "completed"}
    attempts = runs(found, clock, completed)
    failures = failures_of_runs(job, clock, attempts, normal)
    endings = [with_root(end, run, failures) for run, end in zip(attempts, endings, strict=True)]
    new_seconds = Distribution()
    books = [
        books_of(run, end, normal, net, said, new_seconds, told)
        for run, end, told in zip(attempts, endings, _parts_of(attempts, progress), strict=True)
    ]
    by_process: dict[str, States] = {}
    for book in books:
        by_process |= book.by_process
    of_records = total(held.grants, by_process, net)
    # Of a queue and of maintenance agents know nothing.
    counted = [] if allocations or maintenance else job.counted
    return LifeParts(
        job=job,
        clock=clock,
        runs=attempts,
        endings=endings,
        books=books,
        new_seconds=new_seconds,
        held=held,
        time=life_time(counted, of_records, attempts, endings, clock),
        normal=normal,
        failures=failures,
        recoveries=recoveries.recoveries(books, endings, clock),
        costs=saves.costs(job, attempts, clock),
    )


def _parts_of(attempts: Sequence[Run], progress: Progress) -> Iterator[Progress]:
    """Yield for each attempt what is to be told which part of its steps was attributed."""
    counts = [sum(process.steps for process in run.processes) for run in attempts]
    every, done = max(sum(counts), 1), 0
    for count in counts:
        yield lambda part, before=done, more=count: progress((before + part * more) / every)  # type: ignore[misc]
        done += count


def _queued(held: JobAllocations, clock: Clock, maintenance: Sequence[Interval]) -> float | None:
    if held.queued is None:
        return None
    net = NetTime((clock.seconds(start), clock.seconds(end)) for start, end in maintenance)
    return sum(net.length(start, end) * units for start, end, units in held.queued)


def _attempts(story: LifeParts) -> list[Attempt]:
    return [course.attempt(book, end, story.normal, story.clock) for book, end in zip(story.books, story.endings, strict=True)]


def _findings(story: LifeParts, new_steps: int, advice: Sequence[Advice]) -> list[Finding]:
    base = verdicts.Base(story.total.allocated_seconds, _ranks(story), new_steps)
    found = [
        story.time.as_counted(losses.lost_work(story.books, story.endings, story.recoveries, story.total), "lost_work"),
        losses.checkpoint_stall(story.costs, story.total, advice),
        story.time.as_counted(losses.hang(story.books, story.endings, story.clock), "hung"),
    ]
    return verdicts.findings(found, base)


def _not_measured(story: LifeParts) -> list[NotMeasured]:
    missing = {slug: _OF_ONE_ATTEMPT for slug in BY_SLUG if slug not in missing_signals()} | missing_signals()
    for slug in verdicts.CLASSES:
        missing.pop(slug, None)
    if not story.held.launches:
        missing["hang"] = "someone who watches the processes (tachoscope run, or a node agent): how they ended is guessed"
    if not any(run.own_steps for run in story.runs):
        missing |= dict.fromkeys(verdicts.CLASSES, "steps: no attempt finished one")
    return [NotMeasured(class_=slug, missing=missing[slug]) for slug in BY_SLUG if slug in missing]


def _suspects(story: LifeParts) -> list[Suspect]:
    failures = [
        suspects.HostFailure(host=end.process.host, job=story.job.job, attempt=run.attempt)
        for run, end in zip(story.runs, story.endings, strict=True)
        if end.failed and end.kind not in NOBODYS and end.process is not None
    ]
    exposure: defaultdict[str, float] = defaultdict(float)
    for run in story.runs:
        for process in run.processes:
            exposure[process.host] += process.end - process.start
    reads = Counter(row.shard for row in story.job.shard_reads) + Counter(row.shard for row in story.job.shard_failures)
    shard_failures = [
        suspects.ShardFailure(shard=row.shard, job=story.job.job, attempt=row.attempt, rank=row.rank)
        for row in story.job.shard_failures
    ]
    # One host, or one shard, cannot fail more often than the others.
    hosts = suspects.hosts(failures, exposure) if len(exposure) > 1 else []
    return [*hosts, *suspects.shards(shard_failures, reads, quarantined=in_quarantine(story.job))]


def _cost(story: LifeParts, prices: Sequence[Price]) -> Cost:
    devices = Counter(process.device_name for run in story.runs for process in run.processes if process.device != "cpu")
    hours = {state: story.total.states[state] / 3600 for state in TRAINING_STATES if story.total.states.get(state)}
    return cost(
        hours, device_name=max(devices, key=devices.__getitem__, default=""), gpus=_ranks(story) if devices else 0, table=prices
    )


def _ranks(story: LifeParts) -> int:
    return max((len(run.processes) for run in story.runs), default=max((grant.units for grant in story.held.grants), default=0))


def _advice(story: LifeParts, step_seconds: float) -> list[Advice]:
    if story.costs is None or not story.costs.saves:
        return []
    kinds = Counter(end.kind for end in story.endings if end.failed)
    restarts = [
        (one.detect_seconds or 0.0)
        + (one.reschedule_seconds or 0.0)
        + (one.rendezvous_seconds or 0.0)
        + one.initialise_seconds
        + (one.restore_seconds or 0.0)
        for one in story.recoveries
        if one.initialise_seconds is not None
    ]
    lasted = sum(end - start for start, end in merged((grant.start, grant.end) for grant in story.held.grants))
    return advisor.advise(
        story.costs,
        failures=sum(count for kind, count in kinds.items() if kind not in NOBODYS),
        preemptions=kinds["preempted"],
        life_seconds=lasted,
        shortest_seconds=step_seconds,
        restart_seconds=float(np.median(restarts)) if restarts else None,
        hosts=max((len({process.host for process in run.processes}) for run in story.runs), default=1),
    )
