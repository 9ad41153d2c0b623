"""What a report comes to, in sentences that need no glossary: its first lines in the terminal, on the page and in the explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tachoscope_core.report.report import SEVERITY_ORDER, STEPS_BEFORE, Finding, Report
from tachoscope_core.report.taxonomy import BY_SLUG, CORES_USED, FULL_IN, HEALTHY
from tachoscope_show.report import failure_words, finding_words
from tachoscope_show.report.trend_words import ranks_text
from tachoscope_show.serving import words as serving_words
from tachoscope_show.text.units import duration


@dataclass(frozen=True, slots=True)
class FirstLines:
    """The verdict; how large it is and what the fix brings; what to do; conditions of the machine. Empty: nothing to say."""

    verdict: str
    size: str
    action: str
    conditions: list[str]


def first_lines(report: Report) -> FirstLines:
    """Return the lines: how the job failed, if it did, and the gravest finding that it can change."""
    found = _of_steps(report)
    # Want of memory ended the attempt: it does not belong to what was before.
    joint = "" if report.memory is not None and report.memory.kills else "Before that: "
    failed = failure(report)
    return replace(found, verdict=f"{failed[0].upper()}{failed[1:]}. {joint}{found.verdict}") if failed else found


def failure(report: Report) -> str:
    """Return that the job failed; empty: it did not, or this is not known."""
    said = next((note.what for note in report.quality if note.means.startswith(STEPS_BEFORE)), "")
    return said or ("the job failed" if failure_words.ends_failed(report) else "")


def _of_steps(report: Report) -> FirstLines:
    if bad := next((note for note in report.quality if note.severity == "bad"), None):
        return FirstLines(f"No verdict: {bad.what}.", "", "", [])
    found = finding_words.large(report)
    conditions = [sentence(one, report) for one in found if one.condition]
    own = [one for one in found if not one.condition]
    faults = [one for one in own if one.class_ not in HEALTHY]
    if faults:
        worst = min(faults, key=lambda one: SEVERITY_ORDER[one.severity])  # of one severity the first: it lost the most
        return FirstLines(sentence(worst, report) + _broken(report), _size(worst, report), worst.action, conditions)
    if broken := _broken(report):
        return FirstLines(broken.strip(), "", "", conditions)
    below = " Small losses are listed below." if finding_words.small(report) else ""
    if own:
        return FirstLines(f"{sentence(own[0], report)}{below}", "", "", conditions)
    if finding_words.phases_unknown(report):
        return FirstLines("Bottleneck not known: the server does not say in which phase its requests were.", "", "", conditions)
    nothing = "Nothing in the job to fix" if conditions else "Nothing to fix"
    return FirstLines(f"{nothing}: {finding_words.verdict_text(report)}.{below}", "", "", conditions)


def _broken(report: Report) -> str:
    """Return the broken objectives of a service in a sentence; empty: there are none."""
    found = serving_words.broken(report.serving) if report.serving else []
    return f" Broken objectives: {', '.join(map(serving_words.broken_in_short, found))}." if found else ""


def sentence(finding: Finding, report: Report) -> str:
    """Return what was found, in one sentence."""
    entry = BY_SLUG.get(finding.class_)  # None: a class that this version does not know
    if entry is None or finding_words.is_hang_report(report):
        title = finding.class_ if entry is None else entry.title
        return f"{title}{finding_words.culprits_text(finding, report)}."
    of_all = isinstance(finding.ranks, str) or bool(report.serving) or report.ranks == 1
    ranks = "Some ranks" if isinstance(finding.ranks, str) else ranks_text(finding.ranks).capitalize()
    used = next((row for row in finding.evidence if row.signal == CORES_USED.get(finding.cause)), None)
    full = next((row.value for row in finding.evidence if row.signal == FULL_IN), 0.0)
    return entry.sentence_of(finding.cause).format(
        share=_percent(finding.share),
        whole=_share_of(finding, report),
        ranks=ranks,
        are="is" if not isinstance(finding.ranks, str) and len(finding.ranks) == 1 else "are",
        on="" if of_all else f" on {ranks_text(finding.ranks)}",
        slower=_percent((finding.speedup_if_fixed or 1.0) - 1),
        place=_place(finding),
        used="some" if used is None else f"{used.value:.1f}",
        cores="the" if used is None or used.threshold is None else f"{used.threshold:.0f}",
        until_full=duration(full),
    )


def title(finding: Finding, report: Report) -> str:
    """Return what stands below a finding's class: its title, or of what nobody can name, its sentence, which has the line."""
    entry = BY_SLUG.get(finding.class_)
    return sentence(finding, report) if entry is None or finding.class_ == "unknown" or finding.cause else entry.title


def level(finding: Finding) -> str:
    """Return the severity, and whether it is a condition of the machine."""
    return f"{finding.severity}, condition of the machine" if finding.condition else finding.severity


def _size(finding: Finding, report: Report) -> str:
    if finding_words.is_hang_report(report) or not finding.seconds_per_step:
        return ""
    parts = [finding_words.loss_text(finding, report)]
    if report.window.steps > 1:
        low, high = finding.share_ci
        parts.append(f"95 % interval {low * 100:.1f} to {high * 100:.1f} %")
    if finding_words.tells_speedup(finding, report) and finding.speedup_if_fixed is not None:
        parts.append(f"{finding.speedup_if_fixed:.2f}x as fast if fixed")
    return "; ".join(parts)


def _share_of(finding: Finding, report: Report) -> str:
    if report.serving and finding.evidence:
        return serving_words.share_of(finding)
    if report.life:
        return "the allocated time"
    return "the step time" if finding.every_steps else "each step"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.0f} %"


def _place(finding: Finding) -> str:
    """Return how often, if it comes every so many steps, and the line of code."""
    often = f"every {finding.every_steps} steps" if finding.every_steps else ""
    found = ", ".join(filter(None, (often, finding.where)))
    return f" ({found})" if found else ""
