"""Stacks of a thread as code and places in it, without the frames: these would keep the job's tensors alive."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Protocol

import tachoscope_core

Chain = Sequence[tuple[CodeType, int]]
"""Code and line of each frame, the innermost first."""
Places = Sequence[tuple[CodeType, int]]
"""Code and last instruction of each frame, the innermost first: faster to take than lines, which `lines_of` looks up later."""

MOST_FRAMES = 48
MODEL_FILES = ("torch/nn/modules/module.py", "torch/_dynamo/eval_frame.py")
"""Files of torch through which every call of a model goes."""

_OWN_FOLDERS = tuple(os.path.dirname(path) for path in (os.path.dirname(__file__), tachoscope_core.__file__))
"""Of the probe itself, and of what it writes its records with."""
_LIBRARIES = tuple(
    {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *_OWN_FOLDERS,
        "<frozen ",
        "<string>",
        "<__array_function__",
    }
)


class PhaseSource(Protocol):
    """Whose phase is noted with each stack, and whether gradients were switched off when its model was called."""

    @property
    def timeline(self) -> Any: ...
    @property
    def without_gradients(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class StackSample:
    """One stack, with the phase of the timeline at that moment."""

    phase: int
    without_gradients: bool
    places: Places


def chain_of(frame: FrameType | None) -> Chain:
    """Return the innermost frames of a stack."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < MOST_FRAMES:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def lines_of(places: Places) -> Chain:
    """Return the same stack with lines in place of instructions."""
    return [(code, _line_at(code, instruction)) for code, instruction in places]


def user_line(chain: Chain) -> str:
    """Return `file:line function` of the innermost frame of the user's own code, empty without one.

    That is code outside of the standard library and of installed packages; cells of a notebook are.
    """
    for code, line in chain:
        if is_users_file(code.co_filename):
            return f"{short_name(code.co_filename)}:{line} {code.co_name}"
    return ""


def is_own_file(path: str) -> bool:
    """Return whether a file of code is the probe's."""
    return path.startswith(_OWN_FOLDERS)


def is_users_file(path: str) -> bool:
    """Return whether a file of code is the user's: outside of the standard library, of installed packages, and of the probe."""
    return not path.startswith(_LIBRARIES)


def user_place(frames: Iterable[tuple[str, int]]) -> str:
    """Return `file:line` of the innermost frame of the user's own code, given path and line of each, the innermost first.

    Without one it is the innermost of a library; empty: of the probe itself.
    """
    innermost = ""
    for path, line in frames:
        if is_users_file(path):
            return f"{short_name(path)}:{line}"
        innermost = innermost or ("" if path.startswith(_OWN_FOLDERS) else f"{short_name(path)}:{line}")
        if not innermost:
            return ""
    return innermost


def innermost_line(chain: Chain) -> str:
    """Return `file:line function` of the innermost frame, of the user's code or a library."""
    return next((f"{short_name(code.co_filename)}:{line} {code.co_name}" for code, line in chain), "")


def outside_models(chain: Chain) -> Chain:
    """Return the part of the stack that is outside of all calls of models."""
    for depth in range(len(chain) - 1, -1, -1):
        if chain[depth][0].co_filename.endswith(MODEL_FILES):
            return chain[depth + 1 :]
    return chain


def _line_at(code: CodeType, instruction: int) -> int:
    for first, end, line in code.co_lines():
        if first <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def short_name(path: str) -> str:
    """Return the name of a file; of a notebook's cell what the notebook calls it, such as `cell [3]`."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is not None:
        try:
            names = ipython.get_ipython().compile._filename_map
            if path in names:
                return f"cell [{names[path]}]"
        except AttributeError:  # no shell, or one of a version without that map
            pass
    return os.path.basename(path)
