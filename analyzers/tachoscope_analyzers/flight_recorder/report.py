"""From the dumps of a job's ranks to its report: who keeps the collectives from ending."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tachoscope_analyzers.flight_recorder.dump import Dump, Operation
from tachoscope_analyzers.flight_recorder.verdict import BlockingRank, HangVerdict, Kind, verdict
from tachoscope_core.report.report import (
    Evidence,
    Finding,
    Ledger,
    NotMeasured,
    QualityNote,
    Report,
    Source,
    StepSeconds,
    Window,
)
from tachoscope_core.report.taxonomy import BY_SLUG

_CLASS = "hang"
_MOST_LISTED = 16
_STACK = 3
_KNOWN_VERSION = 2
_LEAST_SECONDS = 1e-6

_CONFIDENCE = {Kind.NO_DUMP: 0.5, Kind.UNKNOWN: 0.5}
"""Design choice: what the dumps show is taken to be so, what they leave open is as likely as not."""
_SURE = 0.95
_ACTION = {
    Kind.HOST: "see what is done instead by {ranks}: `py-spy dump --pid PID`, `ps -o stat,wchan -p PID`, dmesg; then restart them",
    Kind.DEVICE: "look for Xid errors and lost devices on the nodes of {ranks} (`dmesg -T | grep -i xid`); restart without them",
    Kind.SIZE: "give all ranks inputs of one size there: uneven batches, padding, or a branch on data",
    Kind.DTYPE: "give all ranks inputs of one type there: a cast or autocast that not all go through",
    Kind.TYPE: "make all ranks call the same collectives: a branch on the rank or on data",
    Kind.ORDER: "make all ranks call collectives in one order: two threads, or hooks that run in another order",
    Kind.NO_DUMP: "see whether the processes of {ranks} are there, and have them write their dump too",
    Kind.UNKNOWN: "look at devices and network of {ranks}: the dumps do not tell which",
}


def report(dumps: Mapping[int, Dump], files: Sequence[Path], name: str, damaged: Sequence[Path] = ()) -> Report:
    """Judge a job by the dumps of its ranks. It has no steps: its time is that for which operations are pending, at least.

    Args:
        files: that the dumps were read from. damaged: others, that could not be.
    """
    found = verdict(dumps)
    operations = [one for dump in dumps.values() for one in dump.operations]
    moments = [one.created_ns / 1e9 for one in operations if one.created_ns]
    since = min((one.created_ns / 1e9 for one in operations if one.pending and one.created_ns), default=min(moments, default=0.0))
    until = max(moments, default=0.0)
    pending = max(until - since, _LEAST_SECONDS)
    wall = pending * max(len(dumps), 1)
    return Report(
        job=name,
        window=Window(start=since, end=until, steps=0),
        ranks=len(dumps),
        sources=[_source(files, len(operations))],
        step_seconds=StepSeconds(mean=pending, p50=pending, p95=pending, p99=pending),
        ledgers=[Ledger(unit="rank", wall_seconds=wall, states={"hung" if found.pending else "unexplained": wall})],
        goodput=None,
        findings=list(_findings(found, pending)),
        not_measured=[NotMeasured(class_=slug, missing="dumps report collectives only") for slug in BY_SLUG if slug != _CLASS],
        quality=[*_unread(damaged), *_quality(dumps, found, moments)],
    )


def _source(files: Sequence[Path], operations: int) -> Source:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return Source(path=f"{files[0] if files else ''}{more}", records=operations, unit="operations")


def _findings(found: HangVerdict, pending: float) -> Iterable[Finding]:
    by_kind: dict[Kind, list[BlockingRank]] = defaultdict(list)
    for one in found.stuck:
        by_kind[one.kind].append(one)
    few = len(found.without) >= len(found.pending)
    for kind, stuck in sorted(by_kind.items(), key=lambda pair: (-_CONFIDENCE.get(pair[0], _SURE), -len(pair[1]))):
        doubtful = kind in _CONFIDENCE and (few or len(by_kind) > 1)  # others are known to be stuck, or most are not known at all
        ranks = [one.rank for one in stuck]
        listed = ", ".join(map(str, ranks[:_MOST_LISTED])) + (" ..." if len(ranks) > _MOST_LISTED else "")
        yield Finding(
            class_=_CLASS,
            severity="warning" if doubtful else "critical",
            seconds_per_step=pending,
            share=1.0,
            share_ci=(1.0, 1.0),
            ranks=ranks,
            confidence=_CONFIDENCE.get(kind, _SURE),
            runner_up=None,
            evidence=list(_evidence(found, stuck, pending)),
            speedup_if_fixed=None,
            action=_ACTION[kind].format(ranks=f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"),
            runbook="runbooks/hang.md",
        )


def _evidence(found: HangVerdict, stuck: Sequence[BlockingRank], pending: float) -> Iterable[Evidence]:
    yield Evidence(signal="the oldest operation is pending, at least", value=pending, unit="seconds", source="flight recorder")
    for one in stuck[:_MOST_LISTED]:
        where = _operation(one.operation, found.groups) if one.operation else "its group"
        yield Evidence(
            signal=f"rank {one.rank}, {one.kind}: {where}: {one.detail}",
            value=one.waiting,
            unit="rank waits for it there" if one.waiting == 1 else "ranks wait for it there",
            source="flight recorder",
        )


def _operation(one: Operation, groups: Mapping[str, str]) -> str:
    """Return an operation in words, with where it was called."""
    group = groups.get(one.group) or f"group {one.group!r}"
    sizes = " ".join("x".join(map(str, size)) or "scalar" for size in one.sizes[:2])
    called = f", called at {' < '.join(one.stack[:_STACK])}" if one.stack else ""
    return f"{one.name} {one.sequence} of {group}{f' ({sizes})' if sizes else ''}{called}"


def _unread(damaged: Sequence[Path]) -> Iterable[QualityNote]:
    for path in damaged:
        yield QualityNote(
            what=f"{path} is empty, cut off or damaged", severity="limited", means="its rank counts as one without a dump"
        )


def _quality(dumps: Mapping[int, Dump], found: HangVerdict, moments: Sequence[float]) -> Iterable[QualityNote]:
    if found.without:
        listed = ", ".join(map(str, found.without[:_MOST_LISTED])) + (" ..." if len(found.without) > _MOST_LISTED else "")
        yield QualityNote(
            what=f"no dump of rank {listed}" if len(found.without) == 1 else f"no dump of {len(found.without)} ranks ({listed})",
            severity="limited",
            means="whether they are stuck or gone is not known; who waits for them is",
        )
    newer = sorted({dump.version for dump in dumps.values() if not dump.version.startswith(f"{_KNOWN_VERSION}.")})
    if newer:
        yield QualityNote(what=f"format {', '.join(newer)}", severity="limited", means="what is new in it is not read")
    if not moments:
        yield QualityNote(
            what="no operation in any dump", severity="bad", means="nothing was recorded: set TORCH_FR_BUFFER_SIZE=2000 in the job"
        )
    yield QualityNote(
        what="dumps tell no time of their own", severity="note", means="how long it hangs is known up to the last operation only"
    )
