"""Learns from development runs how probable it is that a finding names the right class, and writes the calibration that is shipped.

    python -m benchmarks.lab.calibrate RUNS            # a folder of the lab, or a table of its runs (results.csv)
    python -m benchmarks.lab.calibrate RUNS --dry-run  # print it

One curve over all classes is learned first, on top of the score itself, which weighs as much as five findings; then one for each
class that was named in these runs, on top of that one, which weighs as much as five findings too. With little data a class is as
sure as all are, and all are as sure as their score. The share of clean runs, and of each fault, is that of the lab.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from benchmarks.lab.isotonic import fit
from benchmarks.lab.reliability import Gate, Told, gates, suspected
from benchmarks.lab.rows_of_runs import Row, read_rows
from benchmarks.lab.scoring import runs_in, score

from tachoscope_analyzers.data.thresholds import sources
from tachoscope_analyzers.findings.calibration import NOT_CALIBRATED, Calibration, Curve, from_document
from tachoscope_core.errors import TachoscopeError

PRIOR_FINDINGS = 5.0
WRONG_NAMES = 0.05
"""Of the names that are told, so many may be wrong: the gate is chosen for that."""
ANALYZERS = Path(__file__).parents[2] / "analyzers" / "tachoscope_analyzers"
OUT = ANALYZERS / "findings" / "calibration.yaml"
HEAD = "".join(OUT.read_text().partition("\norigin:")[0:1]) + "\n" if OUT.exists() else ""


def learn(findings: Sequence[Told]) -> dict[str, Curve]:
    """Return a curve for each class among the findings."""
    pooled = Curve(*_columns(fit(*_cases(findings), lambda score: score, PRIOR_FINDINGS)))
    curves = {}
    for slug in sorted({one.slug for one in findings}):
        mine = [one for one in findings if one.slug == slug]
        points = fit(*_cases(mine), pooled.at, PRIOR_FINDINGS)
        curves[slug] = Curve(*_columns(points), findings=len(mine), right=sum(one.right for one in mine))
    return curves


def _cases(findings: Sequence[Told]) -> tuple[list[float], list[bool]]:
    return [one.score for one in findings], [one.right for one in findings]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(round(score, 4) for score, _ in points), tuple(round(min(max(value, 0.0), 1.0), 4) for _, value in points)


def recalibrated(findings: Sequence[Told], calibration: Calibration) -> list[Told]:
    """Return findings with the confidence that a calibration gives them."""
    return [
        Told(one.slug, one.score if (p := calibration.probability(one.slug, one.score)) is None else p, one.score, one.right)
        for one in findings
    ]


def gate_for(findings: Sequence[Told], wrong: float = WRONG_NAMES) -> Gate | None:
    """Return the lowest gate from which on no more than that share of the names is wrong; None if no gate does that."""
    good = [one for one in gates(findings) if one.right.cases - one.right.hits <= wrong * one.right.cases]
    return min(good, key=lambda one: one.least, default=None)


def document(rows: Sequence[Row], today: str) -> dict[str, Any]:
    """Return what is shipped: the curves with their origin, from the rows of development runs.

    Raises:
        TachoscopeError: there is no development run among the rows.
    """
    learned = [row for row in rows if row.set == "development" and not row.skipped]
    if not learned:
        raise TachoscopeError("there is no development run to learn from", fix="python -m benchmarks.lab --set development")
    found = suspected(learned)
    facts = "\n".join(sorted(f"{one.slug} {one.score} {one.right}" for one in found))
    return {
        "origin": f"{len(found)} findings in {len(learned)} development runs with injected faults, {today}",
        "findings_sha256": hashlib.sha256(facts.encode()).hexdigest(),
        "thresholds": thresholds(),
        "classes": {
            slug: {
                "findings": curve.findings,
                "right": curve.right,
                "scores": list(curve.scores),
                "probabilities": list(curve.probabilities),
            }
            for slug, curve in learn(found).items()
        },
    }


def thresholds() -> dict[str, float]:
    """Return the shipped thresholds by name."""
    return {name: value for name, (value, _) in sorted(sources().items())}


def changed_thresholds(calibration: Path = OUT) -> dict[str, tuple[float, float | None]]:
    """Return the thresholds that a calibration was learned with and that are others now: both values; None: it is gone."""
    learned: dict[str, float] = yaml.safe_load(calibration.read_bytes())["thresholds"]
    now = thresholds()
    return {name: (value, now.get(name)) for name, value in learned.items() if now.get(name) != value}


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a table, or of the development runs in a folder, judged without a calibration."""
    if path.is_file():
        return read_rows(path)
    return [score(run, NOT_CALIBRATED) for run in runs_in(path)]


def main() -> int:
    """Write the calibration; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder of the lab, or a table of its runs")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--dry-run", action="store_true", help="print it instead")
    options = parser.parse_args()
    try:
        rows = rows_of(options.runs)
        found = document(rows, time.strftime("%Y-%m-%d"))
    except TachoscopeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    names = recalibrated(suspected([row for row in rows if row.set == "development"]), from_document(found))
    text = HEAD + yaml.safe_dump(found, sort_keys=False, width=128, default_flow_style=None)
    sys.stdout.write(text if options.dry_run else f"wrote {options.out}: {found['origin']}\n")
    if not options.dry_run:
        options.out.write_text(text)
    gate = gate_for(names)
    if gate is None:
        sys.stdout.write(f"no gate leaves at most {WRONG_NAMES:.0%} of the names wrong\n")
    else:
        sys.stdout.write(
            f"name_confidence of {gate.least:.2f} (thresholds.yaml) leaves {gate.coverage.hits} of {gate.coverage.cases} names, of "
            f"which {gate.right.cases - gate.right.hits} are wrong: at most {WRONG_NAMES:.0%}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
