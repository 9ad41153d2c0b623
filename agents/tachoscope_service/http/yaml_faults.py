"""What is wrong with a YAML file: all faults at once, and no secret in any of them."""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tachoscope_core.located_yaml import PlainDocument

_log = logging.getLogger(__name__)


class Reader:
    """Takes values out of the document and notes what is wrong with them, so that one run names every fault.

    Attributes:
        files: what the document names and could be read.
        faults: each with the file, the key, the offending value and the way out.
    """

    def __init__(self, document: PlainDocument) -> None:
        self.document = document
        self.file = document.path
        self.files: list[Path] = []
        self.faults: list[str] = []

    def fault(self, key: str, problem: str, fix: str) -> None:
        line = self.document.line(key)
        self.faults.append(f"{self.file}{f':{line}' if line else ''}: {key} {problem} ({fix})")

    def section(self, value: Any, key: str, known: set[str]) -> dict[str, Any]:
        """Return a mapping with the known keys only."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(key or "the document", "is not a mapping", "write `key: value` lines below it")
            return {}
        for name in value:
            if name not in known:
                self.fault(
                    f"{key}.{mask(name)}" if key else mask(name), "is an unknown key", f"known are {', '.join(sorted(known))}"
                )
        return {name: item for name, item in value.items() if name in known}

    def text(
        self, section: Mapping[str, Any], prefix: str, key: str, default: str, allowed: Mapping[str, str] | None = None
    ) -> str:
        """Return a text; `allowed` holds the values it may have, each with the reason why it is refused, or none."""
        value = section.get(key, default)
        if not isinstance(value, str):
            self.fault(f"{prefix}.{key}", f"is {mask(value)}, not a text", "put it in quotes")
            return default
        if allowed is None or value == default:
            return value
        if value not in allowed:
            usable = ", ".join(name for name, refusal in allowed.items() if not refusal)
            self.fault(f"{prefix}.{key}", f"{mask(value)} is unknown", f"use one of {usable}")
            return default
        if allowed[value]:
            self.fault(f"{prefix}.{key}", f"{value} cannot be honoured: {allowed[value]}", "use another value or remove it")
        return value

    def texts(self, section: Mapping[str, Any], prefix: str, key: str) -> tuple[str, ...]:
        value = section.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fault(f"{prefix}{key}", "is not a list of texts", "write one `- value` a line")
            return ()
        return tuple(value)

    def readable(self, key: str, value: str, *, shown: str) -> bytes | None:
        """Return what a file holds; `shown` is how to name it in a message."""
        target = self.path(value)
        try:
            content = target.read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not a path"
            self.fault(key, f"{shown} cannot be read: {reason}", "write the path of a file that this user may read")
            return None
        self.files.append(target)
        return content

    def path(self, value: str) -> Path:
        """Return a path that is relative to the document, unless it is absolute."""
        return self.file.parent / value

    def warn_if_open(self, key: str, target: Path) -> None:
        """Log that a secret is readable by all users. Not a fault: Kubernetes mounts secrets like this by default."""
        if target.stat().st_mode & stat.S_IROTH:
            _log.warning("%s: %s %s is readable by all users: chmod o-r", self.file, key, target)


def mask(value: object) -> str:
    """Return a value as a message may quote it: short, on one line, and no secret that stands in the wrong place."""
    text = str(value)
    if text.startswith("$2") or len(text) > 64:
        return f"(a text of {len(text)} characters)"
    return repr(text)
