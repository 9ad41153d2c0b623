"""Texts that a record may hold: what an object of the job says, cut and without secrets.

`str` of an object may run code of the job, which may raise, wait for a lock, or wait for a GPU (a tensor in an exception).
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any

MOST_CHARACTERS = 1000
"""Of a message: the beginning and the end of a longer one are kept."""
MOST_TEXT = 64_000
"""Characters of a message in which the traceback of another process is looked for."""
MOST_LINE = 300
_LONGEST_WORD = 4096
"""Characters up to which a word is dropped where a cut would leave a part of it: a part of a secret is not recognized as one."""
_WAIT_SECONDS = 2.0
_PLAIN_TYPES = (str, int, float, bool, bytes, type(None))
_PLAIN_STR: tuple[Any, ...] = (
    BaseException.__str__,
    OSError.__str__,
    KeyError.__str__,
    ImportError.__str__,
    UnicodeDecodeError.__str__,
    UnicodeEncodeError.__str__,
)


def text_of(value: object, *, runs_code: bool = True) -> str:
    """Return what an object says; empty where that raises or takes too long.

    Args:
        runs_code: code of the job may run; if not, an object that has some says nothing.
    """
    if isinstance(value, str) and type(value) is str:
        return value[: MOST_TEXT + 1]
    if _is_plain(value):
        with contextlib.suppress(Exception):
            return str(value)[: MOST_TEXT + 1]
        return ""
    return _computed(value) if runs_code else ""


def short(text: str) -> str:
    """Return a text without secrets, and of a long one the beginning and the end."""
    from tachoscope_core.redaction import redact  # its patterns take longer to make than a short process may take

    text = redact(cut(text, MOST_TEXT)).strip()
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2 - 3
    return f"{text[:half]} ... {text[-half:]}"


def short_lines(lines: list[str]) -> list[str]:
    """Return lines that were written one after the other without secrets, of which some span lines, and the beginning of each."""
    from tachoscope_core.redaction import redact

    return [line[:MOST_LINE] for line in redact("\n".join(lines)).split("\n")][-len(lines) :] if lines else []


def cut(text: str, most: int) -> str:
    """Return the beginning of a text that is too long, up to the end of a word."""
    if len(text) <= most:
        return text
    words = max(text.rfind(" ", most - _LONGEST_WORD, most), text.rfind("\n", most - _LONGEST_WORD, most), 0)
    return text[: words or max(most - _LONGEST_WORD, 0)]


def _is_plain(value: object) -> bool:
    """Return whether `str` runs no code of the job."""
    if type(value) in _PLAIN_TYPES:
        return True
    if not isinstance(value, BaseException) or not any(type(value).__str__ is one for one in _PLAIN_STR):
        return False
    said = [*value.args, *((value.filename, value.filename2, value.strerror) if isinstance(value, OSError) else ())]
    return all(type(one) in _PLAIN_TYPES for one in said)


def _computed(value: object) -> str:
    """Return what code of the job makes of an object, in a thread of its own, for which this one waits a moment only."""
    found: list[str] = []

    def compute() -> None:
        with contextlib.suppress(BaseException):
            found.append(str(value)[: MOST_TEXT + 1])

    thread = threading.Thread(target=compute, name="tachoscope-text", daemon=True)
    with contextlib.suppress(RuntimeError):  # no more threads can be started
        thread.start()
        thread.join(_WAIT_SECONDS)
    return found[0] if found else ""
