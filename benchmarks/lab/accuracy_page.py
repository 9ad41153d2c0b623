"""The text of docs/develop/accuracy.md: from rows to Markdown, with no figure that is not counted from them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lab import reliability, tally
from benchmarks.lab.rows_of_runs import Named, Row
from benchmarks.lab.tally import Share

from tachoscope_core.report.taxonomy import BY_SLUG

CONVENTIONS = (Path(__file__).parent / "how_it_is_counted.md").read_text().rstrip("\n")
HEAD = "<!-- Made by `python -m benchmarks.lab.accuracy`: from docs/develop/accuracy/results.csv. -->\n"


@dataclass(frozen=True, slots=True)
class Bar:
    """What has to be reached, and what was. `least`: as a ratio; `most` instead where less is better."""

    what: str
    measured: float | None
    told: str
    least: float | None = None
    most: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether it is reached; None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.least if self.least is not None else self.measured <= (self.most or 0.0)


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share for people."""
    return "not measured" if value is None else f"{100 * value:.{digits}f} %"


def told(share: Share) -> str:
    """Return a share with what was counted and its interval."""
    if not share.cases:
        return "not measured"
    low, high = share.interval
    return f"{percent(share.value)} ({share.hits} of {share.cases}; {percent(low)} to {percent(high)})"


def median(values: Sequence[float]) -> float | None:
    """Return the median; None without values."""
    return statistics.median(values) if values else None


def bars(rows: Sequence[Row]) -> list[Bar]:
    """Return what the lab has to show, over the runs of the test set."""
    severe = tally.severe(rows)
    classes = tally.by_class(severe)
    f1, error = tally.macro_f1(classes), median(tally.seconds_errors(severe))
    ranks, alarms = tally.ranks_right(severe), tally.false_alarms(rows)
    slight, pairs = tally.slight_found(rows), tally.lookalikes(severe)
    apart = Share(sum(one.hits for one in pairs.values()), sum(one.cases for one in pairs.values()))
    counted = f"{len(tally.seconds_errors(severe))} rightly named faults"
    return [
        Bar(
            f"macro-F1 at 20 % and above, over {len(classes)} classes",
            f1,
            "not measured" if f1 is None else f"{f1:.3f}",
            least=0.90,
        ),
        Bar("right class at 10 %, small losses included", slight.value, told(slight), least=0.70),
        Bar("culprit ranks right", ranks.value, told(ranks), least=0.95),
        Bar("clean runs with a warning", alarms.value, told(alarms), most=0.02),
        Bar("median error of the attributed seconds", error, f"{percent(error)} ({counted})", most=0.10),
        Bar("look-alike pairs told apart", apart.value, told(apart), least=0.90),
    ]


def page(rows: Sequence[Row], about: dict[str, Any]) -> str:
    """Return the page.

    Args:
        rows: of all sets; the tables are of the test set. about: what is known of the runs as a whole (see `accuracy.about`).
    """
    test = [row for row in rows if row.set == "test"]
    parts = [HEAD, "# Accuracy", _words(rows, test, about)]
    if not tally.judged(test):
        return "\n".join([*parts, "", "**There are no test runs yet: nothing below this line is known.**", "", CONVENTIONS]) + "\n"
    parts += ["", "## Against what it has to reach", *_bars(test), "", *_falls_short(test)]
    parts += [
        "",
        "## By class",
        *_classes(test),
        "",
        "![confusion matrix](accuracy/confusion.svg)",
        "",
        "## By severity",
        *_severities(test),
    ]
    parts += [
        "",
        "## Clean runs",
        *_clean(test),
        "",
        "## Look-alikes",
        *_lookalikes(test),
        "",
        "## Two faults at once",
        *_pairs(test),
    ]
    parts += ["", "## Confidence", *_confidence(test), "", "## What was not caused", *_skipped(test)]
    return "\n".join([*parts, "", CONVENTIONS]) + "\n"


