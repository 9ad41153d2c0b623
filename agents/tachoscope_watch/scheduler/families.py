"""Metrics of a cluster's queue and accelerators."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow
from tachoscope_analyzers.schedulers.slurm.queue_table import NodeAccelerators, QueuedJob
from tachoscope_core.metrics import scheduler as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.buckets import Buckets, empty_buckets
from tachoscope_service.metrics.family import Family, Histogram
from tachoscope_watch.scheduler.slurm import Snapshot

MOST_LABELS = 100
"""Partitions and accounts that are shown; the others are together `other`."""
_INTERRUPTIONS = {
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node_failed",
    "REQUEUED": "requeued",
    "REQUEUE_HOLD": "requeued",
    "REQUEUE_FED": "requeued",
}
MOST_INTERRUPTED = 10_000
"""Jobs of which the next start is waited for; of more, the ones that were interrupted first are forgotten."""
_UNNAMED_SECONDS = 3600.0
"""How long after its start a job may be named by the agents: processes begin late where an image is loaded."""
_Key = tuple[str, float | None, float | None]


class Events:
    """Counts what happened to jobs since `began`, Unix seconds: each start and each interruption once."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._seen: set[tuple[str, _Key]] = set()
        self._waits: dict[str, Buckets] = {}
        self._requeues: dict[str, Buckets] = {}
        self._interrupted: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._unnamed: dict[str, tuple[SacctRow, float]] = {}
        self._interruptions: Counter[tuple[str, str]] = Counter()

    def take(self, rows: Iterable[SacctRow], jobs: Mapping[str, str] = MappingProxyType({})) -> None:
        """Count what is new in the job records; of a heterogeneous job all components are one start.

        Args:
            jobs: which job of tachoscope runs in a job of the scheduler: each attempt of `tachoscope submit` is another one there.
        """
        self._names |= jobs
        seen = set()
        for key, parts in sorted(_by_allocation(rows).items(), key=lambda item: _begin(item[1])):
            # Of a job that ends at once Slurm writes a part first, and completes it some seconds later.
            if not sum(row.accelerators for row in parts) or not parts[0].partition:
                continue
            starts = [row.started for row in parts if row.held and row.started is not None]
            eligible = [row.eligible for row in parts if row.eligible is not None]
            if len(starts) == len(parts) and eligible and max(starts) >= self._began:
                seen.add(("start", key))
                if ("start", key) not in self._seen:
                    wait = max(max(starts) - max(eligible), 0.0)
                    self._waits[self._partition(parts[0])].observe(wait, names.GANG_WAIT.buckets)
                    self._started(parts[0], max(starts))
            kind = next((_INTERRUPTIONS[row.states[0]] for row in parts if row.states[0] in _INTERRUPTIONS), None)
            if kind is not None and max(row.ended or 0.0 for row in parts) >= self._began:
                seen.add(("end", key))
                if ("end", key) not in self._seen:
                    self._interruptions[self._partition(parts[0]), kind] += 1
                    self._interrupted.pop(parts[0].job, None)
                    self._interrupted[parts[0].job] = max(row.ended or 0.0 for row in parts)
        # What is absent from one answer is in no later one: it ended before the time that is asked for.
        self._seen = seen
        self._started_by_name()
        for known in (self._interrupted, self._names, self._unnamed):
            for oldest in list(known)[: max(len(known) - MOST_INTERRUPTED, 0)]:
                del known[oldest]

    def _started(self, row: SacctRow, started: float) -> None:
        """Count how long a job that was interrupted did not run; a new job may go on with one, which its name says later."""
        if row.job in self._interrupted:
            self._observe(row, started, self._interrupted.pop(row.job))
        elif self._interrupted:
            self._unnamed[row.job] = (row, started)

    def _started_by_name(self) -> None:
        interrupted = {name: job for job in self._interrupted if (name := self._names.get(job))}
        for row, started in list(self._unnamed.values()):
            before = interrupted.pop(self._names.get(row.job, ""), None)
            if before is not None:
                self._observe(row, started, self._interrupted.pop(before))
        newest = max((started for _, started in self._unnamed.values()), default=0.0)
        self._unnamed = {
            job: (row, started)
            for job, (row, started) in self._unnamed.items()
            if job not in self._names and newest - started < _UNNAMED_SECONDS
        }

    def _observe(self, row: SacctRow, started: float, ended: float) -> None:
        if started >= ended:
            self._requeues[self._partition(row)].observe(started - ended, names.REQUEUE_SECONDS.buckets)

    def _partition(self, row: SacctRow) -> str:
        name = row.partition if row.partition in self._waits or len(self._waits) < MOST_LABELS else "other"
        self._waits.setdefault(name, empty_buckets(names.GANG_WAIT.buckets))
        self._requeues.setdefault(name, empty_buckets(names.REQUEUE_SECONDS.buckets))
        return name

    def families(self, partitions: Iterable[str]) -> list[Family]:
        """Return the counters; 0 for partitions in which nothing happened."""
        known = sorted({*partitions, *self._waits})
        ends = [(name, state) for name in known for state in names.INTERRUPTION_STATES]
        return [
            _histograms(names.GANG_WAIT, known, self._waits),
            _histograms(names.REQUEUE_SECONDS, known, self._requeues),
            Family(names.INTERRUPTIONS, [(end, float(self._interruptions[end])) for end in ends]),
        ]


