"""Numbers that are wrong: what the opt-in checks of the probe found, rank against rank and step by step.

A checksum that differs among replicas names the ranks outside of the majority. Numbers that are not finite name the ranks that
had them first, if these are not all: one step later the exchange of gradients has spread them. On all ranks at once a learning
rate does the same as a device: unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps
from tachoscope_core.records.records import IntegrityEvent
from tachoscope_core.report.report import Evidence

_SOURCE = "integrity checks"
_DIVERGED = (
    "go back to the last sound checkpoint and repeat these steps with the same data: if the numbers fail again it is the data or "
    "the learning rate, if not, a device"
)


@dataclass(frozen=True, slots=True)
class CorruptionVerdict:
    """Candidates, none or one; `measured`: whether the numbers were checked at all."""

    candidates: list[Candidate]
    measured: bool = True


@dataclass(frozen=True, slots=True)
class _Fault:
    """The first check that found something, and on which ranks; `all` where it cannot be determined which.

    Attributes:
        agreed: ratio of the replicas that agree with one another. what: what is wrong.
    """

    step: int
    ranks: list[int] | Literal["all"]
    what: str
    agreed: float
    differs: bool


def classify(job: JobRecords, steps: Steps) -> CorruptionVerdict:
    """Return what the checks found. Seconds: the steps since the last sound check, which at most are lost work."""
    by_step: dict[int, dict[int, IntegrityEvent]] = defaultdict(dict)
    for event in job.integrity:
        if event.attempt == steps.attempt and event.writer in steps.writers:
            by_step[event.step][event.rank] = event
    if not by_step:
        return CorruptionVerdict([], measured=False)
    equal_once: set[tuple[int, ...]] = set()
    sound = 0
    for step in sorted(by_step):
        fault = _fault(step, by_step[step], equal_once, len(steps.ranks))
        if fault is not None:
            return CorruptionVerdict([_candidate(fault, sound, by_step, steps)])
        sound = step
    return CorruptionVerdict([])


def _fault(step: int, events: dict[int, IntegrityEvent], equal_once: set[tuple[int, ...]], ranks: int) -> _Fault | None:
    """Return the fault after a step, if any; records which replicas were seen equal."""
    bad = sorted(rank for rank, event in events.items() if event.not_finite)
    # The exchange of gradients comes after the loss: whose loss fails first, brought it in.
    began = [rank for rank in bad if "loss" in events[rank].not_finite]
    if 0 < len(began) < ranks:
        if all(events[rank].loss_growth < threshold("diverging_growth") for rank in began):
            return _Fault(step, began, events[began[0]].detail, 0.0, differs=False)
        return _Fault(step, "all", f"the loss had grown before; {events[began[0]].detail}", 0.0, differs=False)
    if bad:
        what = next(events[rank].detail for rank in bad)
        return _Fault(step, bad if len(bad) < ranks else "all", what, 0.0, differs=False)
    for replicas in {tuple(event.replicas) for event in events.values()}:
        sums = {rank: events[rank].checksum for rank in replicas if rank in events and events[rank].checksum}
        if len(sums) < 2:
            continue
        (common, agree), *others = Counter(sums.values()).most_common()
        if not others:
            equal_once.add(replicas)
            continue
        majority = agree > threshold("integrity_majority") * len(sums)
        if not majority and replicas not in equal_once:
            continue  # never seen alike: nobody knows that they should be
        apart = sorted(rank for rank, value in sums.items() if value != common)
        return _Fault(step, apart if majority else "all", "", agree / len(sums), differs=True)
    return None


def _candidate(fault: _Fault, sound: int, by_step: dict[int, dict[int, IntegrityEvent]], steps: Steps) -> Candidate:
    since = steps.numbers > sound
    seconds = np.where(since, steps.wall.max(axis=1), 0.0)
    evidence = [
        measured("first check that found it", fault.step, "step", _SOURCE),
        measured("last sound check before; what came since is lost work at most", sound, "step", _SOURCE),
    ]
    if fault.differs:
        evidence.append(
            Evidence(
                signal="replicas with the same checksum of their parameters",
                value=fault.agreed,
                threshold=threshold("integrity_majority"),
                comparison=">" if fault.ranks != "all" else "<=",
                unit="ratio",
                source=_SOURCE + ("" if fault.ranks != "all" else ": of two that differ it is not known which is wrong"),
            )
        )
    else:
        evidence.append(measured(fault.what, len(by_step[fault.step]), "ranks checked", _SOURCE))
    told = fault.differs or fault.ranks != "all"
    return Candidate(
        "silent_corruption" if told else "unknown",
        seconds,
        fault.ranks,
        evidence,
        1.0 if fault.differs else 0.7 if told else 0.5,
        None if fault.differs else ("unknown" if told else "silent_corruption", 0.0),
        action="" if told else _DIVERGED,
        speedup=1.0,  # steps do not get faster by it
        level="critical",
    )
