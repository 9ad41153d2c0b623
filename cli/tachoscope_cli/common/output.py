"""How results are written, to a terminal, a pipe or a file: reports, JSON, lists of problems."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import msgspec
import typer

from tachoscope_cli.common.options import print_notice
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_show.text.units import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from tachoscope_core.report.report import Report

_FILE_WIDTH = 110


def console() -> Console:
    """Return a console for results; in a pipe lines are as long as they need to be, and what looks like markup is none."""
    from tachoscope_cli.common.safe_console import SafeConsole

    return SafeConsole(width=None if sys.stdout.isatty() else _FILE_WIDTH)


def progress(*columns: ProgressColumn, on: Console | None = None) -> Progress:
    """Return a progress display of description, bar and further columns; it draws on terminals only. Default: on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    out = on or Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), *columns)
    return Progress(*shown, console=out, transient=True, disable=not out.is_terminal)


def show(report: Report, format_: str = "text", output: Path | None = None, *, then: Sequence[str] = ()) -> None:
    """Print a report, or write it to a file.

    Args:
        then: lines that follow a report in text.

    Raises:
        TachoscopeError: the file cannot be written.
    """
    if format_ == "text" and output is None and sys.stdout.isatty():
        from tachoscope_show.report import text as render_text

        render_text.render(report, console(), then=then)
        return
    write(_text(report, format_, then), output)


def draw(drawing: Callable[[Console], None], output: Path | None) -> None:
    """Let something be drawn on the terminal, or into a file.

    Raises:
        TachoscopeError: the file cannot be written.
    """
    out = console()
    if output is None:
        drawing(out)
        return
    with out.capture() as captured:
        drawing(out)
    write(captured.get(), output)


def write_json(found: object, output: Path | None = None) -> None:
    """Print a record as JSON and nothing else, or write it to a file.

    Raises:
        TachoscopeError: the file cannot be written.
    """
    write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n", output)


def write(text: str, output: Path | None) -> None:
    """Print a result, or write it to a file.

    Raises:
        TachoscopeError: the file cannot be written.
    """
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text)
    except OSError as error:
        raise TachoscopeError(f"could not write {output}: {error.strerror}") from None
    print_notice(f"written to {output}")


class Problem(Protocol):
    """A problem that a check found, which `str` makes a line."""

    @property
    def severity(self) -> str: ...  # error or note


def end_with_problems(
    problems: Sequence[Problem],
    unreadable: Mapping[str, str],
    answer: Callable[[int, int], msgspec.Struct],
    checked: str,
    *,
    as_json: bool,
) -> NoReturn:
    """Print problems as lines or as JSON, and exit with 1 if one is an error.

    Args:
        unreadable: the errors of files that cannot be read, by path. checked: what was checked, in words.
        answer: makes the JSON document from the numbers of errors and notes.
    """
    errors = len(unreadable) + sum(problem.severity == "error" for problem in problems)
    notes = len(unreadable) + len(problems) - errors
    if as_json:
        write_json(answer(errors, notes))
    else:
        for line in (*(f"error: {what}" for what in unreadable.values()), *map(str, problems)):
            typer.echo(line)
    print_notice(f"{checked}: {counted(errors, 'error')}, {counted(notes, 'note')}")
    raise typer.Exit(ExitCode.from_success(not errors))


def _text(report: Report, format_: str, then: Sequence[str]) -> str:
    if format_ == "json":
        from tachoscope_core.report.report import dump

        return dump(report).decode()
    if format_ == "html":
        from tachoscope_show.report import html as render_html

        return render_html.render(report)
    return _plain(report, then)


def _plain(report: Report, then: Sequence[str]) -> str:
    """Return the report as lines without trailing padding."""
    from tachoscope_cli.common.safe_console import SafeConsole
    from tachoscope_show.report import text as render_text

    text = io.StringIO()
    render_text.render(report, SafeConsole(file=text, width=_FILE_WIDTH), then=then)
    return re.sub(r" +$", "", text.getvalue(), flags=re.MULTILINE)
