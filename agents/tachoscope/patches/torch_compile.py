"""Times what torch.compile compiles. `torch._dynamo`, which takes seconds to import, is never imported here: only when the job has.

Wrapped is `install_callbacks` of `torch._dynamo.callback.callback_handler`, within which every compilation runs, on its own thread.
Callbacks that are registered there instead are told only when the first of several threads begins and the last one ends.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tachoscope import guard
from tachoscope.patches.wrap import Function, call_guarded, wrap
from tachoscope.process.import_hook import after_import
from tachoscope.training.probe import Probe

_MODULE, _METHOD = "torch._dynamo.callback", "install_callbacks"
_ON_OTHER_THREADS = "LAZY_BACKWARD"


def install(probe: Probe) -> None:
    """Wrap it once the job imports it; called once a process."""
    after_import(_MODULE, functools.partial(_wrap_callbacks, probe))


def _wrap_callbacks(probe: Probe, module: ModuleType) -> None:
    handler = getattr(module, "callback_handler", None)
    if not hasattr(handler, _METHOD):
        guard.print_line(f"compilations are not measured: this version of torch has no {_MODULE}.callback_handler.{_METHOD}")
        return
    wrap(handler, _METHOD, functools.partial(_timed, probe))
    probe.compilations_timed()


def _timed(probe: Probe, original: Function) -> Function:
    @contextlib.contextmanager
    def install_callbacks(*args: Any, **kwargs: Any) -> Iterator[None]:
        compilations, opened = probe.compilations, None
        watched = probe.in_watched_thread()
        if probe.on and (watched or _may_be_elsewhere(args)):
            opened = call_guarded(probe, compilations.begin, watched=watched)
        try:
            with original(*args, **kwargs):
                yield
        finally:
            if opened is not None and probe.on:
                call_guarded(probe, compilations.end, opened)

    return install_callbacks


def _may_be_elsewhere(args: tuple[Any, ...]) -> bool:
    """Return whether the training thread may wait for this: the trigger, which older versions do not give, says so."""
    return bool(args) and getattr(args[0], "name", "") == _ON_OTHER_THREADS