def _histograms(metric: Metric, partitions: Iterable[str], found: Mapping[str, Buckets]) -> Family:
    none = empty_buckets(metric.buckets)
    shown = [(name, found.get(name, none)) for name in partitions]
    return Family(metric, [((name,), Histogram(tuple(buckets.counts), buckets.sum)) for name, buckets in shown])


def _begin(parts: Iterable[SacctRow]) -> float:
    """Return when an allocation began; those that wait are last. An end so comes before the start that follows it."""
    return max(row.started if row.started is not None else math.inf for row in parts)


def _by_allocation(rows: Iterable[SacctRow]) -> dict[_Key, list[SacctRow]]:
    """Return the job records of each allocation; those of one that waits have no start, and so another key than later."""
    found: dict[_Key, list[SacctRow]] = defaultdict(list)
    for row in rows:
        found[row.job, row.submitted, row.started].append(row)
    return found


def families(snapshot: Snapshot, events: Events, activity: Callable[[QueuedJob], str]) -> list[Family]:
    """Return all metrics of a cluster. `activity`: what the records of a job that has accelerators say."""
    jobs = [job for job in snapshot.jobs if job.accelerators]
    partitions = _most({name: 1 for node in snapshot.nodes for name in node.partitions})
    return [
        *_pending([job for job in jobs if job.pending], partitions, snapshot.time),
        *events.families(partitions),
        Family(names.ACCELERATORS, [((state,), float(n)) for state, n in _accelerators(snapshot.nodes).items()]),
        _held([job for job in jobs if not job.pending], activity),
    ]


def _pending(jobs: list[QueuedJob], partitions: set[str], now: float) -> list[Family]:
    shown = partitions | _most(Counter(job.partition for job in jobs))
    counts: Counter[tuple[str, str]] = Counter({(name, state): 0 for name in shown for state in names.PENDING_STATES})
    accelerators = counts.copy()
    oldest: dict[str, float] = {}
    for job in jobs:
        partition = job.partition if job.partition in shown else "other"
        waits = job.eligible is not None and job.eligible <= now
        key = (partition, "eligible" if waits else "not_eligible")
        counts[key] += job.tasks
        accelerators[key] += job.tasks * job.accelerators
        if waits and job.eligible is not None:
            oldest[partition] = max(now - job.eligible, oldest.get(partition, 0.0))
    return [
        Family(names.PENDING_JOBS, [(key, float(count)) for key, count in sorted(counts.items())]),
        Family(names.PENDING_ACCELERATORS, [(key, float(count)) for key, count in sorted(accelerators.items())]),
        Family(names.OLDEST_PENDING, [((name,), seconds) for name, seconds in sorted(oldest.items())]),
    ]


def _accelerators(nodes: Iterable[NodeAccelerators]) -> dict[str, int]:
    counts = dict.fromkeys(names.ACCELERATOR_STATES, 0)
    for node in nodes:
        counts["allocated"] += node.used
        counts["idle" if node.state == "usable" else node.state] += max(node.total - node.used, 0)
    return counts


def _held(jobs: list[QueuedJob], activity: Callable[[QueuedJob], str]) -> Family:
    by_account: Counter[str] = Counter()
    for job in jobs:
        by_account[job.account] += job.accelerators
    shown = _most(by_account)
    counts: Counter[tuple[str, str]] = Counter({(account, kind): 0 for account in shown for kind in names.ACTIVITIES})
    for job in jobs:
        counts[job.account if job.account in shown else "other", activity(job)] += job.accelerators
    return Family(names.ACCELERATORS_HELD, [(key, float(count)) for key, count in sorted(counts.items())])


def _most(counts: dict[str, int]) -> set[str]:
    """Return the names with the highest counts, `MOST_LABELS` at most."""
    return set(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_LABELS])
