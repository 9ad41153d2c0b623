"""Where a command that judges reads, and what lies there: records, traces, dumps of a flight recorder, recordings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum

from tachoscope_cli.common.options import store_url
from tachoscope_core.errors import TachoscopeError


class Kind(Enum):
    """What paths hold; the value says it in words."""

    RECORDS = "records"
    TRACES = "a profiler trace"
    DUMPS = "dumps of a flight recorder"
    RECORDING = "a recording of an inference server"
    REPORT = "a saved report"


def places_of(paths: Sequence[str] | None, store: str | None) -> list[str]:
    """Return where to read: the named paths, else the store.

    Raises:
        TachoscopeError: both are named, or nothing is there.
    """
    from tachoscope_cli.inputs.paths import is_store

    if store and paths:
        raise TachoscopeError("give either PATH or --store, not both")
    places = list(paths or [store_url(store)])
    if not paths and "://" not in places[0] and not is_store(places[0]):
        raise TachoscopeError(f"store {places[0]} is empty", fix="run something first: tachoscope run -- python train.py")
    return places


def must_be_there(paths: Sequence[str], what: str) -> None:
    """Refuse an empty path, and one that does not exist. Patterns are not checked.

    Args:
        what: how to name what is wanted, in the plural.

    Raises:
        TachoscopeError: there is such a path.
    """
    for path in paths:
        if not path.strip():
            raise TachoscopeError("a path is empty", fix=f"name {what}")
        if "://" not in path and not set(path) & set("*?[") and not os.path.lexists(path):
            raise TachoscopeError(f"{path} does not exist", fix=f"name {what}")


def kind_of(places: list[str]) -> Kind:
    """Return what the places hold; what is nothing else is taken for records.

    Raises:
        TachoscopeError: they hold several kinds of things.
    """
    from tachoscope_cli.inputs import paths
    from tachoscope_cli.inputs.traces import are_traces

    if paths.recording(places):
        return Kind.RECORDING
    if paths.flight_recorder_dumps(places):
        return Kind.DUMPS
    if are_traces(places):
        return Kind.TRACES
    return Kind.REPORT if paths.is_saved_report(places) else Kind.RECORDS
