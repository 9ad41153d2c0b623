"""YAML in which every value knows its file, line and key, so that a message can name them.

A document is composed: keys stay the words that were written (`on` is not a boolean), and tags make nothing. `read_plain` makes
Python's values of one, with the line of each key.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError

_TAG = "tag:yaml.org,2002:"
_BOOLEANS = yaml.SafeLoader.bool_values
_MOST_SHOWN = 60
_MOST_COUNT = 1_000_000
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it stands.

    Attributes:
        path: of the file. key: its place in the document, such as `spec.objectives[0].target`.
    """

    node: yaml.Node
    path: str
    key: str

    @property
    def line(self) -> int:
        """Line of the file, from 1."""
        return int(self.node.start_mark.line) + 1

    def error(self, problem: str, fix: str) -> TachoscopeError:
        """Return an error that names file, line and key."""
        return TachoscopeError(f"{self.path}:{self.line}: {self.key or 'the document'} {problem}", fix=fix)

    def lines(self) -> dict[str, int]:
        """Return the lines of all that stands in it, by key within it (`spec.labels.model`); of what an alias repeats once."""
        found: dict[str, int] = {}
        left, seen = [("", self.node)], set[int]()
        while left:
            below, node = left.pop()
            if not isinstance(node, yaml.MappingNode) or id(node) in seen:
                continue
            seen.add(id(node))
            inside = [(f"{below}{key.value}", value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
            found |= {key: int(value.start_mark.line) + 1 for key, value in inside}
            left += [(f"{key}.", value) for key, value in inside]
        return found

    def section(self, known: Collection[str] | None = None) -> Section:
        """Return a mapping; keys without a value are left out.

        Raises:
            TachoscopeError: it is none, or has a key twice or one that is not known.
        """
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"is {quoted(self.node)}, not a mapping", "write `key: value` lines below it")
        seen: set[str] = set()
        found = {}
        for key, node in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Value(key, self.path, self.key).error("has a key that is not a word", "write `key: value`")
            place = Value(node, self.path, f"{self.key}.{key.value}" if self.key else str(key.value))
            at_key = Value(key, self.path, place.key)
            if key.value in seen:
                raise at_key.error("is defined twice", "remove one of the two")
            if known is not None and key.value not in known:
                raise at_key.error("is an unknown key", known_instead(key.value, known))
            seen.add(key.value)
            if not place.empty:
                found[str(key.value)] = place
        return Section(self, found)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def empty(self) -> bool:
        """Whether nothing is written there."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == f"{_TAG}null"

    def items(self) -> list[Value]:
        """Return the values of a list.

        Raises:
            TachoscopeError: it is none.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"is {quoted(self.node)}, not a list", "write one `- value` a line, or [value, value]")
        return [Value(node, self.path, f"{self.key}[{number}]") for number, node in enumerate(self.node.value)]

    def word(self) -> str:
        """Return what was written, of a number or boolean too, as the value of a label is.

        Raises:
            TachoscopeError: it is a mapping or a list, or nothing.
        """
        if not isinstance(self.node, yaml.ScalarNode) or self.empty:
            raise self.error(f"is {quoted(self.node)}, not a text", "write a text")
        return str(self.node.value)

    def strings(self) -> tuple[str, ...]:
        """Return the words of a list, or the one that stands there without a list.

        Raises:
            TachoscopeError: it holds anything else, or nothing.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            return (self.word(),)
        found = tuple(item.word() for item in self.items())
        if not found:
            raise self.error("is an empty list", "name at least one, or leave the key out")
        return found

    def text(self) -> str:
        """Return a text.

        Raises:
            TachoscopeError: it is anything else.
        """
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_TAG}str":
            raise self.error(f"is {quoted(self.node)}, not a text", "put it in quotes" if self._scalar else "write a text")
        return str(self.node.value)

    def number(self) -> float:
        """Return a finite number.

        Raises:
            TachoscopeError: it is anything else.
        """
        plain = isinstance(self.node, yaml.ScalarNode) and not self.node.style
        try:
            value = float(self.node.value) if plain else None
        except ValueError:
            value = None
        if value is None:
            raise self.error(f"is {quoted(self.node)}, not a number", "write a number such as 0.99, without quotes")
        if not math.isfinite(value):
            raise self.error(f"is {quoted(self.node)}, not a finite number", "write a number such as 0.99")
        return value

    def count(self, *, least: int = 0) -> int:
        """Return a whole number.

        Raises:
            TachoscopeError: it is anything else, or too small.
        """
        number = self.number()
        if number != int(number) or not least <= number <= _MOST_COUNT:
            raise self.error(f"is {self.word()}", f"write a whole number of at least {least}")
        return int(number)

    def seconds(self) -> float:
        """Return a duration.

        Raises:
            TachoscopeError: it is anything else.
        """
        match = _DURATION.fullmatch(self.word())
        if match is None:
            raise self.error(f"is {self.word()!r}, not a duration", "write 90s, 5m, 2h or 1d")
        return float(match[1]) * _SECONDS[match[2] or "s"]

    def flag(self) -> bool:
        """Return a boolean.

        Raises:
            TachoscopeError: it is anything else.
        """
        value = str(self.node.value).lower()
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != f"{_TAG}bool" or value not in _BOOLEANS:
            raise self.error(f"is {quoted(self.node)}, not a boolean", "write true or false, without quotes")
        return bool(_BOOLEANS[value])

    def plain(self) -> Any:
        """Return all that stands there as Python's values.

        Raises:
            TachoscopeError: it has a key twice, or is no value of YAML.
        """
        if twice := _key_that_stands_twice(self.node):
            raise Value(twice, self.path, f"{self.key}.{quoted(twice)}").error("is defined twice", "remove one of the two")
        try:
            return yaml.constructor.SafeConstructor().construct_document(self.node)
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise self.error(f"is not valid: {error}", "write plain values") from None

    @property
    def _scalar(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and not self.empty


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping: `place` is the mapping itself, `values` are what stands below its keys."""

    place: Value
    values: dict[str, Value]

    def get(self, key: str) -> Value | None:
        return self.values.get(key)

    def required(self, key: str, fix: str) -> Value:
        """Return the value of a key.

        Raises:
            TachoscopeError: it has none.
        """
        if key not in self.values:
            raise self.place.error(f"lacks {key}", fix)
        return self.values[key]


