"""Within torchrun: writes how each rank that it started ended, with exit code or signal, which only their parent is told."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from tachoscope import guard
from tachoscope.failures import fault_stack
from tachoscope.process import identity
from tachoscope.supervisor.records import OutsideRecords
from tachoscope_core.records import records

MODULE = "torch.distributed.elastic.multiprocessing.api"
_NOTED = "_tachoscope_noted"


def follow(module: ModuleType) -> None:
    """Follow the ranks that torchrun starts as commands; nothing where this version of torch has other names."""
    context = getattr(module, "SubprocessContext", None)
    poll, close = getattr(context, "_poll", None), getattr(context, "_close", None)
    if context is None or poll is None or close is None:
        return

    def poll_and_note(self: Any) -> Any:
        found = poll(self)
        with guard.QUIETLY:
            _note(self, told_to_go=False)
        return found

    def note_and_close(self: Any, *arguments: Any, **named: Any) -> Any:
        with guard.QUIETLY:  # those that are gone before any is told to go
            for handler in self.subprocess_handlers.values():
                handler.proc.poll()
            _note(self, told_to_go=False)
        try:
            return close(self, *arguments, **named)
        finally:
            with guard.QUIETLY:
                _note(self, told_to_go=True)

    context._poll, context._close = poll_and_note, note_and_close


def _note(context: Any, *, told_to_go: bool) -> None:
    """Write the ends of ranks that were not written yet."""
    noted: set[int] = context.__dict__.setdefault(_NOTED, set())
    for local_rank, handler in context.subprocess_handlers.items():
        code = handler.proc.returncode
        if code is None or local_rank in noted:
            continue
        noted.add(local_rank)
        log = context.__dict__.get("stderrs", {}).get(local_rank) or ""
        _write(context.envs[local_rank], handler.proc.pid, int(code), told_to_go=told_to_go, log=log)


def _write(environ: dict[str, str], pid: int, code: int, *, told_to_go: bool, log: str) -> None:
    """Write the end of a rank. log: where torchrun keeps what the rank wrote to stderr; empty: nowhere."""
    directory = os.environ.get(identity.RUN_DIR)
    if not directory:
        return
    who = identity.resolve({**os.environ, **environ})
    fault = fault_stack.take(Path(directory), pid)
    if code and not fault.place.location and log:
        fault = fault_stack.in_log(Path(log))
    own = OutsideRecords(Path(directory), who.job, who.attempt, host=who.host)
    own.write(
        records.ProcessExited,
        time=time.time(),
        exited_rank=int(environ.get("RANK", -1)),
        exited_pid=pid,
        exit_code=code,
        told_to_go=told_to_go,
        **fault.fields,
    )
    own.close()
