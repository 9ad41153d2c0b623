"""The file of planned maintenance: times that count for nothing in the life of a job."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError

_FORM = "the file is a YAML list of entries like {start: 2026-03-01T02:00:00Z, end: 2026-03-01T04:00:00Z, reason: new switches}"


def read(path: Path) -> list[tuple[float, float]]:
    """Return the windows of a file as Unix seconds, start and end.

    Times are Unix seconds, or ISO 8601 with a zone.

    Raises:
        TachoscopeError: the file cannot be read, or an entry is not sound; the message names the entry.
    """
    try:
        entries = yaml_text.load(path.read_text())
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror}", fix=_FORM) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TachoscopeError(f"{path} is not YAML: {' '.join(str(error).split())}", fix=_FORM) from None
    if not isinstance(entries, list):
        raise TachoscopeError(f"{path} is not a list", fix=_FORM)
    return [_window(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, start=1)]


def _window(entry: Any, where: str) -> tuple[float, float]:
    if not isinstance(entry, dict):
        raise TachoscopeError(f"{where}: {entry!r} is not a window", fix=_FORM)
    unknown = sorted(map(str, entry.keys() - {"start", "end", "reason"}))
    if unknown:
        raise TachoscopeError(f"{where}: unknown key {unknown[0]!r}", fix=_FORM)
    start, end = (_time(entry.get(name), f"{where}, {name}") for name in ("start", "end"))
    if end <= start:
        raise TachoscopeError(f"{where}: it ends ({entry['end']}) before it starts ({entry['start']})", fix=_FORM)
    return start, end


def _time(value: Any, where: str) -> float:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise TachoscopeError(f"{where}: {value!r} is not a time", fix=_FORM) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise TachoscopeError(f"{where}: {value.isoformat()} has no time zone", fix="add Z, or an offset such as +02:00")
        return value.timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise TachoscopeError(f"{where}: {value!r} is not a time" if value is not None else f"{where} is missing", fix=_FORM)
