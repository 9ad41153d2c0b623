"""YAML by libyaml, which takes a tenth of the time that Python's own reader and writer do, where PyYAML was built with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MAX_DEPTH = 200
"""Lists and mappings within one another: libyaml's loader recurses in C, where one that is nested deeper ends the process."""


def load(text: str | bytes) -> Any:
    """Return the one document of a text.

    Raises:
        yaml.YAMLError: it is not valid YAML, has a tag of Python's, or is nested deeper than MAX_DEPTH.
    """
    check_depth(text)
    return yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe loader


def load_shipped(text: str | bytes) -> Any:
    """Return the one document of a file that is part of the project: its depth is known, and not looked at in a pass of its own."""
    return yaml.load(text, Loader=LOADER)  # noqa: S506 - a safe loader


def load_all(text: str | bytes) -> list[Any]:
    """Return all documents of a text; the same errors."""
    check_depth(text)
    return list(yaml.load_all(text, Loader=LOADER))


def compose_all(text: str | bytes) -> Iterator[yaml.Node | None]:
    """Yield the nodes of all documents of a text; the same errors."""
    check_depth(text)
    yield from yaml.compose_all(text, Loader=LOADER)


def check_depth(text: str | bytes) -> None:
    """Raise yaml.YAMLError if a text is nested deeper than MAX_DEPTH, or is not valid YAML."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                problem = f"it is nested more than {MAX_DEPTH} deep"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]  # libyaml's mark
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
