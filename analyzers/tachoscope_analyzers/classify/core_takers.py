"""Who took the cores that a training thread waited for: the job itself, which can change that, or the machine.

A thread waits for a core where more is to be run than there are cores. Of a job itself that is more processes, workers and compute
threads than fit; what others run on its host, or a CPU quota that stops it, is a condition that it trains under.

Ranks that compute at the same moment wait for each other even where they leave cores idle for the rest of the step. Nothing in
the job is to be changed then: fewer ranks would do less work in a step that is hardly shorter. So that is a condition too, and no
warning.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks
from tachoscope_analyzers.records.cores import CoreUsers, takers_of
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.report.report import Evidence, Severity
from tachoscope_core.report.taxonomy import CORES_USED


@dataclass(frozen=True, slots=True)
class CoreVerdict:
    """Who took the cores (`cause`, empty: not known), whether that is a condition of the machine, and the highest
    severity that it may have.
    """

    cause: str
    condition: bool
    action: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    at_most: Severity = "critical"


def find_takers(job: JobRecords, steps: Steps, ranks: Ranks) -> CoreVerdict:
    """Return who took the cores that these ranks waited for."""
    mine = steps.ranks if ranks == "all" else ranks
    found = takers_of(job, steps, mine)
    if found is None:
        return _by_configuration(steps)
    evidence = _evidence(found)
    few = threshold("others_cores_ratio") * found.all
    if found.others >= max(few, found.workers):
        action = (
            f"other processes use {found.others:.1f} of the {found.all} cores: find them (`pidstat -u 1`), stop or move them, or "
            "pin the ranks to cores of their own"
        )
        return CoreVerdict("other_processes", condition=True, action=action, evidence=evidence, at_most="warning")
    if found.workers_per_rank and found.workers >= few:
        action = (
            f"the loader workers use {found.workers:.1f} of the {found.all} cores, and the training thread waits for one: fewer "
            f"than the {found.workers_per_rank} workers of each rank (num_workers), a cheaper transform, or fewer than the "
            f"{found.threads_per_rank} compute threads (torch.set_num_threads)"
        )
        return CoreVerdict("loader_workers", condition=False, action=action, evidence=evidence)
    idle = found.all - (found.ranks + found.workers + found.other_ranks + found.others)
    return _too_many(found.ranks_here, found.threads_per_rank, found.all, evidence, idle)


def _by_configuration(steps: Steps) -> CoreVerdict:
    """Return the verdict for old records without measured CPU use: threads against cores."""
    hosts = [start.host for start in steps.starts]
    fullest = max(set(hosts), key=lambda host: (hosts.count(host), host), default="")
    starts = [start for start in steps.starts if start.host == fullest]
    cores = max((start.cpu_count for start in starts), default=0)
    return _too_many(len(starts), max((start.cpu_threads for start in starts), default=0), cores, [])


def _too_many(ranks: int, threads: int, cores: int, evidence: list[Evidence], idle: float = 0.0) -> CoreVerdict:
    """Return whether the ranks' compute threads exceed the cores, of which so many were idle on average (0: not known)."""
    wanted = threads * ranks
    if not wanted or not cores:
        return CoreVerdict("", condition=True, evidence=evidence, at_most="warning")
    row = Evidence(
        signal="compute threads of the ranks on one host",
        value=float(wanted),
        threshold=float(cores),
        comparison=">" if wanted > cores else "<=",
        unit="threads; threshold: cores",
        source="job start",
    )
    evidence = [*evidence, row]
    if wanted <= cores:
        return CoreVerdict("", condition=True, evidence=evidence, at_most="warning")
    if threads > 1:  # how many fit is said where advice in numbers is made
        return CoreVerdict("compute_threads", condition=False, evidence=evidence)
    if idle < threshold("others_cores_ratio") * cores:
        action = f"{ranks} ranks train on the {cores} cores of this host: start at most {cores} here, or give the host more cores"
        return CoreVerdict("other_ranks", condition=False, action=action, evidence=evidence)
    action = (
        f"{ranks} ranks compute at the same moment on the {cores} cores of this host, of which {idle:.1f} are idle on average: "
        "more cores make the step shorter, fewer ranks would do less work in it"
    )
    return CoreVerdict("ranks_at_once", condition=True, action=action, evidence=evidence, at_most="info")


def _evidence(found: CoreUsers) -> list[Evidence]:
    rows = {
        "cores used by the training processes of these ranks": found.ranks,
        CORES_USED["loader_workers"]: found.workers,
        "cores used by other ranks of the job": found.other_ranks,
        CORES_USED["other_processes"]: found.others,
    }
    return [
        Evidence(
            signal=signal,
            value=used,
            threshold=float(found.all),
            comparison="<=",
            unit="cores",
            source="heartbeats; threshold: the host's cores",
        )
        for signal, used in rows.items()
    ]
