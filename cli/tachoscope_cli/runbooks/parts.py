"""A runbook in its parts, in the order of the page: queries, with what they show where all is well, and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tachoscope_core.errors import TachoscopeError

PROGRAMS = frozenset(
    {"curl", "df", "dmesg", "kill", "kubectl", "nvidia-smi", "ps", "py-spy", "scontrol", "systemctl", "tachoscope"}
)
"""What a command in the text of a page begins with."""
_HEADING = re.compile(r"^## (\d) ", re.MULTILINE)
_PIECE = re.compile(r"^```(?P<language>promql|sh)\n(?P<block>.*?)^```$|(?<!`)`(?P<inline>[^`\n]+)`(?!`)", re.DOTALL | re.MULTILINE)
_NOT_WALKED = re.compile(r"^\|.*$|\bUndo\b.*$|^<!--.*-->$", re.MULTILINE)
"""Cells of tables are steps for other causes, and undoing undoes a step."""
_COMMENT = re.compile(r"Q(?P<number>\d+) (?P<what>.+); healthy: (?P<healthy>.+)")
_BOUND = re.compile(r"(?P<how>below |above |)(?P<number>\d+(?:\.\d+)?)(?: for each| on \w+)?(?:[.,] .*)?")
Row = tuple[Mapping[str, str], float]
"""Labels and value of one series of an answer."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a page. `healthy`: what it shows where all is well, in the page's words."""

    section: int
    number: int
    what: str
    healthy: str
    expression: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, for a shell. `comment`: what stands behind it."""

    section: int
    text: str
    comment: str = ""

    def programs(self) -> list[str]:
        """Return the first word of each command of its pipes and lists."""
        words = shlex.shlex(self.text, posix=True, punctuation_chars=";|&")
        words.whitespace_split = True
        found, first = [], True
        for word in words:
            if first and not set(word) <= set(";|&"):
                found.append(word)
            first = set(word) <= set(";|&")
        return found


def page_parts(page: str) -> list[Query | Command]:
    """Return the queries and commands of a page.

    Raises:
        TachoscopeError: a query is not written as in runbooks/README.md.
    """
    found: list[Query | Command] = []
    places = [(one.start(), int(one[1])) for one in _HEADING.finditer(page)]
    ends = [start for start, _ in places[1:]] + [len(page)]
    for (start, section), end in zip(places, ends, strict=False):  # a page without sections of an alert has none
        for piece in _PIECE.finditer(_NOT_WALKED.sub("", page[start:end])):
            if piece["language"] == "promql":
                found += queries(section, piece["block"])
            elif piece["language"]:
                found += _commands(section, piece["block"])
            elif _is_command(piece["inline"].split()):
                found.append(Command(section, piece["inline"]))
    return found


def queries_named_in(page: str, section: int) -> frozenset[int]:
    """Return the numbers of the queries that the text of a section names."""
    text = re.search(rf"^## {section} .*?(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return frozenset(map(int, re.findall(r"\bQ(\d+)\b", text[0] if text else "")))


def _is_command(words: Sequence[str]) -> bool:
    """Return whether words of the text are a command that one can paste, not the name of one."""
    return len(words) > 2 and words[0] in PROGRAMS


def healthy(words: str, rows: Sequence[Row]) -> bool | None:
    """Return whether an answer is the one where all is well, in the page's words; None: they are not such that a program can tell.

    No row is healthy only where the words say so: else nothing was measured.
    """
    if words.startswith(("no row", "none")):
        return not rows
    bound = _BOUND.fullmatch(words)
    if bound is None or not rows:
        return None
    return all(_within(value, bound["how"], float(bound["number"])) for _, value in rows)


def _within(value: float, how: str, limit: float) -> bool:
    if how:
        return value < limit if how == "below " else value > limit
    return value == limit


def queries(section: int, block: str) -> list[Query]:
    """Return the queries of a block.

    Raises:
        TachoscopeError: one is not written as in runbooks/README.md.
    """
    lines = block.splitlines()
    found = []
    for words, expression in zip(lines[::2], [*lines[1::2], *([""] if len(lines) % 2 else [])], strict=True):
        comment = _COMMENT.fullmatch(words.removeprefix("# ")) if words.startswith("# ") else None
        if comment is None or not expression or expression.startswith("#"):
            raise TachoscopeError(
                f"a runbook's query is not written as a program can read it: {words!r}",
                fix="write two lines, '# Q1 what it shows; healthy: value' and the query",
            )
        found.append(Query(section, int(comment["number"]), comment["what"], comment["healthy"], expression))
    return found


def _commands(section: int, block: str) -> list[Command]:
    found, text = [], ""
    for line in block.splitlines():
        text += line
        if line.endswith("\\"):
            text = text[:-1]
            continue
        command, _, comment = text.partition("    # ")
        if command.strip() and not command.startswith("#"):
            found.append(Command(section, command.strip(), comment.strip()))
        text = ""
    return found
