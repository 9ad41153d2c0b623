"""Thresholds of panels, from the specs of the objectives: a number that is promised is written down once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TypeVar

from tachoscope_alerts.spec import files, slo_files
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Slices, Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.training import EFFECTIVE_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.parts.panels import ColorStep

GOOD_STATES, LEFT_OUT_STATES = "|".join(EFFECTIVE_STATES), "queued"
"""States of a ledger in which time is good for the objective training-goodput, and those that it does not count, as patterns."""


_KINDS = {Ratio: "counts events", AtMost: "bounds what a histogram counts", MoreThan: "counts fast events", Slices: "counts time"}
_AS_SHIPPED = "keep the kind of its indicator, its bound can be any"
_CHOSEN: ContextVar[tuple[Path, ...]] = ContextVar("specs_chosen", default=())
_Kind = TypeVar("_Kind", Ratio, AtMost, MoreThan, Slices)


@contextmanager
def specs_of(paths: Sequence[Path]) -> Iterator[None]:
    """Read the objectives from these files and folders for the length of the block; without any from alerts/slos."""
    _read.cache_clear()  # what was read of these before may have been changed since
    before = _CHOSEN.set(tuple(paths))
    try:
        yield
    finally:
        _CHOSEN.reset(before)


def specs() -> tuple[Path, ...]:
    """Return where the objectives are read.

    Raises:
        TachoscopeError: nowhere.
    """
    return _CHOSEN.get() or (files.path_of("slos"),)


def every() -> tuple[Slo, ...]:
    """Return all objectives, in their order.

    Raises:
        TachoscopeError: a spec cannot be read, or there is none.
    """
    return _read(tuple(path.resolve() for path in specs()))


def objective(name: str) -> Slo:
    """Return an objective by its name.

    Raises:
        TachoscopeError: there is none of this name.
    """
    found = next((slo for slo in every() if slo.name == name), None)
    if found is None:
        what = f"the boards show the objective {name}, which {' and '.join(map(str, specs()))} does not have"
        raise TachoscopeError(what, fix="keep its spec and name (the target can change), or use the shipped objectives with --slos")
    return found


def indicator(name: str, kind: type[_Kind]) -> _Kind:
    """Return what an objective measures, where a panel can show one kind only.

    Raises:
        TachoscopeError: it is of another kind.
    """
    found = objective(name).indicator
    if not isinstance(found, kind):
        raise TachoscopeError(
            f"the objective {name} {_KINDS[type(found)]}; its panels need one that {_KINDS[kind]}", fix=_AS_SHIPPED
        )
    return found


def at_least(name: str) -> tuple[ColorStep, ColorStep]:
    """Return the colours of a ratio of good events: red below the target."""
    return ColorStep(float("-inf"), palette.BAD), ColorStep(objective(name).target, palette.OK)


def bound(name: str) -> float:
    """Return the value that an objective asks of each event or moment: seconds, a ratio, an age.

    Raises:
        TachoscopeError: it asks for none.
    """
    found = objective(name).indicator
    if isinstance(found, Ratio):
        raise TachoscopeError(f"the objective {name} {_KINDS[Ratio]}; its panels need one with a bound", fix=_AS_SHIPPED)
    return found.bound


def above(name: str) -> tuple[ColorStep, ...]:
    """Return the colours of a value that an objective wants to be at most its bound: amber above it."""
    return (ColorStep(bound(name), palette.WARN),)


def colors_below(name: str) -> tuple[ColorStep, ColorStep]:
    """Return the colours of a value that an objective wants to be at least its bound: amber below it."""
    return ColorStep(float("-inf"), palette.WARN), ColorStep(bound(name), palette.OK)


def spent(name: str) -> tuple[ColorStep, ...]:
    """Return the colours of a ratio of bad events: amber above what the objective allows."""
    return (ColorStep(round(objective(name).budget, 9), palette.WARN),)


@cache
def _read(paths: tuple[Path, ...]) -> tuple[Slo, ...]:
    return tuple(slo_files.load(paths))
