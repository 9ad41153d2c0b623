"""Evidence about nodes from what the store has anyway: failures and hangs of jobs, preflights, and what agents report of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.submitted_jobs import TrainingJobs
from tachoscope_core.report.failures import Failure, suspect_host
from tachoscope_core.storage import preflights
from tachoscope_core.storage.node_status import NodeStatus
from tachoscope_core.storage.store import Store
from tachoscope_watch.nodes.states import Booted, Evidence, Kind
from tachoscope_watch.view import JobView

_SURE = 0.9
"""Confidence of a hang of which the rank is known."""
_OF_VIEWS: dict[str, Kind] = {"host_lost": "host_lost", "hang": "hang"}
"""Causes that count without the word of an engine: whether it or a person killed a process is not known otherwise."""
_OF_ATTEMPTS: dict[str, Kind] = {**_OF_VIEWS, "killed": "killed"}


def of_views(views: Iterable[JobView]) -> Iterator[Evidence]:
    """Yield what the failures and hangs of jobs say of their hosts."""
    for view in views:
        if view.failure is not None and (host := suspect_host(view.failure, by_engine=False)):
            yield from _of_failure(view.job, view.failure, host, _OF_VIEWS)
        ranks = view.hang.ranks if view.hang is not None and view.hang.confidence >= _SURE else []
        for worker in view.workers:
            if ranks != "all" and worker.rank in ranks:
                yield Evidence(worker.host, f"{view.job} hang {view.hang_since:.0f}", "hang", view.hang_since, job=view.job)


def of_submitted_jobs(store: Store, jobs: Sequence[str], faults: list[str]) -> Iterator[Evidence]:
    """Yield what the attempts of submitted jobs say of their hosts. jobs: those that are looked for.

    Raises:
        TachoscopeError: the store cannot be listed.
    """
    submitted = TrainingJobs(store)
    for name in sorted(set(jobs) & set(submitted.names())):
        try:
            attempts = submitted.status(name).attempts
        except TachoscopeError as error:
            faults.append(str(error))
            continue
        for attempt in attempts:
            ended_by_engine = attempt.ended_by_engine or attempt.decision == "cancelled"
            host = suspect_host(attempt.failure, by_engine=ended_by_engine, names=attempt.hosts)
            if attempt.failure is not None and host:
                yield from _of_failure(name, attempt.failure, host, _OF_ATTEMPTS)


def _of_failure(job: str, failure: Failure, host: str, kinds: Mapping[str, Kind]) -> Iterator[Evidence]:
    if (kind := kinds.get(failure.cause)) is not None:
        yield Evidence(host, f"{job} attempt {failure.attempt}", kind, failure.time, job=job)


def of_nodes(statuses: Iterable[NodeStatus]) -> Iterator[Booted | Evidence]:
    """Yield the boots of nodes and the Xid errors of their GPUs that make a GPU unhealthy, as the agents report them."""
    for status in statuses:
        if status.booted_at:
            yield Booted(status.node, status.booted_at)
        for xid in status.xids:
            detail = f"{xid.xid} on GPU {xid.gpu}"
            yield Evidence(status.node, f"xid {xid.xid} {xid.gpu} {xid.time:.0f}", "xid", xid.time, detail)


class Preflights:
    """Remembers which results of preflights were read: they never change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, Evidence | None] = {}

    def unfit(self, since: float, faults: list[str]) -> list[Evidence]:
        """Return which nodes were found unfit after a time, Unix seconds.

        Raises:
            TachoscopeError: the store cannot be listed.
        """
        paths = preflights.since(self._store, since)
        self._read = {path: found for path, found in self._read.items() if path in paths}
        for path in paths:
            if path in self._read:
                continue
            try:
                result = preflights.read(self._store, path)
            except Exception as error:  # each object store has its own; other results count all the same
                faults.append(f"{path} was left out: {error}")
                continue
            unfit = result.verdict == "unfit"
            evidence = Evidence(result.host, f"preflight {result.time:.3f}", "preflight", result.time, result.why[:200])
            self._read[path] = evidence if unfit else None
        return [found for found in self._read.values() if found is not None]


def node_names(hosts: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the scheduler's name of each host that it knows: the same, or the same up to the domain if only one node is."""
    names = set(known)
    short: dict[str, list[str]] = {}
    for name in names:
        short.setdefault(name.partition(".")[0], []).append(name)
    found = {}
    for host in hosts:
        alike = short.get(host.partition(".")[0], [])
        if host in names:
            found[host] = host
        elif len(alike) == 1:
            found[host] = alike[0]
    return found
