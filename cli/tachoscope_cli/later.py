"""Commands that are made when they are asked for: no command waits for the modules and options of the others.

Help is plain text: rich takes longer to import than everything else that a help needs.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import typer
import typer.core

from tachoscope_cli.common.parameters import without_conversions

Function = TypeVar("Function", bound=Callable[..., Any])


class Group(typer.core.TyperGroup):
    """Commands whose help lists them under titles of their own, with whole sentences; typer's plain list cuts those off."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        without_conversions(self, ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            without_conversions(command, ctx)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of the commands."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, panel, title in self.titles(ctx):
            panels.setdefault(panel, []).append((name, title))
        widest = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(widest), title) for name, title in rows])

    def titles(self, ctx: Any) -> Iterator[tuple[str, str, str]]:
        """Yield the name of each command, what it is listed under, and what it does."""
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            yield name, command.rich_help_panel or "Commands", _title(command.help)


def _title(text: str | None) -> str:
    """Return the first paragraph of a help, in one line."""
    return " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is.

    Attributes:
        title: what it does, in one sentence.
        target: the function, or `module:name` of it, or of a `typer.Typer` with commands of its own.
        settings: what `typer.Typer.command`, or `add_typer`, takes beside the name.
    """

    title: str
    target: Callable[..., Any] | str
    settings: Mapping[str, Any]

    def made(self, name: str) -> Any:
        """Return the command as typer makes it."""
        found = self._found()
        holder = typer.Typer(add_completion=False, rich_markup_mode=None)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name, cls=Group, help=self.title, **self.settings)
        else:
            holder.command(name, **self.settings)(found)
        return typer.main.get_group(holder).commands[name]

    def _found(self) -> Any:
        if callable(self.target):
            return self.target
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)


class Commands(Mapping[str, Any]):
    """Commands by name, in the order of the help. Each is made once, when it is asked for."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._made: dict[str, Any] = {}

    def add(self, name: str, target: Callable[..., Any] | str, title: str, **settings: Any) -> None:
        """Add a command; see `Place`. A function's help begins with the title, too: the list of commands does not import it."""
        self._places[name] = Place(title, target, settings)

    def command(self, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that adds a function under its own name."""

        def added(function: Function) -> Function:
            self.add(function.__name__, function, _title(function.__doc__), **settings)
            return function

        return added

    def titles(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name of each, what it is listed under, and what it does."""
        for name, place in self._places.items():
            yield name, place.settings["rich_help_panel"], place.title

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._places[name].made(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places
