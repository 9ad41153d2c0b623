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
from tachoscope_core.storage.hang_bundles import HangBundle, last_hang
from tachoscope_core.storage.store import Store

_CLASS = "hang"
_SOURCE = "evidence of the hang"
_WITHOUT_STEP = "time without a step of any rank when it was noticed"
_MOST_GROUPS = 6
_MOST_LINES = 5
_LEAST_SECONDS = 1e-6
_BEYOND_SECONDS = 60.0
"""A hang that lasts begins at the last step of the window; clocks of nodes differ."""
_SURE, _OPEN = 0.95, 0.5
"""Design choice: a process that alone stands elsewhere is taken for the cause; where all wait it is as likely as not."""


def report(bundles: Sequence[HangBundle], places: Sequence[str]) -> Report:
    """Judge one hang of a job by what its nodes found.

    Args:
        bundles: one of each node, at least one. places: where they lie.
    """
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
        quality=list(_quality(bundles)),
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
        bundles, _ = last_hang(store, made.job)
    except TachoscopeError:  # the report stands without it
        return made
    within = [one for one in bundles if made.window.start <= one.since <= made.window.end + _BEYOND_SECONDS]
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
    named = next((bundle for bundle in bundles if bundle.failed_rank >= 0), None)
    ranks = sorted(set(odd.ranks)) if odd is not None else [named.failed_rank] if named is not None else None
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
        action=_action(odd),
        runbook="runbooks/hang.md",
        where=odd.where if odd is not None else "",
    )


def odd_group(groups: Sequence[StackGroup]) -> StackGroup | None:
    """Return the group that the others wait for; None: all wait, and the rule of hangs named none."""
    if not groups:
        return None
    first = groups[0]
    stopped = any(state.startswith(("T", "t")) for state in first.states)
    return first if stopped or first.named or not first.waits_for else None


def _action(odd: StackGroup | None) -> str:
    again = "end its process: its launcher starts all ranks again from the last checkpoint"
    if odd is None:
        return f"all ranks wait for each other: compare what they are in (stacks below), look at the network; then {again}"
    states = {state[:1] for state in odd.states}
    pids = " ".join(map(str, odd.pids[:8]))
    if states & {"T", "t"}:
        return f"`kill -CONT {pids}` on {', '.join(odd.hosts)}: a signal or a debugger stopped it"
    if "D" in states:
        look = f"look at the file system or driver that it waits for on {', '.join(odd.hosts)}"
        return f"{look} (dmesg, `cat /proc/{odd.pids[0]}/stack`); {again}"
    return f"see why it stands in {odd.where or 'that process'}; {again}"


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