def _words(rows: Sequence[Row], test: Sequence[Row], about: dict[str, Any]) -> str:
    kinds = Counter(row.kind for row in tally.judged(test))
    counts = ", ".join(f"{kinds[kind]} {name}" for kind, name in _KINDS.items() if kinds[kind])
    development = len([row for row in tally.judged(rows) if row.set == "development"])
    frozen, scored = about.get("frozen_sha256", {}), about.get("scored_with_sha256", {})
    others = [name for name in sorted(scored) if scored[name] != frozen.get(name)]
    same = f"**These figures were scored with others than the frozen ones: {', '.join(others)}.**" if others else _SAME
    same = same if frozen else "**That they were frozen before the test runs is not recorded.**"
    machine = about.get("machine", "")
    lines = [
        "Faults are caused for real in small trainings (docs/develop/lab.md). A clock of its injector measures what each costs.",
        "The same probe and the same analysis as anybody's then say what they found. All runs are in `accuracy/results.csv`.",
    ]
    if tally.judged(test):
        lines += ["", f"{len(tally.judged(test))} test runs: {counts}; on {machine or 'a machine that is not recorded'}."]
        digests = ", ".join(f"{name} `{digest[:16]}`" for name, digest in sorted(frozen.items())) or "not recorded"
        lines += [f"Thresholds and calibration were chosen on {development} development runs and frozen before the first test run:"]
        lines += [f"sha256 {digests}."]
        lines += [f"{same} Confidence: {about.get('calibration_origin', 'not recorded')}."]
        lines += [_changed(about["changed_thresholds"])] if "changed_thresholds" in about else []
        lines += ["", _LOOKED_AT] if about.get("looked_at") else []
    return "\n".join(["", *lines])


def _changed(thresholds: Mapping[str, tuple[float, float | None]]) -> str:
    if not thresholds:
        return "The thresholds that the confidence was learned with are those of today."
    each = (f"{name} was {was:g} and is {'gone' if now is None else f'{now:g}'}" for name, (was, now) in sorted(thresholds.items()))
    return f"Of the thresholds that the confidence was learned with, these are others today: {', '.join(each)}."


_SAME = "These figures were scored with just these."
_LOOKED_AT = (
    "**Rules were changed after these test runs had been looked at: these are figures of development, and a new test set has to\n"
    "confirm them.**"
)
_KINDS = {"fault": "with one fault", "clean": "without", "lookalike": "of look-alike pairs", "pair": "with two faults"}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _bars(rows: Sequence[Row]) -> list[str]:
    words = {True: "yes", False: "**no**", None: "not measured"}
    told_bars = [
        [bar.what, f"≥ {bar.least:g}" if bar.least is not None else f"≤ {bar.most:g}", bar.told, words[bar.met]]
        for bar in bars(rows)
    ]
    return _table(["", "bar", "measured (95 % interval)", "met"], told_bars)


def _falls_short(rows: Sequence[Row]) -> list[str]:
    lines = [f"- {bar.what}: {bar.told}" for bar in bars(rows) if bar.met is False]
    lines += [f"- not measured: {bar.what}" for bar in bars(rows) if bar.met is None]
    weak = [one for one in tally.by_class(tally.severe(rows)) if one.f1 < 0.9]
    for one in weak:
        missed = Counter(row.predicted for row in tally.single(tally.severe(rows)) if row.truth == one.slug and not row.right)
        instead = ", ".join(f"{slug} {count}" for slug, count in missed.most_common()) or "never missed, but named elsewhere"
        lines.append(f"- `{one.slug}` has an F1 of {one.f1:.2f}; instead of it: {instead}")
    errors = [row for row in rows if row.error]
    lines += [f"- {len(errors)} runs could not be judged: {'; '.join(sorted({row.error for row in errors})[:3])}"] if errors else []
    return ["What falls short:", "", *lines] if lines else ["Nothing falls short of these bars."]


def _classes(rows: Sequence[Row]) -> list[str]:
    severe = tally.severe(rows)
    table = []
    for one in tally.by_class(severe):
        mine = [row for row in severe if row.truth == one.slug]
        steps, errors = median(tally.detected_after(mine)), median(tally.seconds_errors(mine))
        table.append(
            [
                f"`{one.slug}`",
                told(one.recall),
                told(one.precision),
                f"{one.f1:.2f}",
                str(one.abstained),
                "" if steps is None else f"{steps:g}",
                "" if errors is None else percent(errors),
            ]
        )
    head = [
        "class",
        "found by its name (recall)",
        "right where named (precision)",
        "F1",
        "called unknown",
        "steps to detect",
        "error of seconds",
    ]
    return ["Faults of 20 % of the step and above, and clean runs. Steps and errors are medians.", *_table(head, table)]


