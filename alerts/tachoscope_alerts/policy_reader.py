"""Takes values out of a YAML file and notes every fault with its line, so that one run names them all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tachoscope_core.errors import TachoscopeError

_T = TypeVar("_T", bound=str)


class Reader:
    """One file. Each method takes a node of it, or None where the node's parent has been said to lack it."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        self._faults: list[str] = []

    def document(self) -> yaml.Node | None:
        """Return the file's root.

        Raises:
            TachoscopeError: the file cannot be read, or is no YAML.
        """
        try:
            return yaml.compose(self._path.read_text(), Loader=yaml.SafeLoader)
        except OSError as error:
            raise TachoscopeError(f"the {self._what} {self._path} cannot be read: {error.strerror}", fix="name a file") from None
        except UnicodeDecodeError:
            raise TachoscopeError(f"the {self._what} {self._path} is no text", fix="save it as UTF-8") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark else 1
            raise TachoscopeError(f"{self._path}:{line}: this is no valid YAML", fix="correct that line") from None

    def finish(self) -> None:
        """End reading.

        Raises:
            TachoscopeError: with all faults that were noted.
        """
        if self._faults:
            raise TachoscopeError("\n".join(self._faults))

    def fault(self, node: yaml.Node, problem: str, fix: str) -> None:
        """Note one."""
        self._faults.append(f"{self._path}:{node.start_mark.line + 1}: {problem} ({fix})")

    def named(self, node: yaml.Node | None, what: str) -> dict[str, yaml.Node]:
        """Return the values of a mapping by its keys, whatever they are."""
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.fault(node, f"{what} has no keys", "write `key: value` below it")
            return {}
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fault(key, f"{what}: a key is no text", "write `key: value`")
            elif key.value in found:
                self.fault(key, f"{what}: {key.value} stands there twice", "remove one")
            else:
                found[key.value] = value
        return found

    def mapping(
        self, node: yaml.Node | None, what: str, required: Iterable[str], optional: Iterable[str] = ()
    ) -> dict[str, yaml.Node]:
        """Return the values of a mapping that has some keys, may have others, and has none beside these."""
        if not isinstance(node, yaml.MappingNode):
            if node is not None or not self._faults:
                self._faults.append(f"{self._path}:{node.start_mark.line + 1 if node else 1}: {what} has no keys (write `key: value`)")
            return {}
        found = self.named(node, what)
        known = [*required, *optional]
        for name in [name for name in found if name not in known]:
            self.fault(found.pop(name), f"{what} has the unknown key {name!r}", f"there are {', '.join(sorted(known))}")
        for name in sorted(set(required) - set(found)):
            self.fault(node, f"{what} lacks {name}", f"add {name}:")
        return found

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        """Return the items of a list."""
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.fault(node, f"{what} is no list", "write one `- item` a line, or [item, item]")
            return []
        return list(node.value)

    def text(self, node: yaml.Node | None, what: str) -> str:
        """Return a text that is not empty."""
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            self.fault(node, f"{what} is no text", "write a text")
            return ""
        return str(node.value)

    def number(self, node: yaml.Node | None, what: str, least: float, most: float) -> float:
        """Return a number within bounds."""
        text = self.text(node, what)
        if node is None or not text:
            return least
        try:
            value = float(text)
        except ValueError:
            value = most + 1
        if not least <= value <= most:
            self.fault(node, f"{what}: {text!r} is no number from {least:g} to {most:g}", "correct it")
            return least
        return value

    def one_of(self, node: yaml.Node | None, what: str, known: tuple[_T, ...]) -> _T:
        """Return one of the known texts; the first after a fault, which keeps it from being used."""
        text = self.text(node, what)
        found = next((name for name in known if name == text), None)
        if found is None and node is not None and text:
            self.fault(node, f"{what}: {text!r} is not known", f"there are {', '.join(known) or 'none'}")
        return found if found is not None else known[0] if known else ""  # type: ignore[return-value]

    def plain(self, node: yaml.Node) -> Any:
        """Return what a node holds as Python values."""
        try:
            return yaml.safe_load(yaml.serialize(node))
        except yaml.YAMLError:
            self.fault(node, "this holds what is no plain value", "write texts, numbers, lists and keys")
            return {}

    @staticmethod
    def texts_only(node: yaml.Node) -> Any:
        """Return what a node holds, all of it texts: YAML would take the time 22:00 for the number 1320."""
        return yaml.load(yaml.serialize(node), Loader=yaml.BaseLoader)  # noqa: S506 - it makes nothing but texts
