"""Stacks of a thread while it runs, by the native module `native_stacks`: exact in pure Python too, and at no cost to the thread.

A native thread reads the frames in memory, without the interpreter's lock. It is used only where a check finds that what it reads
is what Python says. Code objects are not kept: names and line tables are copied, and stand-ins are made of them.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, MemberDescriptorType
from typing import Any

from tachoscope.sampling.stacks import MOST_FRAMES, PhaseSource, StackSample, lines_of
from tachoscope_core.native import native
from tachoscope_core.records.records import PHASES

MODULE = "tachoscope.sampling.native_stacks"
_BLANK = (lambda: None).__code__


class UnlockedStacks:
    """Takes a stack of the thread that calls `start` about each `every_seconds` of its CPU time.

    Attributes:
        on: whether it does.
        reason: why it does not.
    """

    def __init__(self, watched: PhaseSource, every_seconds: float) -> None:
        self.on = False
        self.reason = ""
        self._watched = watched
        self._every_seconds = every_seconds
        self._codes: dict[int, CodeType] = {}
        self._draining = threading.Lock()  # codes come with the first sample that has them
        self._phases = tuple(range(len(PHASES)))

    def start(self) -> bool:
        """Start if the native module can be used here; return whether it started."""
        found = native(MODULE)
        if found.module is None:
            self.reason = found.reason
            return False
        try:
            self._native = found.module
            self.reason = _mismatch(self._native)
            if not self.reason:
                phase = _member(self._native, self._watched.timeline, "phase")
                flag = _member(self._native, self._watched, "without_gradients")
                self._native.start(CodeType, self._every_seconds, phase, self._phases, flag)
                self.on = True
        except (RuntimeError, OSError, TypeError) as error:
            self.reason = str(error)
        return self.on

    def drain(self) -> list[StackSample]:
        """Return the stacks taken since the last call. Thread-safe."""
        with self._draining:
            return self._drain()

    def _drain(self) -> list[StackSample]:
        codes, samples, oldest, lives = self._native.drain() if self.on else ((), (), 0, True)
        self._codes.update((number, stand_in(*of)) for number, *of in codes)
        found = [
            StackSample(phase, flag, [(self._codes[number], max(byte, 0)) for number, byte in places])
            for phase, flag, places in samples
        ]
        for number in [number for number in self._codes if number < oldest]:
            del self._codes[number]
        if not lives:
            self.stop()
        return found

    def dropped(self) -> int:
        """Return how many stacks could not be read, or were not in time, since the start."""
        return sum(count for reason, count in self._native.counts().items() if reason != "taken") if self.on else 0

    def stop(self) -> None:
        """Stop; from any thread, in the process that started."""
        if self.on:
            self.on = False
            self._native.stop()


def why_not() -> str:
    """Return why stacks cannot be read in this process without the interpreter's lock, empty if they can."""
    found = native(MODULE)
    try:
        return found.reason if found.module is None else _mismatch(found.module)
    except RuntimeError as error:
        return str(error)


def stand_in(name: str, filename: str, first_line: int, line_table: bytes) -> CodeType:
    """Return a code object with these names and lines, which does nothing."""
    return _BLANK.replace(co_name=name, co_filename=filename, co_firstlineno=first_line, co_linetable=line_table)


_MEMBERS: dict[int, Any] = {1: ctypes.c_int, 14: ctypes.c_bool, 6: ctypes.c_void_p, 16: ctypes.c_void_p}
"""What a member is by its kind: T_INT, T_BOOL, T_OBJECT, and T_OBJECT_EX, which slots are."""


def _member(module: Any, holder: object, name: str) -> tuple[int, int]:
    """Return address and size of a member of an object.

    Raises:
        TypeError: the attribute is neither a slot nor a member of a native class.
    """
    descriptor = getattr(type(holder), name, None)
    if not isinstance(descriptor, MemberDescriptorType):
        raise TypeError(f"{type(holder).__name__}.{name} is neither a slot nor a member of a native class")
    found, kind, offset = module.member(descriptor)
    form = _MEMBERS.get(kind)
    if found != name.encode() or form is None or not 0 < offset <= type(holder).__basicsize__ - ctypes.sizeof(form):
        raise TypeError(f"{name} of {type(holder).__name__} is not known where to read")
    value = getattr(holder, name)
    if form.from_address(id(holder) + offset).value != (id(value) if form is ctypes.c_void_p else value):
        raise TypeError(f"{name} of {type(holder).__name__} is not where members are")
    return id(holder) + offset, ctypes.sizeof(form)


# --- whether what is read is what Python says ---------------------------------------------------------------------------------


def _mismatch(module: Any) -> str:
    """Return where the native module and Python differ on the calling thread's stack, empty if nowhere."""

    def agrees() -> bool:
        read, told = _read(module.sample_self(CodeType)), _told(sys._getframe())  # on one line, which both see
        same = (one in (None, other) for one, other in zip(read, told, strict=False))
        return len(read) == len(told) and read[0] is not None and all(same)

    def within_generator() -> Iterator[bool]:
        yield agrees()

    def deep(left: int) -> bool:
        return deep(left - 1) if left else agrees()

    ways: dict[str, Callable[[], bool]] = {
        "function": agrees,
        "generator": lambda: next(within_generator()),
        "call from native code": lambda: next(map(lambda _: agrees(), [None])),  # noqa: C417  # map calls from native code
        "deep stack": lambda: deep(MOST_FRAMES + 2),
        **{f"function {name}": _named(agrees, name) for name in ("größe", "尺寸", "𝄞")},  # the widths of characters
    }
    wrong = [way for way, agree in ways.items() if not agree()]
    return f"the frames of this interpreter are not as expected: {', '.join(wrong)}" if wrong else ""


def _named(call: Callable[[], bool], name: str) -> Callable[[], bool]:
    def function() -> bool:
        return call()

    code = function.__code__.replace(co_name=name, co_filename=f"{name}.py")
    return FunctionType(code, globals(), name, None, function.__closure__)


_Frame = tuple[str, str, int, bytes, int]
"""Name, file, first line, line table and line."""


def _read(sample: list[tuple[tuple[Any, ...], int] | None]) -> list[_Frame | None]:
    """Return what the native module read of each frame, None where names or table are too large."""
    return [one and _frame(code := stand_in(*one[0][1:]), lines_of([(code, one[1])])[0][1]) for one in sample]


def _told(frame: FrameType | None) -> list[_Frame]:
    """Return the same as Python says it."""
    found: list[_Frame] = []
    while frame is not None and len(found) < MOST_FRAMES:
        found.append(_frame(frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno))
        frame = frame.f_back
    return found


def _frame(code: CodeType, line: int) -> _Frame:
    return code.co_name, code.co_filename, code.co_firstlineno, code.co_linetable, line
