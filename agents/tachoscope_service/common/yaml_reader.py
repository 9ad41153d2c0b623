"""A YAML file taken apart, with all its faults at once and no secret in any of them."""

from __future__ import annotations

import functools
import logging
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tachoscope_core.errors import TachoscopeError

_log = logging.getLogger(__name__)


class Reader:
    """Takes values out of the document and notes what is wrong with them, so that one run names every fault.

    Attributes:
        files: what the document names and could be read.
        faults: each with the file, the key, the offending value and the way out.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.files: list[Path] = []
        self.faults: list[str] = []

    def fault(self, key: str, problem: str, fix: str) -> None:
        """Note one."""
        self.faults.append(f"{self.file}: {key} {problem} ({fix})")

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
        """Return a list of texts."""
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
        """Log that everybody may read a secret. Not a fault: Kubernetes mounts secrets like that unless told otherwise."""
        if target.stat().st_mode & stat.S_IROTH:
            _log.warning("%s: %s %s can be read by everybody on this machine: chmod o-r", self.file, key, target)


def mask(value: object) -> str:
    """Return a value as a message may quote it: short, on one line, and no secret that stands in the wrong place."""
    text = str(value)
    if text.startswith("$2") or len(text) > 64:
        return f"(a text of {len(text)} characters)"
    return repr(text)


def parse(file: Path, what: str) -> Any:
    """Read a YAML document; `what` is its name in messages.

    Raises:
        TachoscopeError: with the place where it cannot be read.
    """
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(file.read_bytes(), Loader=_without_duplicates(base))  # noqa: S506 - a subclass of the safe loader
    except OSError as error:
        fix = "name an existing file that this user may read"
        raise TachoscopeError(f"the {what} {file} cannot be read: {error.strerror}", fix=fix) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # Neither the parser's message nor what lies at that place: either may be a hash or a token.
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = "a key stands there twice" if isinstance(error, _DuplicateKeyError) else "it is not valid YAML"
        fix = "correct that line; put values with special characters in quotes"
        raise TachoscopeError(f"the {what} {file}{place}: {problem}", fix=fix) from None


class _DuplicateKeyError(yaml.constructor.ConstructorError):
    """A key stands twice in one mapping: YAML's libraries would take the last without a word."""


@functools.cache
def _without_duplicates(base: type[Any]) -> type[Any]:
    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
            seen: set[str] = set()
            for key, _ in node.value:
                if key.value in seen if isinstance(key, yaml.ScalarNode) else False:
                    raise _DuplicateKeyError(None, None, "duplicate key", key.start_mark)
                seen.add(str(key.value))
            return super().construct_mapping(node, deep)  # type: ignore[no-any-return]

    return Loader
