"""Within torchrun: writes how each rank that it started ended, with exit code or signal, which only their parent is told."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tachoscope import guard
from tachoscope.failures import fault_stack
from tachoscope.process import identity
from tachoscope.supervisor.records import OutsideRecords
from tachoscope_core.records import records

_STATE = "_tachoscope_ends"


@dataclass(slots=True)
class _SeenEnds:
    """Of the ranks of one attempt: those whose end was seen, and the ends in order that are not written yet."""

    ranks: set[int] = field(default_factory=set)
    in_order: list[dict[str, Any]] = field(default_factory=list)


def follow(module: ModuleType) -> None:
    """Follow the ranks that torchrun starts as commands; nothing where this version of torch has other names."""
    context = getattr(module, "SubprocessContext", None)
    poll, close = getattr(context, "_poll", None), getattr(context, "_close", None)
    if context is None or poll is None or close is None:
        return

    def poll_and_note(self: Any) -> Any:
        found = poll(self)
        with guard.QUIETLY:
            _note(self, terminated=False)
        return found

    def note_and_close(self: Any, *arguments: Any, **named: Any) -> Any:
        with guard.QUIETLY:  # those that are gone before any is told to go
            for handler in self.subprocess_handlers.values():
                handler.proc.poll()
            _note(self, terminated=False)
        try:
            return close(self, *arguments, **named)
        finally:
            with guard.QUIETLY:
                _note(self, terminated=True)

    context._poll, context._close = poll_and_note, note_and_close


def _note(context: Any, *, terminated: bool) -> None:
    """Write the ends of ranks that were not written yet; those in order only once another rank did not end so."""
    if not os.environ.get(identity.RUN_DIR):
        return
    seen: _SeenEnds = context.__dict__.setdefault(_STATE, _SeenEnds())
    failed: list[dict[str, Any]] = []
    environ: dict[str, str] = {}
    for local_rank, handler in context.subprocess_handlers.items():
        code = handler.proc.returncode
        environ = context.envs[local_rank]
        if code is None or local_rank in seen.ranks:
            continue
        seen.ranks.add(local_rank)
        end = _end(environ, handler.proc.pid, int(code), context.__dict__.get("stderrs", {}).get(local_rank) or "")
        (failed if code or terminated else seen.in_order).append(end | {"terminated": terminated})
    if failed:
        rows, seen.in_order = [*seen.in_order, *failed], []
        _write(environ, rows)


def _end(environ: dict[str, str], pid: int, code: int, log: str) -> dict[str, Any]:
    """Return the fields of a `ProcessExited`. log: where torchrun keeps what the rank wrote to stderr; empty: nowhere."""
    directory = Path(os.environ[identity.RUN_DIR])
    fault = fault_stack.take(directory, pid)
    if code and not fault.place.location and log:
        fault = fault_stack.in_log(Path(log))
    rank = int(environ.get("RANK", records.LAUNCHER_RANK))
    moment = {"time": time.time(), "monotonic_ns": time.monotonic_ns()}
    return moment | {"exited_rank": rank, "exited_pid": pid, "exit_code": code} | fault.fields


def _write(environ: dict[str, str], ends: list[dict[str, Any]]) -> None:
    who = identity.resolve({**os.environ, **environ})
    own = OutsideRecords(Path(os.environ[identity.RUN_DIR]), who.job, who.attempt, host=who.host)
    for end in ends:
        own.write(records.ProcessExited, **end)
    own.close()
