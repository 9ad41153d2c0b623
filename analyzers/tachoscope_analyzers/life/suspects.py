"""Hosts and data shards that fail more often than the others, and how sure that is.

Somebody always has the most failures. So the question is not who has many, but how likely so many or more would be if all failed
alike: a host then gets each failure with the probability of its share of the exposure. That is tested exactly, also for few
failures, and the answer is corrected for having looked at every host. When a host failed and what of plays no part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_core.report.job_life import NOBODYS, Life, Suspect

Kind = Literal["host", "shard"]
_Chances = npt.NDArray[np.float64]
_Stratum = tuple[Counter[str], Mapping[str, float]]
"""Failures by name, and the exposure of all among whom they were shared out."""


@dataclass(frozen=True, slots=True)
class HostFailure:
    """A failure of a job that began on `host`: of each attempt only the first, since the other ranks die of it."""

    host: str
    job: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class ShardFailure:
    """A read of a data shard that failed."""

    shard: str
    job: str = ""
    attempt: int = 0
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures over several jobs, most first: `by_host`, `by_job` (attempts that failed), `by_shard`; and who fails too often."""

    by_host: dict[str, int]
    by_job: dict[str, int]
    by_shard: dict[str, int]
    suspects: list[Suspect]


def hosts(failures: Sequence[HostFailure], exposure: Mapping[str, float]) -> list[Suspect]:
    """Return the hosts that failed, the most suspicious first.

    Args:
        exposure: rank-seconds that each host of the fleet was in use, those that never failed included.
    """
    return _suspects("host", [(Counter(failure.host for failure in failures), exposure)])


def shards(failures: Sequence[ShardFailure], exposure: Mapping[str, float], *, quarantined: Collection[str] = ()) -> list[Suspect]:
    """Return the data shards that failed, the most suspicious first.

    A rank that fails at one shard again and again is one failure for each attempt: it is one cause.

    Args:
        exposure: how often each shard was read or tried, those that never failed included. quarantined: shards on the list.
    """
    once = {(failure.job, failure.attempt, failure.rank, failure.shard): failure.shard for failure in failures}
    return _suspects("shard", [(Counter(once.values()), exposure)], quarantined)


def over_jobs(lives: Mapping[str, Life], *, shard_reads: Mapping[str, Mapping[str, float]] | None = None) -> Failures:
    """Return the failures of several jobs together.

    A job's failures are shared out only among the hosts of the attempt that failed, alike, so that a job that fails everywhere does
    not count against its hosts. Preemptions, interrupts by the user and hangs that passed by themselves are nobody's failures. Data
    shards are compared over the jobs whose reads are known.

    Args:
        lives: by job. shard_reads: by job and shard, how often it was read or tried.
    """
    on_hosts: list[_Stratum] = []
    on_shards: list[_Stratum] = []
    by_job: Counter[str] = Counter()
    quarantined: set[str] = set()
    for job, life in lives.items():
        attempts = {attempt.attempt: attempt.hosts for attempt in life.attempts}
        for recovery in life.recoveries:
            # A hang that passed has no end of an attempt that could be noticed.
            if recovery.kind in NOBODYS or (recovery.kind == "hung" and recovery.detect_seconds is None):
                continue
            by_job[job] += 1
            among = dict.fromkeys(attempts.get(recovery.attempt, []), 1.0)
            on_hosts.append((Counter([recovery.host]), among))
        listed = [suspect for suspect in life.suspects if suspect.kind == "shard"]
        on_shards.append((Counter({shard.name: shard.failures for shard in listed}), (shard_reads or {}).get(job, {})))
        quarantined |= {shard.name for shard in listed if shard.quarantined}
    # A host that was always alone cannot fail more often than others.
    comparable = any(len(among) != 1 for _, among in on_hosts)
    return Failures(
        by_host=dict(_counts(on_hosts).most_common()),
        by_job=dict(by_job.most_common()),
        by_shard=dict(_counts(on_shards).most_common()),
        suspects=(_suspects("host", on_hosts) if comparable else []) + _suspects("shard", on_shards, quarantined),
    )


