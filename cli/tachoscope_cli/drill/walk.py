"""Walks through an alert's runbook while the drill's fault is there: each query and command is run, and its answer judged."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from tachoscope_alerts.spec.burn_rate_windows import Timing, scaled_expression, seconds_of
from tachoscope_cli.drill.agent import Agent
from tachoscope_cli.drill.prometheus_alertmanager import samples
from tachoscope_cli.drill.webhook_receiver import Arrival
from tachoscope_cli.runbooks.pages import EMPTY, in_query, page_of
from tachoscope_cli.runbooks.parts import Command, Query, Row, healthy, page_parts, queries_named_in
from tachoscope_core.net.http_client import StatusError

RUN = frozenset({"cat", "curl", "df", "head", "kill", "ls", "ps", "py-spy", "sort", "tachoscope", "tail"})
"""Programs that a walk runs: they read, or reach the drill's own processes only. A cluster is nobody's to be drilled."""
PATIENCE_SECONDS = 45.0
"""An answer may come late: records are shipped once a second, and a command line of ours takes seconds to start."""
_COMMAND_SECONDS = 120.0
_LOOK_SECONDS = 0.5
_SECTIONS = (1, 2, 3, 4)
_VERIFY = 5
_PLACEHOLDER = re.compile(r"\$\{(\w+)")
_SERIES = re.compile(r"\b(tachoscope_\w+|slo:[\w:]+|up)\b(?=[{\[) ]|$)")
_MOST_ROWS = 3
_T = TypeVar("_T")
Verdict = Literal["right", "WRONG", "not judged", "not run"]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a runbook says of one fault. Queries are named by number, commands by their first words.

    Attributes:
        shows: queries that are not as where all is well: that is how the page shows this fault. Of these, the ones that section 5
            names are as there again after it.
        has: labels of a series that a query's answer has to have, and its value has to be above 0.
        means: what the page's words for "healthy" come to in this drill, where they are no number, or a time that is scaled.
        either: queries that the fault does not decide, and why: they are asked and not judged.
        takes: variables that are read off the first series of a query: the query and the label.
        answers: a pattern that a command's answer has; its named groups are variables of what follows. Other commands have to end
            with 0.
        ends: a command that ends the fault. last: commands that are run at the very end, in this order.
    """

    shows: frozenset[int] = frozenset()
    has: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    means: Mapping[int, str] = field(default_factory=dict)
    either: Mapping[int, str] = field(default_factory=dict)
    takes: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    ends: str = ""
    last: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunbookStep:
    """One query or command of a page. `when`: during the fault, after it, or at the end of the drill."""

    when: str
    section: int
    what: str
    verdict: Verdict
    answer: str


