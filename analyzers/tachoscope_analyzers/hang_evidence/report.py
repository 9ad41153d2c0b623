"""From what nodes found at a hang to its report, and to lines of evidence in reports that were made of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tachoscope_analyzers.hang_evidence.groups import groups_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.notes import HUNG
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
from tachoscope_core.report.stack_groups import StackGroup, sentence
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_core.storage.hang_bundles import STOPPED, FoundHang, HangBundle, last_hang
from tachoscope_core.storage.store import Store

_CLASS = "hang"
_SOURCE = "evidence of the hang"
_WITHOUT_STEP = "time without a step of any rank when it was noticed"
_MOST_GROUPS = 6
_MOST_LINES = 5
_MOST_REFUSED = 3
_LEAST_SECONDS = 1e-6
_BEYOND_SECONDS = 60.0
"""A hang that lasts begins at the last step of the window; clocks of nodes differ."""
_SURE, _OPEN = 0.95, 0.5
"""Design choice: a process that alone stands elsewhere is taken for the cause; where all wait it is as likely as not."""


def report(found: FoundHang) -> Report:
    """Judge one hang of a job by what its nodes found.

    Raises:
        TachoscopeError: none of it can be used.
    """
    if not found.bundles:
        raise TachoscopeError(next(iter(found.refused.values()), "nothing was collected of a hang"))
    bundles, places = list(found.bundles.values()), list(found.bundles)
    groups = groups_of(bundles)
    since, until = min(bundle.since for bundle in bundles), max(bundle.noticed for bundle in bundles)
    seconds = max(until - since, _LEAST_SECONDS)
    ranks = sorted({process.rank for bundle in bundles for process in bundle.processes})
    wall = seconds * max(len(ranks), 1)
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return Report(
        job=bundles[0].job,
        window=Window(start=since, end=until, steps=0),
        ranks=len(ranks),
        sources=[
            Source(path=f"{places[0]}{more}", records=sum(len(bundle.processes) for bundle in bundles), unit="processes"),
        ],
        step_seconds=StepSeconds(mean=seconds, p50=seconds, p95=seconds, p99=seconds),
        ledgers=[Ledger(unit="rank", wall_seconds=wall, states={"hung": wall})],
        goodput=None,
        findings=[_finding(bundles, groups, seconds)],
        not_measured=[
            NotMeasured(class_=slug, missing="stacks of one moment show where a job hangs only")
            for slug in BY_SLUG
            if slug != _CLASS
        ],
        quality=[*_quality(bundles), *_refused(found)],
        stacks=groups,
    )


def with_evidence(made: Report, store: Store) -> Report:
    """Return a report of records on a job that hung with where its processes stood at the last hang, if that was collected and lies
    in the report's window; else the same. Its finding of a hang, if it has one, says so as well.
    """
    ended_in_it = any(note.what.startswith(HUNG) for note in made.quality)
    if not ended_in_it and not any(finding.class_ == _CLASS for finding in made.findings):
        return made
    try:
        found = last_hang(store, made.job)
    except TachoscopeError as error:  # the report stands without it
        found = FoundHang(refused={made.job: str(error)})
    made = msgspec.structs.replace(made, quality=[*made.quality, *_refused(found)])
    within = [one for one in found.bundles.values() if made.window.start <= one.since <= made.window.end + _BEYOND_SECONDS]
    groups = groups_of(within)
    if not groups:
        return made
    lines = list(_stack_lines(groups))
    findings = [
        msgspec.structs.replace(finding, evidence=[*finding.evidence, *lines]) if finding.class_ == _CLASS else finding
        for finding in made.findings
    ]
    return msgspec.structs.replace(made, findings=findings, stacks=groups)


def _finding(bundles: Sequence[HangBundle], groups: Sequence[StackGroup], seconds: float) -> Finding:
    odd = odd_group(groups)
    named = sorted({bundle.failed_rank for bundle in bundles if bundle.failed_rank >= 0})
    ranks = sorted(set(odd.ranks)) if odd is not None else named if len(named) == 1 else None
    return Finding(
        class_=_CLASS,
        severity="critical",
        seconds_per_step=seconds,
        share=1.0,
        share_ci=(1.0, 1.0),
        ranks="all" if ranks is None else ranks,
        confidence=_OPEN if odd is None else _SURE,
        runner_up=None,
        evidence=list(_evidence(bundles, groups, seconds)),
        speedup_if_fixed=None,
        action=_action(odd, groups),
        runbook="runbooks/hang.md",
        where=odd.where if odd is not None else "",
    )


def odd_group(groups: Sequence[StackGroup]) -> StackGroup | None:
    """Return the group that the others wait for; None: it is not known, since all wait, or several stand alike."""
    if not groups:
        return None
    first, others = groups[0], [group for group in groups[1:] if group.kind == "rank"]
    if first.named or _is_stopped(first):
        return first
    if first.waits_for or not first.frames:
        return None
    if first.kind != "rank":
        return first
    is_rival = any(not group.waits_for and group.frames and len(group.ranks) <= len(first.ranks) for group in others)
    return first if others and not is_rival else None


def _is_stopped(group: StackGroup) -> bool:
    return any(state.startswith(STOPPED) for state in group.states)


def _action(odd: StackGroup | None, groups: Sequence[StackGroup]) -> str:
    again = "end its process: its launcher starts all ranks again from the last checkpoint"
    if odd is None:
        return f"{_what_is_known(groups)}; then {again}"
    states = {state[:1] for state in odd.states}
    pids = " ".join(map(str, odd.pids[:8]))
    if _is_stopped(odd):
        return f"`kill -CONT {pids}` on {', '.join(odd.hosts)}: a signal or a debugger stopped it"
    if "D" in states:
        look = f"look at the file system or driver that it waits for on {', '.join(odd.hosts)}"
        return f"{look} (dmesg, `cat /proc/{odd.pids[0]}/stack`); {again}"
    return f"see why it stands in {odd.where or 'that process'}; {again}"


def _what_is_known(groups: Sequence[StackGroup]) -> str:
    """Return where to look if no group is the one that the others wait for."""
    ranks = [group for group in groups if group.kind == "rank"]
    unread = sorted({rank for group in ranks if not group.frames for rank in group.ranks})
    if len(unread) == sum(len(group.ranks) for group in ranks):
        return "no Python stack could be read (why: below), so which rank the others wait for is not known: `py-spy dump --pid PID`"
    if unread:
        return f"no stack could be read of rank {', '.join(map(str, unread[:8]))}: look there first (`py-spy dump --pid PID`)"
    if all(group.waits_for == "others" for group in ranks):
        return "all ranks wait for each other: compare what they are in (stacks below), look at the network"
    return "which rank the others wait for is not known: compare what they are in (stacks below), or dumps of the flight recorder"


def _evidence(bundles: Sequence[HangBundle], groups: Sequence[StackGroup], seconds: float) -> Iterable[Evidence]:
    yield Evidence(signal=_WITHOUT_STEP, value=seconds, unit="seconds", source="records")
    for bundle in bundles:
        if bundle.failed_rank >= 0:
            signal = f"rank {bundle.failed_rank} by the rule of hangs: {bundle.why}"
            yield Evidence(signal=signal, value=1.0, source=bundle.node)
    yield from _stack_lines(groups)
    for bundle in bundles:
        for line in bundle.kernel_log[-_MOST_LINES:]:
            yield Evidence(signal=f"kernel of {bundle.node}: {line}", value=1.0, unit="line", source="/dev/kmsg")
        if bundle.network_seconds:
            moved = sum(value for counters in bundle.network.values() for name, value in counters.items() if "bytes" in name)
            signal = f"network of {bundle.node} moved in {bundle.network_seconds:g} s"
            yield Evidence(signal=signal, value=moved, unit="bytes", source="network counters")
        if bundle.dumps:
            signal = f"flight-recorder dumps of ranks {', '.join(sorted(bundle.dumps))}, beside the evidence"
            yield Evidence(signal=signal, value=float(len(bundle.dumps)), unit="dumps", source=bundle.node)


def _stack_lines(groups: Sequence[StackGroup]) -> Iterable[Evidence]:
    for group in groups[:_MOST_GROUPS]:
        yield Evidence(signal=sentence(group), value=float(len(group.pids)), unit=_counted(group), source=_SOURCE)


def _counted(group: StackGroup) -> str:
    return "process" if len(group.pids) == 1 else "processes"


def _quality(bundles: Sequence[HangBundle]) -> Iterable[QualityNote]:
    """Say what could not be had, each once, and of how many processes."""
    counts: dict[tuple[str, str], int] = {}
    for bundle in bundles:
        for what, why in bundle.missing.items():
            counts[what, why] = counts.get((what, why), 0) + 1
        for process in bundle.processes:
            for what, why in process.missing.items():
                if what != "py_spy" or "python" in process.missing:
                    counts[what, why] = counts.get((what, why), 0) + 1
    for (what, why), count in counts.items():
        of = f" of {count} processes" if count > 1 else ""
        is_stack = what in {"python", "process", "threads", "ranks"} or what.startswith("rank ")
        what = f"{what.replace('_', ' ')}{of} is not available"
        yield QualityNote(what=what, severity="limited" if is_stack else "note", means=why)


def _refused(found: FoundHang) -> Iterable[QualityNote]:
    """Say which objects were not used: what a node found is then not known, and not nothing."""
    refused = list(found.refused.values())
    if refused:
        what = f"evidence of the hang of {len(refused)} of {len(refused) + len(found.bundles)} nodes could not be used"
        yield QualityNote(what=what, severity="limited", means="; ".join(refused[:_MOST_REFUSED]))
