"""What a failing process says of its own end, and what torchrun saw of the ends of the ranks that it started.

Both are written beside the records of the rank, by writers of their own with `LAUNCHER_RANK`: the records of a rank begin with its
training, and many a failure comes before.
"""

from __future__ import annotations

from typing import Literal

from tachoscope_core.records.base import LAUNCHER_RANK, Count, ExitCode, Name, Rank, Record, Text


class ProcessFailed(Record, frozen=True, kw_only=True, tag="ProcessFailed"):
    """A process of the job met its end, or one of its threads did; written by that process at `time`. Secrets are hidden.

    Attributes:
        failed_rank: whose process it was; -1: no launcher told it a rank. failed_pid: its process id.
        how: an exception that nobody caught in the main `thread` or in another one (`thread`: the process went on), a call of
            `exit`, or an exception that the main thread has `handled` for long, without a step meanwhile.
        exit_code: of such a call.
        exception: type of the exception that was not caught, or that was handled when the process exited; empty: none.
        message: of that exception, or that was given to `sys.exit`.
        location: `file:line` of the innermost frame of the user's code, of a loader worker's error within the worker; empty: none.
        function: the name of its function.
        main_location, main_function: of an exit that another thread called, as a watchdog does: where the main thread was.
        main_waits: there it was in a call of torch that waits for other ranks.
        said: the last lines that the process wrote to `sys.stderr` before, the newest last.
    """

    failed_rank: Rank = LAUNCHER_RANK
    failed_pid: Count = 0
    how: Literal["exception", "thread", "exit", "handled"]
    exit_code: ExitCode | None = None
    exception: Name = ""
    message: Text = ""
    location: Text = ""
    function: Name = ""
    main_location: Text = ""
    main_function: Name = ""
    main_waits: bool = False
    said: list[Text] = []


class ProcessExited(Record, frozen=True, kw_only=True, tag="ProcessExited"):
    """A process that torchrun started as a rank has ended; written within torchrun at `time`, when it saw that.

    Attributes:
        exited_rank, exited_pid: whose process it was.
        exit_code: a negative one is the signal that ended it.
        terminated: torchrun sent it a signal to end, since another process had failed or torchrun itself was terminated.
        message: what Python said of the signal that ended it, such as `Fatal Python error: Segmentation fault`, or of its timer
            (`faulthandler.dump_traceback_later`), `Timeout (0:05:00)!`; empty: nothing.
        location, function: where the user's code was then, as in `ProcessFailed`; empty: not known.
        waits: there it was in a call of torch that waits for other ranks.
    """

    exited_rank: Rank
    exited_pid: Count = 0
    exit_code: ExitCode
    terminated: bool = False
    message: Text = ""
    location: Text = ""
    function: Name = ""
    waits: bool = False
