"""Edits of a copied script at named anchor lines. Knows nothing of tachoscope or of faults.

An anchor is the text of a whole line without its indentation. An anchor that is missing, or is there twice, is an error: the
public code has changed, and a fault that was not planted must not be counted as one that was not found.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Place = Literal["before", "after", "replace", "top"]


class AnchorError(Exception):
    """The anchor line of an edit is not there exactly once."""


@dataclass(frozen=True)
class Edit:
    """One change of a file.

    Attributes:
        file: relative to the folder of the loop.
        anchor: the line that the text is placed at; for `top` it is not used.
        place: `top` is before the first line that imports something other than from `__future__`.
        nth: which of several equal lines, from 1; 0: there must be just one.
        deeper: the text belongs into the block that the anchor opens.
        marked: the place of this text is the place of the fault.
    """

    file: str
    anchor: str
    text: str
    place: Place = "before"
    nth: int = 0
    deeper: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Spot:
    """Where a planted text stands, after all edits: lines from `first` to `last`, the function that it is in, those it calls."""

    file: str
    first: int
    last: int
    function: str
    calls: tuple[str, ...] = ()


def apply_edits(folder: Path, edits: Sequence[Edit]) -> list[Spot]:
    """Change the files and return where the marked texts stand."""
    spots: list[Spot] = []
    for file in dict.fromkeys(edit.file for edit in edits):
        path = folder / file
        lines, marks = edit_lines(path.read_text().splitlines(), [edit for edit in edits if edit.file == file])
        path.write_text("\n".join(lines) + "\n")
        spots += [Spot(path.name, first, last, function_at(lines, first), called(lines[first - 1 : last])) for first, last in marks]
    return spots


def called(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the functions that some lines call by their bare name."""
    return tuple(re.findall(r"(?<![\w.])(\w+)\(", "\n".join(lines)))


def edit_lines(lines: list[str], edits: Sequence[Edit]) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the changed lines and the first and last line number of each marked text."""
    marked: list[tuple[int, int]] = []
    for edit in edits:
        at = _position(lines, edit)
        indent = " " * (len(lines[at]) - len(lines[at].lstrip()) + 4 * edit.deeper) if edit.place != "top" else ""
        text = textwrap.indent(textwrap.dedent(edit.text).strip("\n"), indent).splitlines()
        first = at + (edit.place == "after")
        gone = 1 if edit.place == "replace" else 0
        lines = lines[:first] + text + lines[first + gone :]
        shift = len(text) - gone
        marked = [(low + shift * (low > first), high + shift * (low > first)) for low, high in marked]
        if edit.marked:
            marked.append((first + 1, first + len(text)))
    return lines, marked


def function_at(lines: Sequence[str], number: int) -> str:
    """Return the name of the function that encloses the line of this number, `<module>` outside of all."""
    own = lines[number - 1]
    depth = len(own) - len(own.lstrip())
    if own.lstrip().startswith("def "):
        return _name(own)
    for line in reversed(lines[: number - 1]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < depth and not line.lstrip().startswith("#"):
            depth = indent
            if line.lstrip().startswith("def "):
                return _name(line)
    return "<module>"


def _name(line: str) -> str:
    return line.lstrip().removeprefix("def ").split("(")[0].strip()


def _position(lines: Sequence[str], edit: Edit) -> int:
    if edit.place == "top":
        return next(at for at, line in enumerate(lines) if line.startswith(("import ", "from ")) and "__future__" not in line)
    found = [at for at, line in enumerate(lines) if line.strip() == edit.anchor]
    if not found or (len(found) > 1 and not edit.nth) or edit.nth > len(found):
        raise AnchorError(f"{edit.file}: the anchor {edit.anchor!r} is there {len(found)} times")
    return found[max(edit.nth - 1, 0)]
