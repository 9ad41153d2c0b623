"""Writes docs/develop/accuracy.md with its pictures and its table of runs.

python -m benchmarks.lab.accuracy RUNS       # judge the runs of the lab, and write all; rows of other sets stay as they are
python -m benchmarks.lab.accuracy RUNS --looked-at     # the same, of test runs that were looked at before rules were changed
python -m benchmarks.lab.accuracy            # make page and pictures again from docs/develop/accuracy/results.csv
python -m benchmarks.lab.accuracy --check    # exit with 1 if they are not what the table gives
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lab import calibrate, pictures, reliability, tally
from benchmarks.lab.accuracy_page import page
from benchmarks.lab.rows_of_runs import NOTHING, UNKNOWN, Row, read_rows, write_rows
from benchmarks.lab.scoring import runs_in, score

from tachoscope_analyzers.findings.calibration import shipped_calibration
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.taxonomy import BY_SLUG

REPOSITORY = Path(__file__).parents[2]
ANALYZERS = REPOSITORY / "analyzers" / "tachoscope_analyzers"


def digest(name: str) -> str:
    """Return the sha256 of a file of the analyzers."""
    return hashlib.sha256(next(ANALYZERS.glob(f"*/{name}")).read_bytes()).hexdigest()


def score_all(runs: Sequence[Path]) -> list[Row]:
    """Judge runs with the shipped thresholds and calibration, as many at a time as there are cores; progress goes to stderr.

    Raises:
        TachoscopeError: there is none, or the truth of one cannot be read.
    """
    if not runs:
        raise TachoscopeError("there are no runs in this folder", fix="python -m benchmarks.lab --help")
    rows = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for row in pool.map(partial(score, calibration=shipped_calibration()), runs):
            rows.append(row)
            sys.stderr.write(f"\r{len(rows)} of {len(runs)} runs judged")
    sys.stderr.write("\n")
    return rows


def about(folder: Path, runs: Sequence[Path], *, looked_at: bool = False) -> dict[str, Any]:
    """Return what is to be said of the runs as a whole: where they were made, and what they were judged by.

    Args:
        looked_at: rules were changed after these runs had been looked at.
    """
    frozen = folder / "frozen.json"
    told = json.loads(frozen.read_bytes())["sha256"] if frozen.exists() else {}
    machine = json.loads((runs[0] / "truth.json").read_bytes()).get("machine", {}) if runs else {}
    return {
        "machine": ", ".join(f"{name} {value}" for name, value in machine.items()) if isinstance(machine, dict) else str(machine),
        "frozen_sha256": told,
        "scored_with_sha256": {name: digest(name) for name in ("thresholds.yaml", "calibration.yaml")},
        "calibration_origin": shipped_calibration().origin,
        "looked_at": looked_at,
    }


def files(rows: Sequence[Row], facts: dict[str, Any]) -> dict[str, str]:
    """Return the page and its pictures by their path below docs/."""
    test = [row for row in rows if row.set == "test"]
    classes = [*(slug for slug in BY_SLUG if slug != UNKNOWN), UNKNOWN, NOTHING]
    raw = [reliability.Told(one.slug, one.score, one.score, one.right) for one in reliability.suspected(test)]
    found = {"accuracy.md": page(rows, facts | {"changed_thresholds": calibrate.changed_thresholds()})}
    if tally.judged(test):
        found["accuracy/confusion.svg"] = pictures.confusion(tally.confusion(test), classes, (UNKNOWN, NOTHING))
        found["accuracy/calibration.svg"] = pictures.calibration(reliability.bins(reliability.told(test)), reliability.bins(raw))
    return found


def load(docs: Path) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows and facts that lie in a folder of documentation; none where there is no table yet.

    Raises:
        TachoscopeError: the table cannot be read.
    """
    table, facts = docs / "accuracy" / "results.csv", docs / "accuracy" / "about.json"
    return (read_rows(table) if table.exists() else []), (json.loads(facts.read_bytes()) if facts.exists() else {})


def main() -> int:
    """Score, write or check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="a folder of the lab")
    parser.add_argument("--looked-at", action="store_true", help="rules were changed after these test runs had been looked at")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--docs", type=Path, default=REPOSITORY / "docs" / "develop")
    options = parser.parse_args()
    (options.docs / "accuracy").mkdir(parents=True, exist_ok=True)
    try:
        if options.runs is not None:
            runs = runs_in(options.runs)
            rows = score_all(runs)
            kept = [row for row in load(options.docs)[0] if row.set not in {one.set for one in rows}]
            write_rows([*kept, *rows], options.docs / "accuracy" / "results.csv")
            facts = about(options.runs, runs, looked_at=options.looked_at)
            (options.docs / "accuracy" / "about.json").write_text(json.dumps(facts, indent=2) + "\n")
        rows, facts = load(options.docs)
    except TachoscopeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    made = files(rows, facts)
    stale = [name for name, text in made.items() if not _is(options.docs / name, text)]
    if options.check:
        sys.stderr.write(f"not current: {', '.join(stale)} (python -m benchmarks.lab.accuracy)\n" if stale else "")
        return 1 if stale else 0
    for name, text in made.items():
        (options.docs / name).write_text(text)
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
