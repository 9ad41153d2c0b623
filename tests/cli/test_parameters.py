"""Options take what needs no conversion without typer's, which imports pydantic, and leave the rest to it."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.main

from tachoscope_cli.common.parameters import without_conversions

Kind = StrEnum("Kind", ["text", "json"])


def fresh() -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    @app.command()
    def _(
        paths: list[str],
        name: str | None = None,
        every: Annotated[list[str] | None, typer.Option()] = None,
        steps: Annotated[int, typer.Option(min=2)] = 5,
        share: float = 0.5,
        output: Path | None = None,
        kind: Annotated[Kind, typer.Option("--kind")] = Kind["text"],
        wait: Annotated[bool, typer.Option("--wait/--no-wait")] = True,
    ) -> None: ...

    return typer.main.get_command(app)


def parsed(command: Any, words: list[str]) -> Any:
    try:
        values = command.make_context("it", words).params
    except Exception as error:
        return type(error), str(error)
    return {name: (type(value), value) for name, value in values.items()}


@pytest.mark.parametrize(
    "words",
    [
        ["a"],
        [],
        ["a", "b", "--name", "", "--every", "x", "--every", "y", "--no-wait"],
        ["a", "--steps", "3", "--share", "1", "--output", "o", "--kind", "json"],
        ["a", "--steps", "1"],
        ["a", "--kind", "JSON"],
        ["a", "--share", "half"],
    ],
    ids=" ".join,
)
def test_each_value_and_each_error_is_that_of_typer(words: list[str]) -> None:
    command = fresh()
    without_conversions(command, typer.Context(command))

    assert parsed(command, list(words)) == parsed(fresh(), list(words))


def test_neither_help_nor_a_command_with_plain_options_imports_pydantic_or_rich() -> None:
    code = "import sys, tachoscope_cli.main as it\ntry: it.main(sys.argv[1:])\nexcept SystemExit: pass\n"
    code += "print('imported:', *(name for name in ('pydantic', 'rich.console', 'numpy') if name in sys.modules))"

    for words in (["--help"], ["hang", "--format", "json", "nowhere/"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "imported:"
