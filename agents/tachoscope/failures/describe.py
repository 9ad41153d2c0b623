"""Describes an exception or a stack: type, message without secrets, and the innermost line of the user's code."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import NamedTuple

from tachoscope.sampling.stacks import Chain, chain_of, innermost_line, is_users_file, short_name, user_line
from tachoscope_core.redaction import redact

MOST_CHARACTERS = 1000
"""Of a message: the beginning and the end of a longer one are kept."""
MOST_TEXT = 64_000
"""Characters of a message in which the traceback of another process is looked for."""
_MOST_CAUSES = 8
_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9})(?:,)? in (?P<function>[^\n]{1,200})$', re.MULTILINE
)
_LOADER_SIGNALS = "torch/utils/data/_utils/signal_handling.py"
"""Raises in the main thread that a loader worker was killed, wherever that thread is at the moment: that line says nothing."""
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


def describe(error: BaseException) -> Described:
    """Return what an exception is and where it comes from.

    The place is that of the error at its origin: of the explicit cause of an exception, and of the traceback of a loader worker or
    another process, which torch puts into the message of the exception that it raises here.
    """
    origins = list(_causes(error))
    message = _text_of(error)
    place = next((found for one in reversed(origins) if (found := _place_of(one)).location), CodePlace())
    elsewhere = _of_other_process(_text_of(origins[-1]))
    if elsewhere is not None:
        return Described(
            elsewhere.exception or type(error).__name__, elsewhere.message, elsewhere.place if elsewhere.place.location else place
        )
    if len(origins) > 1:
        message = f"{message} (caused by {type(origins[-1]).__name__}: {_text_of(origins[-1])})"
    return Described(type(error).__name__, short(message), place)


def place_of_frame(frame: FrameType | None) -> CodePlace:
    """Return the innermost line of the user's code on a stack; empty without one."""
    return _split(user_line(chain_of(frame)))


def short(text: str) -> str:
    """Return a text without secrets, and of a long one the beginning and the end."""
    text = redact(text[:MOST_TEXT]).strip()
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2 - 3
    return f"{text[:half]} ... {text[-half:]}"


def places_in(text: str) -> list[tuple[str, int, str]]:
    """Return file, line and function of the frames in a printed stack, in its order."""
    return [(found["file"], int(found["line"]), found["function"]) for found in _FRAME.finditer(text[:MOST_TEXT])]


def users_place(frames: Sequence[tuple[str, int, str]]) -> CodePlace:
    """Return the innermost of some frames that is the user's code; the innermost comes last; empty without one."""
    for file, line, function in reversed(frames):
        if is_users_file(file):
            return CodePlace(f"{short_name(file)}:{line}", function[:200])
    return CodePlace()


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its explicit cause, the cause of that, and so on."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < _MOST_CAUSES:
        yield one
        seen.add(id(one))
        one = one.__cause__


def _place_of(error: BaseException) -> CodePlace:
    if isinstance(error, SyntaxError) and error.filename and error.lineno and is_users_file(error.filename):
        return CodePlace(f"{short_name(error.filename)}:{error.lineno}")
    chain = _chain_of(error.__traceback__)
    if chain and chain[0][0].co_filename.endswith(_LOADER_SIGNALS):
        return CodePlace()
    return _split(user_line(chain) or innermost_line(chain))


def _chain_of(trace: TracebackType | None) -> Chain:
    """Return code and line of each frame of a traceback, the innermost first."""
    return [(frame.f_code, line) for frame, line in reversed(list(traceback.walk_tb(trace)))]


def _split(line: str) -> CodePlace:
    location, _, function = line.partition(" ")
    return CodePlace(location, function[:200])


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:MOST_TEXT]
    except Exception:  # the job's own class
        return ""


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
