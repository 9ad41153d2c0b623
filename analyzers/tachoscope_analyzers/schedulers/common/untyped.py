"""Looks into documents that others wrote: what is absent or of another type is None, "" or empty, never an exception."""

from __future__ import annotations

from typing import Any


def at(document: object, *path: str) -> Any:
    """Return what stands at the path of keys, or None."""
    for key in path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def items(document: object, *path: str) -> list[Any]:
    """Return the list at the path, empty if there is none."""
    found = at(document, *path)
    return found if isinstance(found, list) else []


def mapping(document: object, *path: str) -> dict[str, Any]:
    """Return the object at the path, empty if there is none."""
    found = at(document, *path)
    return found if isinstance(found, dict) else {}


def text(value: object) -> str:
    """Return a string as it is, anything else as empty."""
    return value if isinstance(value, str) else ""