@dataclass(frozen=True, slots=True)
class PlainDocument:
    """A document as Python's values, None for an empty one, and the line of each key (`otlp.headers`)."""

    path: Path
    data: Any
    lines: Mapping[str, int]

    def line(self, key: str) -> int | None:
        """Return the line of a key such as `servers[0].url`, or of the nearest that it stands in; None: there is neither.

        Quotes around its parts do not count.
        """
        key = key.replace("'", "")
        while key and key not in self.lines:
            key = key.rpartition("[" if key.endswith("]") else ".")[0]
        return self.lines.get(key)


def read_plain(path: Path, *, secret: bool = False) -> PlainDocument:
    """Read a file of at most one document.

    Args:
        secret: it may hold passwords: no message quotes what lies at a place.

    Raises:
        TachoscopeError: it cannot be read, is not YAML, or has a key twice; with the place.
    """
    found = documents(path, secret=secret)
    if not found:
        return PlainDocument(path, None, {})
    if twice := _key_that_stands_twice(found[0].node):
        what = "a key" if secret else f"the key {quoted(twice)}"
        raise TachoscopeError(f"{path}:{twice.start_mark.line + 1}: {what} is defined twice", fix="remove one of the two")
    try:
        data = yaml.constructor.SafeConstructor().construct_document(found[0].node)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _invalid(path, error, secret=secret) from None
    return PlainDocument(path, data, found[0].lines())


def _key_that_stands_twice(document: yaml.Node) -> yaml.Node | None:
    """Return a duplicate key of a mapping at any depth: YAML libraries silently take the last."""
    left, seen = [document], set[int]()
    while left:
        node = left.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        elif isinstance(node, yaml.MappingNode):
            words: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in words:
                    return key
                words.add(str(key.value))
                left.append(value)
    return None


def documents(path: Path, *, secret: bool = False) -> list[Value]:
    """Return the documents of a YAML file; empty ones are left out.

    Raises:
        TachoscopeError: it cannot be read, or is not YAML; with the place.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TachoscopeError(f"{path} cannot be read: {error.strerror}", fix="name a file that this user may read") from None
    return parsed(text, str(path), secret=secret)


def parsed(text: bytes, origin: str, *, secret: bool = False) -> list[Value]:
    """Return the documents of a text of YAML, which includes JSON. Raises as `documents`; messages name `origin` as the file."""
    try:
        nodes = list(yaml_text.compose_all(text))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise _invalid(origin, error, secret=secret) from None
    values = [Value(node, origin, "") for node in nodes if node is not None]
    return [value for value in values if not value.empty]


def _invalid(path: Path | str, error: Exception, *, secret: bool) -> TachoscopeError:
    mark = getattr(error, "problem_mark", None)
    place = f":{mark.line + 1}" if mark else ""
    problem = "" if secret else f": {getattr(error, 'problem', None) or 'it cannot be taken apart'}"
    fix = "correct that line; put values with special characters in quotes" if secret else "correct that line"
    return TachoscopeError(f"{path}{place}: this is not valid YAML{problem}", fix=fix)


def quoted(node: yaml.Node) -> str:
    """Return a value as a message quotes it."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    text = str(node.value)
    if node.tag == f"{_TAG}null":
        return "empty"
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def known_instead(key: str, known: Collection[str]) -> str:
    """Return which word was meant, if one is near, and which there are."""
    near = difflib.get_close_matches(key, sorted(known), n=1)
    return f"did you mean {near[0]}? Known are {', '.join(sorted(known))}" if near else f"known are {', '.join(sorted(known))}"
