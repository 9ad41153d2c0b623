"""Texts that others wrote, for a terminal: names in records may hold what it would obey."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_CONTROL = {number: "?" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}
_SEPARATORS = dict.fromkeys((0x2028, 0x2029), "?")
_DIRECTIONS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "?")
"""They turn the order in which what follows is shown."""
_STEERING = _CONTROL | _SEPARATORS | _DIRECTIONS


def safe(text: str) -> str:
    """Return a text without signs that steer a terminal, and with `?` for what no encoding has."""
    return text.translate(_STEERING).encode(errors="replace").decode()


def in_lines(part: T) -> T:
    """Return a report, or a part of one, whose texts neither steer a terminal nor break a line: none can forge a line."""
    return _in_lines(part)  # type: ignore[no-any-return]


def _in_lines(part: Any) -> Any:
    if isinstance(part, str):
        return safe(part).replace("\n", "?")
    if isinstance(part, msgspec.Struct):
        fields = {name: _in_lines(getattr(part, name)) for name in part.__struct_fields__}
        return msgspec.structs.replace(part, **fields)
    if isinstance(part, dict):
        return _named(part)
    return type(part)(map(_in_lines, part)) if type(part) in {list, tuple} else part


def _named(part: dict[Any, Any]) -> dict[Any, Any]:
    """Return it with clean names; those that become the same stay apart, so that no state of a ledger is lost."""
    clean: dict[Any, Any] = {}
    for name, value in part.items():
        shown = _in_lines(name)
        while shown in clean:
            shown += "?"
        clean[shown] = _in_lines(value)
    return clean