@dataclass
class Walk:
    """A walk through the runbook of an alert that came.

    Args:
        known: variables of the page that the person on call knows, such as addresses.
        say: is told what is asked.
    """

    arrival: Arrival
    expected: Expected
    timing: Timing
    prometheus_url: str
    agent: Agent
    known: Mapping[str, str]
    say: Callable[[str], None]
    steps: list[RunbookStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        name = self.arrival.annotations.get("runbook_url", "").rpartition("/")[2]
        page = page_of(name)
        self._parts, self._verified = page_parts(page), queries_named_in(page, _VERIFY)
        needed = set(_PLACEHOLDER.findall(page))
        self._variables = {**EMPTY, **self.known, **{key: value for key, value in self.arrival.labels.items() if key in needed}}
        self._folder = self.agent.folder / "walk"
        _own_command(self._folder)

    def run_diagnosis(self) -> None:
        """Ask and run what stands in the sections up to the diagnosis, except what ends the fault or comes last."""
        for part in self._parts:
            if part.section in _SECTIONS and not self._is_kept(part):
                self._do("fault", part)

    def end(self) -> None:
        """Run the page's own step that ends the fault, if it has one."""
        for part in self._parts:
            if isinstance(part, Command) and self.expected.ends and part.text.startswith(self.expected.ends):
                self._do("fault", part)

    def after(self) -> None:
        """See that what section 5 names is as where all is well, and run its commands; then run what is last."""
        named = self._verified & self.expected.shows
        shown = [part for part in self._parts if isinstance(part, Query) and part.number in named]
        verifying = [part for part in self._parts if isinstance(part, Command) and part.section == _VERIFY]
        verified: list[Query | Command] = [*shown, *verifying]
        for part in verified:
            self._do("after", part)
        for first in self.expected.last:
            for part in self._parts:
                if isinstance(part, Command) and part.section in _SECTIONS and part.text.startswith(first):
                    self._do("end", part)

    def _is_kept(self, part: Query | Command) -> bool:
        kept = (*((self.expected.ends,) if self.expected.ends else ()), *self.expected.last)
        return isinstance(part, Command) and part.text.startswith(kept)

    def _do(self, when: str, part: Query | Command) -> None:
        what = f"Q{part.number} {part.what}" if isinstance(part, Query) else part.text
        self.say(f"runbook {self.arrival.name}, section {part.section}: {what}")
        verdict, answer = self._asked(when, part) if isinstance(part, Query) else self._ran(part)
        self.steps.append(RunbookStep(when, part.section, what, verdict, answer))

    # --- queries ---

    def _asked(self, when: str, query: Query) -> tuple[Verdict, str]:
        missing = [name for name in _PLACEHOLDER.findall(query.expression) if name not in EMPTY | self._variables]
        if missing:
            return "not run", f"needs {', '.join(missing)}"
        expression = scaled_expression(in_query(query.expression, self._variables), self.timing)
        wanted = self._wanted(when, query)

        def judged() -> tuple[Verdict, str]:
            try:
                rows = samples(self.prometheus_url, expression)
            except StatusError as error:
                return "WRONG", f"Prometheus refuses it: {error}"
            self._add_rows(query, rows)
            if not rows and query.number not in self.expected.shows and (absent := self._unmeasured(expression)):
                return "not run", f"needs {absent}, which nothing here measures"
            if query.number in self.expected.either:
                return "not judged", f"{_rows_text(rows)} ({self.expected.either[query.number]})"
            return ("right" if wanted(rows) else "WRONG"), f"{_rows_text(rows)} (healthy: {self._describe(query)})"

        return _until(judged, lambda found: found[0] != "WRONG")

    def _wanted(self, when: str, query: Query) -> Callable[[Sequence[Row]], bool]:
        """Return a predicate for the answer that the page leads to expect."""
        words = self._describe(query)
        labels = self.expected.has.get(query.number)
        if when == "fault" and labels is not None:
            return lambda rows: any(labels.items() <= row.items() and value > 0 for row, value in rows)
        if when == "fault" and query.number in self.expected.shows:
            return lambda rows: healthy(words, rows) is False
        return lambda rows: healthy(words, _shortest(rows)) is True

    def _describe(self, query: Query) -> str:
        return self.expected.means.get(query.number, query.healthy)

    def _add_rows(self, query: Query, rows: Sequence[Row]) -> None:
        for name, (number, label) in self.expected.takes.items():
            if number == query.number and rows and label in rows[0][0]:
                self._variables.setdefault(name, rows[0][0][label])

    def _unmeasured(self, expression: str) -> str:
        """Return the missing series of a query; empty if one of them exists."""
        names = list(dict.fromkeys(_SERIES.findall(expression)))
        seen = any(samples(self.prometheus_url, f"count_over_time({name}[5m])") for name in names)
        return "" if seen else " and ".join(names)

    # --- commands ---

    def _ran(self, command: Command) -> tuple[Verdict, str]:
        if lacking := self._lacks(command):
            return "not run", f"needs {lacking}"
        pattern = next((one for first, one in self.expected.answers.items() if command.text.startswith(first)), None)

        def judged() -> tuple[Verdict, str]:
            code, said = self._shell(command.text)
            found = re.search(pattern, said) if pattern is not None else None
            if found is not None:
                self._variables |= {name: value for name, value in found.groupdict().items() if value is not None}
            right = found is not None if pattern is not None else code == 0
            return ("right" if right else "WRONG"), _line_of(said, found) or f"ended with {code}"

        return _until(judged, lambda found: found[0] != "WRONG")

    def _lacks(self, command: Command) -> str:
        """Return what a command needs that a drill lacks; empty: nothing."""
        for program in command.programs():
            if program not in RUN:
                return program
            if program != "tachoscope" and shutil.which(program) is None:
                return program
        missing = [name for name in _PLACEHOLDER.findall(command.text) if name not in self._variables]
        if missing:
            return ", ".join(missing)
        if "kill" in command.programs() and not self._is_ours(self._variables.get("pid", "")):
            return "a process of the drill that is still there"
        return ""

    def _is_ours(self, pid: str) -> bool:
        """Return whether a process belongs to the drill: no other is sent a signal."""
        its_spool = os.fsencode(f"TACHOSCOPE_SPOOL={self.agent.spool}")
        try:
            return its_spool in Path(f"/proc/{int(pid)}/environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return False

    def _shell(self, text: str) -> tuple[int, str]:
        """Run a command of the page, which is trusted. Foreign values are in its environment, where they run nothing."""
        places = {"PATH": f"{self._folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "COLUMNS": "200", "NO_COLOR": "1"}
        text = text.replace('"/tmp/', f'"{self._folder}/')  # what it keeps goes with the drill
        command = ["bash", "-c", text]
        environ = {**self.agent.environment(), **places, **self._variables}
        try:
            done = subprocess.run(
                command, env=environ, cwd=self._folder, capture_output=True, text=True, errors="replace", timeout=_COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired:
            return 124, f"did not end within {_COMMAND_SECONDS:.0f} s"
        return done.returncode, done.stdout + done.stderr


def _own_command(folder: Path) -> None:
    """Create a `tachoscope` command that runs this installation."""
    folder.mkdir(exist_ok=True)
    script = folder / "tachoscope"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tachoscope_cli.main "$@"\n')
    script.chmod(0o755)


def _until(asked: Callable[[], _T], good: Callable[[_T], bool]) -> _T:
    """Return the first good answer, else the last one before the timeout."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not good(answer := asked()) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return answer


def _shortest(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the shortest window, if there are windows: longer ones still contain the fault."""
    windows = [seconds_of(row["window"]) for row, _ in rows if "window" in row]
    return [one for one in rows if "window" not in one[0] or seconds_of(one[0]["window"]) == min(windows)]


def _rows_text(rows: Sequence[Row]) -> str:
    """Return an answer in one line: the labels that differ between its series, and values."""
    if not rows:
        return "no row"
    first = rows[0][0]
    differing = [name for name in first if name != "__name__" and any(row.get(name) != first[name] for row, _ in rows)]
    texts = [" ".join([*(row.get(name, "-") for name in differing), f"{value:.4g}"]) for row, value in rows[:_MOST_ROWS]]
    more = len(rows) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")


def _line_of(said: str, found: re.Match[str] | None) -> str:
    """Return the relevant line of an answer: the one searched for, else the first."""
    if found is not None:
        start = said.rfind("\n", 0, found.start()) + 1
        return said[start:].partition("\n")[0].strip()
    return next((line.strip() for line in said.splitlines() if line.strip()), "")