def _counts(strata: Sequence[_Stratum]) -> Counter[str]:
    """Return the failures by name; those without a name belong to nobody."""
    total: Counter[str] = Counter()
    for failures, _ in strata:
        total.update({name: count for name, count in failures.items() if name})
    return total


def _suspects(kind: Kind, strata: Sequence[_Stratum], quarantined: Collection[str] = ()) -> list[Suspect]:
    """Test each name that failed. A failure whose name or exposure is not known tells nothing about anybody and is left out."""
    known = [
        (Counter({name: count for name, count in failures.items() if exposure.get(name, 0.0) > 0}), exposure)
        for failures, exposure in strata
    ]
    expected: dict[str, float] = {}
    chances: dict[str, float] = {}
    for name, count in _counts(known).items():
        shares = [
            (failures.total(), exposure.get(name, 0.0) / math.fsum(exposure.values())) for failures, exposure in known if failures
        ]
        expected[name] = math.fsum(trials * share for trials, share in shares)
        chances[name] = at_least(count, shares)
    looked_at = len({name for _, exposure in known for name, amount in exposure.items() if amount > 0})
    confidences = {name: 1 - chance for name, chance in holm(chances, looked_at).items()}
    found = [
        Suspect(
            kind=kind,
            name=name,
            failures=count,
            expected=expected.get(name, 0.0),
            confidence=confidences.get(name, 0.0),
            quarantined=name in quarantined,
            action=_action(kind, confidences.get(name), quarantined=name in quarantined),
        )
        for name, count in _counts(strata).items()
    ]
    return sorted(found, key=lambda suspect: (-suspect.confidence, -suspect.failures, suspect.name))


def at_least(count: int, shares: Iterable[tuple[int, float]]) -> float:
    """Return the probability, 0 to 1, of `count` successes or more.

    Exact: a binomial tail where all trials are alike, else that of a sum of binomials (Poisson-binomial), by convolution.

    Args:
        shares: number of trials and the probability of success of each, 0 to 1.
    """
    below = np.zeros(count)  # probabilities of 0 to count - 1 successes
    if not count:
        return 1.0
    below[0] = 1.0
    for trials, share in shares:
        below = np.convolve(below, _binomial(trials, min(share, 1.0), count))[:count]
    return float(min(max(1 - below.sum(), 0.0), 1.0))


def _binomial(trials: int, share: float, length: int) -> _Chances:
    """Return the probabilities of 0 to `length` - 1 successes."""
    if share in (0.0, 1.0):
        return np.array([float(successes == trials * share) for successes in range(length)])
    k = np.arange(min(length, trials + 1))
    ways = np.array([math.lgamma(trials + 1) - math.lgamma(i + 1) - math.lgamma(trials - i + 1) for i in k])
    chances: _Chances = np.exp(ways + k * math.log(share) + (trials - k) * math.log1p(-share))
    return chances


def holm(chances: Mapping[str, float], tests: int) -> dict[str, float]:
    """Return the chances corrected for the number of tests, in the order of the chances.

    Holm (1979), https://www.jstor.org/stable/4615733: the probability that anybody at all is accused who does not deserve it stays
    below the level. The false discovery rate would let more pass; but each accusation takes a machine out of use.

    Args:
        tests: of which `chances` are those that can be below 1.
    """
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, (name, chance) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, (tests - rank) * chance))
        corrected[name] = highest
    return corrected


def _action(kind: Kind, confidence: float | None, *, quarantined: bool) -> str:
    """Return what to do; below the lower threshold nobody is accused."""
    if quarantined:
        return "write the shard again and verify it, then take it off the quarantine list"
    if confidence is None:
        return "how much the others were exposed is not known: compare by hand"
    if confidence >= threshold("suspect_confidence"):
        return "drain the host now and test it" if kind == "host" else "put the shard on the quarantine list and verify its file"
    if confidence >= threshold("suspect_watch_confidence"):
        return "drain the host after its next failure and test it" if kind == "host" else "verify the shard's file"
    return "none: so many failures can be chance"
