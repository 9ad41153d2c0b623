"""A second, slow and simple reader of Kineto traces, for comparison: plain `json`, with `decimal` for all fractions."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any


@dataclass
class Independent:
    """The complete events in the order of the file, one list for each of their fields."""

    count: int = 0
    starts: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    tracks: list[tuple[str, str]] = field(default_factory=list)
    args: list[dict[str, Any]] = field(default_factory=list)
    memory: list[dict[str, Any]] = field(default_factory=list)
    outside: dict[str, Any] = field(default_factory=dict)

    def argument(self, *names: str) -> list[int]:
        """The first of some arguments that is a whole number, -1 where none is."""
        return [next((args[name] for name in names if isinstance(args.get(name), int)), -1) for args in self.args]


def independent(path: Path) -> Independent:
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
    tree = json.loads(text, strict=False, parse_float=Decimal)
    events = tree if isinstance(tree, list) else tree.pop("traceEvents")
    found = Independent(count=len(events), outside=tree if isinstance(tree, dict) else {})
    for event in events:
        if event.get("ph") == "X":
            found.starts.append(nanoseconds(event["ts"]))
            found.durations.append(max(0, nanoseconds(event.get("dur", 0))))
            found.names.append(event.get("name", ""))
            found.categories.append(event.get("cat", ""))
            found.tracks.append((_text(event.get("pid")), _text(event.get("tid"))))
            found.args.append(event.get("args") or {})
        elif event.get("ph") == "i" and "Bytes" in event.get("args", {}):
            found.memory.append(event)
    return found


def nanoseconds(value: Any) -> int:
    return int((Decimal(value) * 1000).to_integral_value(ROUND_HALF_EVEN))


def _text(value: Any) -> str:
    return "" if value is None else str(value)
