"""Describes an exception or a stack: type, message without secrets, and the innermost line of the user's code."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import NamedTuple

from tachoscope.failures.texts import MOST_TEXT, short, text_of
from tachoscope.sampling.stacks import Chain, chain_of, innermost_line, is_own_file, is_users_file, short_name, user_line

_MOST_CAUSES = 8
_MOST_NAME = 200
_MOST_LOCATION = 500
_FRAME = re.compile(
    r'^[ \t]*File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9})(?:,)? in (?P<function>[^\n]{1,200})$', re.MULTILINE
)
_LIBRARY = re.compile(r"/lib(?:64)?/python3[.\d]*/|/(?:site|dist)-packages/|^<")
"""Files of libraries in a printed stack, which may come from another interpreter than this one."""
_TRACES = "torch._dynamo"
_TRACED = "from user code:"
_LOADER_SIGNALS = "torch/utils/data/_utils/signal_handling.py"
"""Raises in the main thread that a loader worker was killed, wherever that thread is at the moment: that line says nothing."""
_LAUNCHER = "/torch/distributed/elastic/"
"""Its `@record` writes a file of the error that it handles, and may fail at that: on a full disk, without file descriptors."""
_WAITING_FILES = ("torch/distributed/", "torch/nn/parallel/distributed.py")
_WAITING_FUNCTION = "_engine_run_backward"
"""During which gradients are exchanged."""
_TRACEBACK = "Traceback (most recent call last):"
_LAST_LINE = re.compile(r"^(?P<type>[A-Za-z_][\w.]{0,200}): ?(?P<message>.*)$")


class CodePlace(NamedTuple):
    """A line of code: `file:line`, and the function; both empty: not known."""

    location: str = ""
    function: str = ""


class Described(NamedTuple):
    """An exception as a record has it."""

    exception: str
    message: str
    place: CodePlace


def describe(error: BaseException, *, runs_code: bool = True) -> Described:
    """Return what an exception is and where it comes from.

    The place is that of the error at its origin: of the explicit cause of an exception, of the first exception of a group, of the
    error that torchelastic was to report when it failed itself, and of the traceback of a loader worker or another process, which
    torch puts into the message of the exception that it raises here.

    Args:
        runs_code: as in `text_of`.
    """
    origins = list(_origins(error))
    message, kind = text_of(error, runs_code=runs_code), type(error).__name__[:_MOST_NAME]
    place = next((found for one in reversed(origins) if (found := _place_of(one)).location), CodePlace())
    last = message if len(origins) == 1 else text_of(origins[-1], runs_code=runs_code)
    place = _in_compiled_code(origins[-1], last) or place
    elsewhere = _of_other_process(last)
    if elsewhere is not None:
        return Described(elsewhere.exception or kind, elsewhere.message, elsewhere.place if elsewhere.place.location else place)
    if len(origins) > 1:
        message = f"{short(message)} (caused by {type(origins[-1]).__name__[:_MOST_NAME]}: {short(last)})"
    return Described(kind, short(message), place)


def place_of_frame(frame: FrameType | None) -> CodePlace:
    """Return the innermost line of the user's code on a stack; empty without one."""
    return place_of_line(user_line(chain_of(frame)))


def waits_for_ranks(frame: FrameType | None) -> bool:
    """Return whether the innermost call on a stack is one of torch that waits for other ranks, wrapped by the probe or not."""
    code = next((code for code, _ in chain_of(frame) if not is_own_file(code.co_filename)), None)
    return code is not None and _waits(code.co_filename, code.co_name)


def frames_wait_for_ranks(frames: Sequence[tuple[str, int, str]]) -> bool:
    """Return `waits_for_ranks` for a printed stack; the innermost comes last."""
    file, _, function = next((frame for frame in reversed(frames) if not is_own_file(frame[0])), ("", 0, ""))
    return _waits(file, function)


def _waits(file: str, function: str) -> bool:
    return function == _WAITING_FUNCTION or any(part in file for part in _WAITING_FILES)


def places_in(text: str) -> list[tuple[str, int, str]]:
    """Return file, line and function of the frames in a printed stack, in its order."""
    return [(found["file"], int(found["line"]), found["function"]) for found in _FRAME.finditer(text[:MOST_TEXT])]


def users_place(frames: Sequence[tuple[str, int, str]]) -> CodePlace:
    """Return the innermost of some frames that is the user's code; the innermost comes last; empty without one."""
    for file, line, function in reversed(frames):
        if is_users_file(file) and not _LIBRARY.search(file):
            return CodePlace(f"{short_name(file)}:{line}", function[:_MOST_NAME])
    return CodePlace()


def _origins(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, what it comes from (see `describe`), what that comes from, and so on."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < _MOST_CAUSES:
        yield one
        seen.add(id(one))
        one = one.__cause__ or (one.exceptions[0] if isinstance(one, BaseExceptionGroup) else _handled_by_launcher(one))


def _handled_by_launcher(error: BaseException) -> BaseException | None:
    chain = _chain_of(error.__traceback__) if error.__context__ is not None else []
    return error.__context__ if chain and _LAUNCHER in chain[0][0].co_filename else None


def _place_of(error: BaseException) -> CodePlace:
    if isinstance(error, SyntaxError) and error.filename and error.lineno and is_users_file(error.filename):
        return CodePlace(f"{short_name(error.filename)[:_MOST_LOCATION]}:{error.lineno}")
    chain = _chain_of(error.__traceback__)
    if chain and chain[0][0].co_filename.endswith(_LOADER_SIGNALS):
        return CodePlace()
    return place_of_line(user_line(chain) or innermost_line(chain))


def _chain_of(trace: TracebackType | None) -> Chain:
    """Return code and line of each frame of a traceback, the innermost first."""
    return [(frame.f_code, line) for frame, line in reversed(list(traceback.walk_tb(trace)))]


def place_of_line(line: str) -> CodePlace:
    """Return the place that a line of a stack, `file:line function`, names."""
    location, _, function = line.partition(" ")
    return CodePlace(location[:_MOST_LOCATION], function[:_MOST_NAME])


def _in_compiled_code(error: BaseException, message: str) -> CodePlace | None:
    """Return the line in a function that torch.compile traces. It is in the message; the traceback ends at the call."""
    if not str(type(error).__module__).startswith(_TRACES):
        return None
    place = users_place(places_in(message.rpartition(_TRACED)[2])) if _TRACED in message else CodePlace()
    return place if place.location else None


def _of_other_process(message: str) -> Described | None:
    """Return what a traceback within a message says, the last one where there are several; None: there is none."""
    if _TRACEBACK not in message:
        return None
    text = message.rpartition(_TRACEBACK)[2]
    lines = [line for line in text.splitlines() if line.strip()]
    # What was raised stands in the first line after the frames, which are indented.
    after = next((place for place, line in enumerate(lines) if not line.startswith(" ")), None)
    said = _LAST_LINE.match(lines[after]) if after is not None else None
    if said is None:
        return Described("", short(lines[-1] if lines else ""), users_place(places_in(text)))
    whole = "\n".join([said["message"], *lines[after + 1 if after is not None else 0 :]])
    return Described(said["type"].rpartition(".")[2], short(whole), users_place(places_in(text)))
