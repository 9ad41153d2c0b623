"""The rows as a table, and how they stand to the bars."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.advice_followed.follow import NEAR, Row

LEAST_NEAR = 0.80


HEADS = ("case", "class", "advised", "step before", "promised", "measured", "measured / promised", "")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = (HEADS, ("---",) * 3 + ("---:",) * 4 + ("---",), *map(cells, rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def is_off(row: Row) -> bool:
    """Whether a row was not judged, missed its promise, became slower or saw samples twice."""
    return bool(row.get("error")) or (row["settings"] is not None and _mark(row) != "right")


def cells(row: Row) -> tuple[str, ...]:
    """Return what a row shows under each of HEADS."""
    if row.get("error"):
        return (row["case"], f"not judged: {row['error']}", *[""] * 6)
    if row["settings"] is None:
        return (row["case"], row["class"], "no setting", _time(row["before"]), *[""] * 4)
    settings = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    times = map(_time, (row["before"], row["promised"], row["measured"]))
    return (row["case"], row["class"], settings, *times, ratio, _mark(row))


def _mark(row: Row) -> str:
    marks = ["SLOWER"] if row["slower"] else []
    marks += ["SAMPLES TWICE"] if row.get("again") else []
    marks += ["far from the promise"] if row["near"] is False else []
    return ", ".join(marks) or "right"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.2f} ms"


def summary(rows: Sequence[Row]) -> str:
    """Return how many promises were kept, and what became slower."""
    good = [row for row in rows if not row.get("error")]
    followed = [row for row in good if row["settings"] is not None]
    promises = [row for row in followed if row["ratio"] is not None]
    near = sum(row["near"] for row in promises)
    share = f" ({near / len(promises):.0%}; at least {LEAST_NEAR:.0%} wanted)" if promises else ""
    return "\n".join(
        [
            f"cases: {len(rows)}, not judged {len(rows) - len(good)}, no setting advised {len(good) - len(followed)}",
            f"measured within {NEAR:.0%} of the promised step: {near} of {len(promises)}{share}",
            f"slower than before: {sum(row['slower'] for row in followed)} of {len(followed)} (0 wanted)",
            f"samples seen twice: {sum(bool(row.get('again')) for row in followed)} of {len(followed)} (0 wanted)",
        ]
    )
