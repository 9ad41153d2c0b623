"""A finding as a card: all that terminal, page and explorer show of it, in words and formatted numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import ge, gt, le, lt

from tachoscope_core.report.palette import BAD, OK, SERIES, UNKNOWN, WARN
from tachoscope_core.report.report import Evidence, Finding, Report, gravest, speedup_text
from tachoscope_core.report.taxonomy import BY_SLUG, HEALTHY
from tachoscope_show.report import verdict_words
from tachoscope_show.report.finding_words import (
    culprits_text,
    is_hang_report,
    loss_text,
    nothing_found,
    quantity,
    share_text,
    tells_speedup,
)
from tachoscope_show.text.units import percent

_COLORS = {"critical": BAD, "warning": WARN, "info": SERIES[0]}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {">=": ge, ">": gt, "<=": le, "<": lt}
_QUALITY = {"bad": (BAD, "bad data"), "limited": (WARN, "limited data"), "note": (UNKNOWN, "note on the data")}


@dataclass(frozen=True, slots=True)
class Tag:
    """A word in a colour, such as a severity; and a text that it is about."""

    word: str
    color: str
    text: str = ""

    @property
    def ink(self) -> str:
        """Colour of the word, readable on its background."""
        return "#000" if self.color in (WARN, UNKNOWN) else "#fff"


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A measurement with its threshold.

    Attributes:
        against: comparison and threshold; empty without a threshold. holds: None without a threshold or a known comparison.
        filled, mark: value and threshold in percent of the larger one.
    """

    signal: str
    source: str
    value: str
    against: str
    holds: bool | None
    filled: float
    mark: float

    @property
    def color(self) -> str:
        """Colour of the bar by whether the condition holds, does not, or was not measured."""
        return {True: WARN, False: OK, None: UNKNOWN}[self.holds]


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The class that explains the loss second best, and by how much less."""

    class_: str
    title: str
    margin: str


@dataclass(frozen=True, slots=True)
class FindingCard:
    """What is shown of a finding.

    Attributes:
        tag: its severity. whose: ranks, as they follow the class. loss, unit: what is lost, of what ("" where the loss says it).
        share: with its interval. confidence: 0 to 1; certainty: the same as a word. speedup: empty: nothing can be said.
        small: too small for a warning; it is shown below the others.
    """

    class_: str
    severity: str
    tag: Tag
    title: str
    whose: str
    loss: str
    unit: str
    share: str
    confidence: float
    evidence: list[EvidenceRow]
    runner_up: RunnerUp | None
    speedup: str
    action: str
    runbook: str
    small: bool

    @property
    def healthy(self) -> bool:
        """Whether the class is one of a step that is as it should be."""
        return self.class_ in HEALTHY

    @property
    def certainty(self) -> str:
        """The confidence in words."""
        if self.confidence >= 0.9:
            return "very likely"
        if self.confidence >= 0.7:
            return "likely"
        return "more likely than not" if self.confidence >= 0.5 else "uncertain"


def cards(report: Report) -> list[FindingCard]:
    """Return the cards of all findings, in their order."""
    return [_card(finding, report) for finding in report.findings]


def title_of(class_: str) -> str:
    """Return the title of a class, or the slug of a class that this version does not know."""
    return BY_SLUG[class_].title if class_ in BY_SLUG else class_


def verdict_tag(report: Report) -> Tag:
    """Return the gravest severity, or why there is none."""
    if any(note.severity == "bad" for note in report.quality):
        return Tag("no verdict", BAD)
    worst = gravest(one for one in report.findings if one.class_ not in HEALTHY)
    if worst is not None:
        return Tag(worst.severity, _COLORS.get(worst.severity, UNKNOWN))
    if verdict_words.failure(report):
        return Tag("failed", BAD)
    return Tag("healthy", OK) if nothing_found(report) else Tag("unknown", UNKNOWN)


def bounds(report: Report) -> list[Tag]:
    """Return what limits the conclusions, and why a person should look at the job."""
    notes = [(*_QUALITY.get(note.severity, _QUALITY["note"]), f"{note.what}: {note.means}") for note in report.quality]
    reviews = [(WARN, "to be reviewed", reason) for reason in report.review]
    return [Tag(word, color, text) for color, word, text in (*notes, *reviews)]


def conditions(report: Report) -> list[Tag]:
    """Return the conditions of the machine."""
    return [Tag("condition of the machine", WARN, line) for line in verdict_words.first_lines(report).conditions]


def _card(finding: Finding, report: Report) -> FindingCard:
    healthy = finding.class_ in HEALTHY
    color = OK if healthy else _COLORS.get(finding.severity, UNKNOWN)
    second = finding.runner_up
    return FindingCard(
        class_=finding.class_,
        severity=finding.severity,
        tag=Tag("healthy" if healthy else verdict_words.level(finding), color),
        title=verdict_words.title(finding, report),
        whose=culprits_text(finding, report),
        loss=loss_text(finding, report),
        unit=" a step" if finding.seconds_per_step and not (report.life or report.serving or is_hang_report(report)) else "",
        share=share_text(finding, report),
        confidence=finding.confidence,
        evidence=[_evidence(row) for row in finding.evidence[1:] or finding.evidence],  # the first one is the loss itself
        runner_up=RunnerUp(second.class_, title_of(second.class_), percent(second.margin)) if second is not None else None,
        speedup=speedup_text(finding) if tells_speedup(finding, report) else "",
        action=finding.action,
        runbook=finding.runbook,
        small=finding.small,
    )


def _evidence(row: Evidence) -> EvidenceRow:
    value = quantity(row.value, row.unit)
    if row.threshold is None:
        return EvidenceRow(row.signal, row.source, value, "", None, 0.0, 0.0)
    compare = _COMPARISONS.get(row.comparison or "")
    longest = max(abs(row.value), abs(row.threshold)) or 1.0
    return EvidenceRow(
        signal=row.signal,
        source=row.source,
        value=value,
        against=f"{row.comparison} {quantity(row.threshold, row.unit)}",
        holds=compare(row.value, row.threshold) if compare else None,
        filled=min(abs(row.value) / longest * 100, 100.0),
        mark=min(abs(row.threshold) / longest * 100, 100.0),
    )