def _severities(rows: Sequence[Row]) -> list[str]:
    table = []
    for severity in sorted({row.severity for row in tally.single(rows) if row.faults}):
        mine = [row for row in tally.single(rows) if row.faults and row.severity == severity]
        missed = sum(not row.named for row in mine)
        steps, errors = median(tally.detected_after(mine)), median(tally.seconds_errors(mine))
        table.append(
            [
                percent(severity, 0) if severity else "no such measure",
                str(len(mine)),
                told(tally.share(mine, lambda row: row.right)),
                told(tally.share(mine, lambda row: row.right_with_small)),
                str(sum(row.abstained for row in mine)),
                str(missed),
                told(tally.ranks_right(mine)),
                "" if steps is None else f"{steps:g}",
                "" if errors is None else percent(errors),
            ]
        )
    head = [
        "severity",
        "runs",
        "right class",
        "the same, small losses included",
        "called unknown",
        "no warning",
        "culprit ranks right",
        "steps to detect",
        "error of seconds",
    ]
    return _table(head, table)


def _clean(rows: Sequence[Row]) -> list[str]:
    rate = tally.alarms_per_1000_steps(rows)
    steps = sum(row.steps for row in tally.clean(rows))
    named, small = (
        _which(row_of) for row_of in ([row.named for row in tally.clean(rows)], [row.small for row in tally.clean(rows)])
    )
    per_1000 = "not measured" if rate is None else f"{rate:.2f}"
    return [
        "",
        f"With a warning: {told(tally.false_alarms(rows))}.",
        f"False alarms per 1,000 clean steps: {per_1000}, in {steps} steps.{named}",
        f"With a small loss, which is information and no warning: {told(tally.with_small_losses(rows))}.{small}",
        "",
        f"Single ranks accused where the fault was on all ranks, or there was none: {told(tally.wrongly_accused(rows))}.",
    ]


def _which(found: Sequence[Sequence[Named]]) -> str:
    """Return the classes of findings by run, in words."""
    counts = Counter(one.slug for of_run in found for one in of_run)
    return f" They named {', '.join(f'`{slug}` ({count})' for slug, count in counts.most_common())}." if counts else ""


def _lookalikes(rows: Sequence[Row]) -> list[str]:
    pairs = [[pair, told(share)] for pair, share in tally.lookalikes(tally.severe(rows)).items()]
    return _table(["pair of the reference", "right one of the two named"], pairs) if pairs else ["", "Not measured."]


def _pairs(rows: Sequence[Row]) -> list[str]:
    both, first = tally.both_found(rows)
    return ["", f"Both named: {told(both)}. The first finding is one of the two: {told(first)}."]


def _confidence(rows: Sequence[Row]) -> list[str]:
    names = reliability.told(rows)
    if not names:
        return ["", "No class was named: nothing to calibrate."]
    brier, error = reliability.brier(names), reliability.expected_calibration_error(names)
    raw = [reliability.Told(one.slug, one.score, one.score, one.right) for one in reliability.suspected(rows)]
    raw_brier, raw_error = reliability.brier(raw), reliability.expected_calibration_error(raw)
    kept = [gate for gate in reliability.gates(names) if gate.right.value is not None]
    table = [[f"{gate.least:.2f}", told(gate.coverage), told(gate.right)] for gate in _thinned(kept)]
    return [
        "",
        f"{len(names)} names were told. Brier score {brier:.3f} (of the raw scores {raw_brier:.3f}).",
        f"Expected calibration error {error:.3f} (of the raw scores {raw_error:.3f}, those of withheld names among them).",
        "",
        f"Losses with a name to find that were called unknown: {told(tally.abstentions(rows))}.",
        f"Wrong first names, of all that were told: {told(tally.wrong_names(rows))}.",
        "",
        "![calibration](accuracy/calibration.svg)",
        "",
        "Naming only from some confidence on would leave:",
        *_table(["confidence", "names that are left", "right, of these"], table),
    ]


def _thinned(gates: Sequence[reliability.Gate], most: int = 12) -> list[reliability.Gate]:
    """Return at most that many, evenly, with the first and the last."""
    if len(gates) <= most:
        return list(gates)
    return [gates[round(number * (len(gates) - 1) / (most - 1))] for number in range(most)]


def _skipped(rows: Sequence[Row]) -> list[str]:
    caused = {fault.slug for row in tally.judged(rows) for fault in row.faults}
    reasons: dict[str, Counter[str]] = {}
    for row in rows:
        if row.skipped:
            reasons.setdefault("+".join(fault.slug for fault in row.faults) or row.workload, Counter())[row.skipped] += 1
    table = [[f"`{what}`", str(count), reason] for what, why in sorted(reasons.items()) for reason, count in why.items()]
    never = [slug for slug in BY_SLUG if slug not in caused and slug not in reasons and slug != "compute_bound"]
    lines = _table(["class", "runs", "skipped because"], table) if table else []
    return [*lines, "", f"Not in the test set at all: {', '.join(f'`{slug}`' for slug in never)}."] if never else lines
