"""A run against an earlier one: whether the step became longer, which state grew, on which ranks, and what the runs are made of.

Knows nothing of records: takes two reports, so that one that was saved can be the baseline. Its noise is that within the two runs;
what differs from one run of the same program to the next on another machine or day is not in it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from tachoscope_analyzers.compare.lineage import differences
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import Ranks, culprits
from tachoscope_analyzers.findings.make import severity
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.comparison import Comparison, Difference, Verdict
from tachoscope_core.report.report import Ledger, Report
from tachoscope_core.report.trend import Estimate, Trend

_QUANTILE = 1.96
"""Half of a 95 % interval, in standard errors."""
_SAME_WORK = 0.01
_WAITS = ("communication", "straggler_wait")


def compared(report: Report, baseline: Report) -> Report:
    """Return the report with what became different since the baseline.

    Raises:
        TachoscopeError: one of the two is not about the step records of a training, or was saved before these had a course.
    """
    now, before = _course(report), _course(baseline)
    step = _difference("step", before.step, now.step)
    other_work = any(_differ(was, is_) for _, was, is_ in _works(now, before))
    share = step.difference / max(before.step.seconds, 1e-12)
    steps = min(report.window.steps, baseline.window.steps)
    verdict: Verdict = "not_comparable" if other_work else _verdict(step, before.step.seconds, steps)
    names = sorted({*now.states, *before.states})
    nothing = Estimate(seconds=0.0, error=0.0)
    states = [_difference(name, before.states.get(name, nothing), now.states.get(name, nothing)) for name in names]
    least = step.interval[0] / max(before.step.seconds, 1e-12)
    level = severity(share, least, steps) if verdict == "slower" else None
    return msgspec.structs.replace(
        report,
        comparison=Comparison(
            baseline=baseline.job,
            source=", ".join(source.path for source in baseline.sources),
            baseline_steps=baseline.window.steps,
            baseline_ranks=baseline.ranks,
            verdict=verdict,
            severity=None if level == "info" else level,
            share=share,
            step=step,
            states=sorted(states, key=lambda row: -abs(row.difference)),
            ranks=_whose(report, baseline, step.difference),
            made_of=differences(report.lineage, baseline.lineage),
            notes=_notes(report, baseline),
        ),
    )


def _course(report: Report) -> Trend:
    if report.course is not None:
        return report.course
    kind = "an inference server" if report.serving else "a job's whole life" if report.life else ""
    if not kind and any(source.unit == "events" for source in report.sources):
        kind = "profiler traces"
    if kind:
        raise TachoscopeError(
            f"the report on {report.job} is about {kind}, and the comparison of runs is about step records",
            fix="compare records with records, or profiler traces with profiler traces",
        )
    raise TachoscopeError(
        f"the report on {report.job} was saved by a version that did not measure its noise",
        fix="name the store or the records that it was made from",
    )


def _difference(name: str, before: Estimate, now: Estimate) -> Difference:
    """Return the difference with the interval of two independent means, whose errors are those of the bootstrap."""
    difference = now.seconds - before.seconds
    reach = _QUANTILE * float(np.hypot(before.error, now.error))
    low, high = difference - reach, difference + reach
    return Difference(
        name=name,
        baseline_seconds=before.seconds,
        seconds=now.seconds,
        interval=(low, high),
        beyond_noise=low > 0 or high < 0,
    )


def _verdict(step: Difference, whole: float, steps: int) -> Verdict:
    """Return what is certain; of too few steps nothing is."""
    if steps < threshold("change_steps"):
        return "unclear"
    least = threshold("change_share") * whole
    if step.beyond_noise and abs(step.difference) >= least:
        return "slower" if step.difference > 0 else "faster"
    low, high = step.interval
    return "alike" if -least < low and high < least else "unclear"


def _works(now: Trend, before: Trend) -> list[tuple[str, float, float]]:
    """Return what a step took in the baseline and takes now."""
    return [
        ("samples", before.samples_per_step, now.samples_per_step),
        ("tokens", before.tokens_per_step, now.tokens_per_step),
    ]


def _differ(was: float, is_: float) -> bool:
    """Return whether two amounts of work are known and are not the same."""
    return min(was, is_) > 0 and max(was, is_) / min(was, is_) > 1 + _SAME_WORK


def _notes(report: Report, baseline: Report) -> list[str]:
    now, before = _course(report), _course(baseline)
    notes = []
    if baseline.ranks != report.ranks:
        notes.append(
            f"{baseline.ranks} ranks in the baseline, {report.ranks} now: what they exchange and wait for differs, "
            "and ranks are not compared with each other"
        )
    if (steps := min(report.window.steps, baseline.window.steps)) < threshold("change_steps"):
        notes.append(f"{steps} steps are too few to know their noise")
    if before.device != now.device:
        notes.append(f"on {before.device} in the baseline, on {now.device} now")
    for what, was, is_ in _works(now, before):
        if _differ(was, is_):
            rates = was / before.step.seconds, is_ / now.step.seconds
            notes.append(
                f"a step took {was:,.6g} {what} in the baseline and takes {is_:,.6g} now, which is not the same work; "
                f"{rates[0]:,.4g} {what} a second in the baseline, {rates[1]:,.4g} now"
            )
    return notes


def _whose(report: Report, baseline: Report, shift: float) -> Ranks | None:
    """Return the ranks whose own time, all but waiting for others, grew by more than the median rank's, if that is most of it."""
    sides = [{one.rank: one for one in side.ledgers[1:] if one.rank is not None} for side in (baseline, report)]
    ranks = sorted(sides[0])
    if ranks != sorted(sides[1]) or not ranks:
        return None
    own = [
        np.array([_own(side[rank], steps) for rank in ranks])
        for side, steps in zip(sides, (baseline.window.steps, report.window.steps), strict=True)
    ]
    grown = (own[1] - own[0]) * np.sign(shift)
    excess = np.maximum(grown - np.sort(grown)[(len(grown) - 1) // 2], 0.0)
    if len(ranks) == 1 or excess.max() < abs(shift) / 2:
        return "all"
    return culprits(excess[None, :], ranks).ranks


def _own(ledger: Ledger, steps: int) -> float:
    return sum(seconds for state, seconds in ledger.states.items() if state not in _WAITS) / max(steps, 1)
