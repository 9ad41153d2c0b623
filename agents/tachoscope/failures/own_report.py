"""What a process reports of its own end: loaded when there is something to report, or with torch, which takes far longer.

The record has a writer of its own, since the records of a rank begin with its training.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, Literal

from tachoscope.failures import worker_exit
from tachoscope.failures.describe import CodePlace, describe, place_of_frame, waits_for_ranks
from tachoscope.failures.texts import short, short_lines, text_of
from tachoscope.process import identity
from tachoscope.spool.process_outbox import watched_process
from tachoscope.supervisor.records import OutsideRecords
from tachoscope_core.records import records

_MOST_CODE, _LEAST_CODE = 1 << 31, -1024


def of_exception(error: BaseException, how: Literal["exception", "thread", "handled"]) -> dict[str, Any]:
    """Return the fields of `ProcessFailed` for an exception that nobody caught, or not yet."""
    found = describe(error, runs_code=how != "handled")  # another thread has such an error in its hands
    watched = watched_process()
    in_worker = worker_exit.take(str(watched[1]), found.message) if watched is not None else CodePlace()
    place = in_worker if in_worker.location else found.place
    return {"how": how, "exception": found.exception, "message": found.message, **_placed(place)}


def of_exit(code: Any, frame: FrameType | None, error: BaseException | None) -> dict[str, Any]:
    """Return the fields of `ProcessFailed` for an exit.

    Args:
        code: as it is given to `sys.exit`. frame: from which that was called. error: the exception that was handled meanwhile.
    """
    number = code if isinstance(code, int) else 0 if code is None else 1
    fields: dict[str, Any] = {"how": "exit", "exit_code": max(min(int(number), _MOST_CODE), _LEAST_CODE)}
    place = place_of_frame(frame)
    if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
        found = describe(error)
        place = found.place if found.place.location else place
        fields |= {"exception": found.exception, "message": found.message}
    elif code is not None and not isinstance(code, int):
        fields["message"] = short(text_of(code))
    return fields | _placed(place)


def of_main_thread() -> dict[str, Any]:
    """Return the fields of `ProcessFailed` that say where the main thread is while another ends the process; it has none itself."""
    if threading.current_thread() is threading.main_thread():
        return {}
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place = place_of_frame(frame)
    return {"main_location": place.location, "main_function": place.function, "main_waits": waits_for_ranks(frame)}


def of_thread_exit(code: Any, frame: FrameType | None) -> dict[str, Any]:
    """Return the fields of `ProcessFailed` for a `sys.exit` in a thread that is not the main one: it ends silently."""
    number = code if isinstance(code, int) else 1
    message = f"exit code {number}" + ("" if isinstance(code, int) else f": {short(text_of(code))}")
    return {"how": "thread", "exception": SystemExit.__name__, "message": message, **_placed(place_of_frame(frame))}


def write(fields: dict[str, Any], said: Sequence[str]) -> None:
    """Write a `ProcessFailed`; nothing where the process is not watched.

    Args:
        said: the last lines on stderr, as they were written.

    Raises:
        TachoscopeError: the job spans nodes and nothing names it.
    """
    watched = watched_process()
    if watched is None:
        return
    who, directory = watched
    own = OutsideRecords(directory, who.job, who.attempt, host=who.host)
    own.write(records.ProcessFailed, failed_rank=_rank(), failed_pid=os.getpid(), said=short_lines([*said]), **fields)
    own.close()


def _rank() -> int:
    place = identity.place(os.environ)
    return place.rank if place is not None else -1


def _placed(place: CodePlace) -> dict[str, str]:
    return {"location": place.location, "function": place.function}
