"""Compares a report with the truth of its run. Knows nothing of how either came about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.loops.faults import CLEAN, ITEM, Fault
from benchmarks.loops.plant import Spot
from benchmarks.loops.truth import Truth

NEAR_LINES = 3
NEAR_SECONDS = 0.10
MOST_UNEXPLAINED = 0.05
SEVERE = ("warning", "critical")
MACHINE = "cpu_contention"
"""What a shared machine does to any loop; counted separately, so that runs on one say something of the rest."""
QUIET_CORES = 0.2
"""Where others use no more than this, the machine is quiet."""
SEEN = re.compile(r"seen at (?P<file>[^:]+):(?P<line>\d+) (?P<function>\S+)")

Row = dict[str, Any]


def judge(report: Mapping[str, Any], fault: Fault, spots: Sequence[Spot], truth: Truth | None) -> Row:
    """Return one row: what was found and which of it is right."""
    findings = list(report.get("findings", []))
    warnings = [finding for finding in findings if finding["severity"] in SEVERE]
    top = warnings[0] if warnings else None
    row: Row = {
        "found": [f"{finding['class']} {finding['severity']} {finding['share']:.1%}" for finding in findings],
        "top": top["class"] if top else "",
        "warnings": len(warnings),
        "unexplained": unexplained(report),
        "unexplained_right": unexplained(report) <= MOST_UNEXPLAINED,
        "steps": report.get("window", {}).get("steps", 0),
        "step_seconds": report.get("step_seconds", {}).get("mean", 0.0),
    }
    if fault in (CLEAN, ITEM):
        others = [finding for finding in warnings if finding["class"] != MACHINE]
        seen = row["steps"] > 0
        return row | {"right": seen and not warnings, "right_but_for_machine": seen and not others}
    return row | _planted(findings, warnings, fault, spots, truth)


def _planted(findings: list[Any], warnings: list[Any], fault: Fault, spots: Sequence[Spot], truth: Truth | None) -> Row:
    top = warnings[0] if warnings else None
    first = next((finding for finding in warnings if finding["class"] != MACHINE), None)
    # Seconds and line are looked at in the finding of the right class, whatever stands above it.
    named = next((finding for finding in findings if finding["class"] in fault.classes), None)
    related = named or next((finding for finding in findings if finding["class"].startswith(fault.family)), None) or top
    seconds = related["seconds_per_step"] if related else 0.0
    true_seconds = truth.seconds_per_step if truth else 0.0
    line = seen_line(related) if related else ""
    row: Row = {
        "class_right": top is not None and top["class"] in fault.classes,
        "family_right": top is not None and top["class"].startswith(fault.family),
        "line": line,
        "line_right": any(agrees(line, spot) for spot in spots),
        "true_lines": [f"{spot.file}:{spot.first}-{spot.last} {spot.function}" for spot in spots],
        "seconds": seconds,
        "true_seconds": true_seconds,
        "seconds_right": bool(true_seconds) and abs(seconds / true_seconds - 1) <= NEAR_SECONDS,
        "ranks_right": related is not None and ranks_agree(related.get("ranks"), truth),
        "true_steps": truth.steps if truth else 0,
        "true_step_seconds": truth.step_seconds if truth else 0.0,
        "true_ranks": list(truth.ranks) if truth else [],
        "true_cpu_share": truth.cpu_share if truth else 0.0,
    }
    but_for_machine = first is not None and first["class"] in fault.classes and row["line_right"]
    return row | {"right": row["class_right"] and row["line_right"], "right_but_for_machine": but_for_machine}


def unexplained(report: Mapping[str, Any]) -> float:
    """Return the share of unexplained time in the ledger of the whole job."""
    ledgers = report.get("ledgers", [])
    job = next((ledger for ledger in ledgers if ledger.get("rank") is None), None)
    if not job or not job["wall_seconds"]:
        return 0.0
    return float(job["states"].get("unexplained", 0.0)) / float(job["wall_seconds"])


def seen_line(finding: Mapping[str, Any]) -> str:
    """Return `file:line function` of the first line that the evidence names."""
    for evidence in finding.get("evidence", []):
        match = SEEN.search(evidence["signal"])
        if match:
            return match.group(0).removeprefix("seen at ")
    return ""


def agrees(line: str, spot: Spot) -> bool:
    """Whether `file:line function` is at the planted place: near its lines, in its function if it is in one, or in one it calls."""
    match = SEEN.fullmatch(f"seen at {line}")
    if not match or match["file"] != spot.file:
        return False
    near = spot.first - NEAR_LINES <= int(match["line"]) <= spot.last + NEAR_LINES
    return near or match["function"] in spot.calls or (spot.function != "<module>" and match["function"] == spot.function)


def ranks_agree(ranks: Any, truth: Truth | None) -> bool:
    """Whether the finding names the ranks that have the fault."""
    if truth is None:
        return False
    if ranks == "all":
        return truth.ranks in ((0,), (0, 1))
    return set(ranks or ()) == set(truth.ranks)


HEADS = ("loop", "fault", "found first", "class", "line", "seconds a step: found, true", "ranks", "unexplained")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = (HEADS, ("---",) * len(HEADS), *map(cells, rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def has_fault(row: Row) -> bool:
    """Whether anything of a row is wrong, or it was not judged."""
    return bool(row.get("error")) or any("WRONG" in cell for cell in cells(row))


def cells(row: Row) -> tuple[str, ...]:
    """Return what a row shows under each of HEADS."""
    if row.get("error"):
        return (row["loop"], row["fault"], f"not judged: {row['error']}", *[""] * 5)
    top = row["top"] or ("no report" if row.get("refusal") else "no warning")
    if "class_right" not in row:
        return (row["loop"], row["fault"], top, _mark(row["right"]), "", "", "", f"{row['unexplained']:.1%}")
    near = " (family)" if row["family_right"] and not row["class_right"] else ""
    seconds = f"{row['seconds'] * 1e3:.1f}, {row['true_seconds'] * 1e3:.1f} ms {_mark(row['seconds_right'])}"
    return (
        row["loop"],
        row["fault"],
        top,
        _mark(row["class_right"]) + near,
        f"{row['line']} {_mark(row['line_right'])}",
        seconds,
        _mark(row["ranks_right"]),
        f"{row['unexplained']:.1%}",
    )


def _mark(right: bool) -> str:
    return "right" if right else "WRONG"


def summary(rows: Sequence[Row]) -> str:
    """Return the bars in one line each."""
    judged = [row for row in rows if not row.get("error")]
    planted = [row for row in judged if "class_right" in row]
    quiet = [row for row in judged if "class_right" not in row]
    parts = ", ".join(f"{name} {_of(planted, f'{name}_right')}" for name in ("class", "family", "line", "ranks"))
    lines = [
        f"clean or harmless without a warning: {_of(quiet, 'right')}; but for {MACHINE}: {_of(quiet, 'right_but_for_machine')}",
        f"class and line right: {_of(planted, 'right')} ({parts}); but for {MACHINE}: {_of(planted, 'right_but_for_machine')}",
        f"seconds within {NEAR_SECONDS:.0%}: {_of(planted, 'seconds_right')}",
        f"unexplained at most {MOST_UNEXPLAINED:.0%}: {_of(judged, 'unexplained_right')}",
        f"not judged: {len(rows) - len(judged)}",
        f"on a quiet machine (others used at most {QUIET_CORES:g} cores): "
        + _of([{"quiet": row.get("other_cores", 0.0) <= QUIET_CORES} for row in judged], "quiet"),
    ]
    return "\n".join(lines)


def _of(rows: Sequence[Row], key: str) -> str:
    count = sum(bool(row[key]) for row in rows)
    return f"{count} of {len(rows)}"
