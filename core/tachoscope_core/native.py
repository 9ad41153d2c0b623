"""The native modules: compiled units, each of which stands in for Python that does the same. Which this process uses, and why not.

They are optional: an installation without a C compiler has none, and `TACHOSCOPE_NATIVE=0` switches all of them off.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SWITCH = "TACHOSCOPE_NATIVE"
MODULES: dict[str, str] = {
    "tachoscope.failures.native_faults": "the line of a fault beside a job's own faulthandler",
    "tachoscope.sampling.native_stacks": "lines of a running thread, exact in pure Python",
    "tachoscope_analyzers.trace.events._intervals": "sets of time",
    "tachoscope_analyzers.trace.events._nesting": "which call of a trace happened in which",
    "tachoscope_analyzers.trace.graph._replay": "replays of a trace's dependencies",
    "tachoscope_analyzers.trace.reading._scan": "text of traces to columns",
    "tachoscope.training._steps": "steps and phases of a training",
}
"""Each with what it does; `hatch_build.py` compiles the C file of that name."""


@dataclass(frozen=True)
class NativeModule:
    """A native module as this process finds it: `module` is None where it cannot be used, and `reason` then says why."""

    name: str
    does: str
    module: Any
    reason: str = ""


@cache
def native(name: str) -> NativeModule:
    """Return a module of `MODULES`; it is looked for once a process."""
    does = MODULES[name]
    if os.environ.get(SWITCH) == "0":
        return NativeModule(name, does, None, f"switched off by {SWITCH}=0")
    try:
        spec = _spec(name)
        if spec is None or spec.origin is None:
            return NativeModule(name, does, None, "not compiled: there was no C compiler at installation")
        if _is_older_than_source(Path(spec.origin)):
            return NativeModule(name, does, None, "older than its source: python hatch_build.py")
        return NativeModule(name, does, importlib.import_module(name))
    except ImportError as error:  # of another platform or C library
        return NativeModule(name, does, None, f"does not load: {error}")


def _spec(name: str) -> ModuleSpec | None:
    """Return where a module is, None where it is not there."""
    try:
        return find_spec(name)
    except ValueError:  # another thread found it and is in the middle of its import, which this one waits for
        return importlib.import_module(name).__spec__


def all_native() -> list[NativeModule]:
    """Return all of them."""
    return [native(name) for name in MODULES]


def _is_older_than_source(binary: Path) -> bool:
    """Return whether the C file or a header of its, which only a clone has beside the module, was changed after it was compiled."""
    name = binary.name.partition(".")[0]
    sources = [*binary.parent.glob(f"{name}.c"), *binary.parent.glob(f"{name}_*.h")]
    return any(source.stat().st_mtime > binary.stat().st_mtime for source in sources)
