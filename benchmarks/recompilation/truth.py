"""What torch itself says of a run's compilations: the trace that `TORCH_TRACE` asks for, which `tlparse` reads.

A line of the trace ends in a JSON object; a payload follows in lines that begin with a tab.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OBJECT = re.compile(r"\] (\{.*\})$")
_ENTIRE = re.compile(r"Entire Frame\s+\[\?\]\s*:\s*([\d.]+)")
_BREAK = re.compile(r"Graph break in user code at (\S+):(\d+)")


@dataclass(frozen=True, slots=True)
class Truth:
    """What torch traced.

    Attributes:
        seconds: of all compilations. again_seconds: of those of code that had been compiled before. again: how many these are.
        reasons: their guards that failed, to how often. limits: how often a limit was hit. breaks: lines with a graph break.
    """

    seconds: float
    again_seconds: float
    again: int
    reasons: Counter[str]
    limits: int
    breaks: frozenset[str]


def of_trace(folder: Path) -> Truth:
    """Return what the traces in a folder say."""
    metrics: list[tuple[str, dict[str, Any]]] = []
    breaks: set[str] = set()
    for path in sorted(folder.glob("*.log")):
        for fields, payload in _entries(path.read_text()):
            rows = [fields[name] for name in ("compilation_metrics", "bwd_compilation_metrics") if name in fields]
            metrics += [(_compile_id(fields, row), row) for row in rows]
            if fields.get("artifact", {}).get("name") == "dynamo_graph_break_reason" and (found := _BREAK.search(payload)):
                breaks.add(f"{Path(found[1]).name}:{found[2]}")
    again_ids = {compile_id for compile_id, row in metrics if row.get("recompile_reason")}
    limited = [row for _, row in metrics if "recompile_limit" in str(row.get("fail_reason") or "")]
    again = [(compile_id, row) for compile_id, row in metrics if compile_id in again_ids]
    reasons = [row["recompile_reason"] for _, row in again if row.get("recompile_reason") and row not in limited]
    return Truth(
        seconds=sum(_seconds(row) for _, row in metrics),
        again_seconds=sum(_seconds(row) for _, row in again),
        again=len(reasons),
        reasons=Counter(reason.strip().partition("\n")[0] for reason in reasons),
        limits=len(limited),
        breaks=frozenset(breaks),
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """What the pages of tlparse say; see `Truth`. `seconds`: of forward, since they tell none of a backward apart."""

    seconds: float
    reasons: Counter[str]
    limits: int
    breaks: frozenset[str]


def of_tlparse(folder: Path) -> Listed:
    """Return what the pages in a folder say that tlparse made."""
    pages = [re.sub(r"<[^>]*>", " ", path.read_text()) for path in folder.glob("*/compilation_metrics_*.html")]
    limited = {path.parent for path in folder.glob("*/compilation_metrics_*.html") if "recompile_limit" in path.read_text()}
    reasons = [path.read_text() for path in folder.glob("*/recompile_reasons_*.json") if path.parent not in limited]
    broken = [found for path in folder.glob("*/dynamo_graph_break_reason_*.txt") if (found := _BREAK.search(path.read_text()))]
    return Listed(
        seconds=sum(float(seconds) for page in pages for seconds in _ENTIRE.findall(page)),
        reasons=Counter(_first(text) for text in reasons),
        limits=len(limited),
        breaks=frozenset(f"{Path(found[1]).name}:{found[2]}" for found in broken),
    )


def _first(text: str) -> str:
    """Return the first of the reasons: a text, or a list of them as JSON."""
    if text.startswith("["):
        text = json.loads(text)[0]
    return text.strip().partition("\n")[0]


def _entries(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    fields: dict[str, Any] | None = None
    payload: list[str] = []
    for line in text.splitlines():
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        if fields is not None:
            yield fields, "\n".join(payload)
        found, payload = _OBJECT.search(line), []
        fields = json.loads(found[1]) if found else None
    if fields is not None:
        yield fields, "\n".join(payload)


def _compile_id(fields: dict[str, Any], row: dict[str, Any]) -> str:
    return str(row.get("compile_id") or f"{fields.get('frame_id')}/{fields.get('frame_compile_id')}")


def _seconds(row: dict[str, Any]) -> float:
    backward = row.get("backward_cumulative_compile_time_us")
    return float(row.get("entire_frame_compile_time_s") or (backward or 0) / 1e6)
