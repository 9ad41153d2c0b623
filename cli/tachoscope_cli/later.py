"""Commands that are made when they are asked for: no command waits for the modules and options of the others."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import typer

Function = TypeVar("Function", bound=Callable[..., Any])

MARKUP: Any = "markdown"
"""How help texts are written."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is.

    Attributes:
        target: the function, or `module:name` of it, or of a `typer.Typer` with commands of its own.
        settings: what `typer.Typer.command`, or `add_typer`, takes beside the name.
    """

    target: Callable[..., Any] | str
    settings: Mapping[str, Any]

    def made(self, name: str) -> Any:
        """Return the command as typer makes it."""
        found = self._found()
        holder = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name, **self.settings)
        else:
            holder.command(name, **self.settings)(found)
        return typer.main.get_group(holder).commands[name]

    def title(self, name: str) -> Any:
        """Return a command that only has the name and the help of this one: what a list of commands shows."""
        found = self._found()
        text = found.info.help if isinstance(found, typer.Typer) else found.__doc__
        holder = typer.Typer(add_completion=False, rich_markup_mode=MARKUP)
        holder.command(name, **(dict(self.settings) | {"help": text}))(lambda: None)
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

    def add(self, name: str, target: Callable[..., Any] | str, **settings: Any) -> None:
        """Add a command; see `Place`."""
        self._places[name] = Place(target, settings)

    def command(self, **settings: Any) -> Callable[[Function], Function]:
        """Return a decorator that adds a function under its own name."""

        def added(function: Function) -> Function:
            self.add(function.__name__, function, **settings)
            return function

        return added

    def titles(self) -> dict[str, Any]:
        """Return all of them without options, which take longest to make."""
        return {name: place.title(name) for name, place in self._places.items()}

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
