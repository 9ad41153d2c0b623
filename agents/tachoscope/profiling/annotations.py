"""Names in profiler traces for what torch itself does not name there, such as `torch.save`. Nothing where no profiler runs."""

from __future__ import annotations

import sys
from typing import Any

from tachoscope import guard

CHECKPOINT = "checkpoint"
"""As `tachoscope_analyzers.trace.events.host_spans` reads it."""


class Annotations:
    """Nested annotations of one thread."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def begin(self, name: str) -> None:
        """Something begins that a trace should name. No call raises."""
        self._open.append(_begun(name))

    def end(self) -> None:
        span = self._open.pop()
        if span is not None:
            try:
                span.__exit__(None, None, None)
            except Exception as error:  # the profiler may have ended meanwhile
                if guard.is_of_the_job(error):
                    raise


def _begun(name: str) -> Any:
    profiler = sys.modules.get("torch.autograd.profiler")
    if profiler is None or not getattr(profiler, "_is_profiler_enabled", False):
        return None
    try:
        span = profiler.record_function(name)
        span.__enter__()
    except Exception as error:
        if guard.is_of_the_job(error):
            raise
        return None
    return span
