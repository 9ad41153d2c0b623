"""The `tachoscope` command's entry. It imports the rest only where an interrupt or an error is told in one line."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from tachoscope_core import extras
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_show.text.safe_text import safe

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def main(arguments: Sequence[str] | None = None, run: Callable[[Sequence[str]], int] | None = None) -> None:
    """Run the command line; errors are one line, and a traceback with --verbose.

    Args:
        run: takes the words and returns the exit code; default: the command `tachoscope`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = (run or _tachoscope)(words)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk can still be told in one line
    except TachoscopeError as error:
        if "--verbose" in words:
            traceback.print_exc()
        else:
            sys.stderr.write(f"tachoscope: {safe(str(error))}\n")
        code = error.exit_code
    except ModuleNotFoundError as error:
        extra = extras.that_brings(error.name or "")
        if extra is None or "--verbose" in words:
            traceback.print_exc()
            code = ExitCode.DEFECT
        else:
            sys.stderr.write(f"tachoscope: this command needs {error.name} (pip install 'tachoscope[{extra}]')\n")
            code = ExitCode.NOT_DONE
    except KeyboardInterrupt:
        sys.stderr.write("tachoscope: interrupted\n")
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of the pipe went away: nobody is left to tell
        _write_no_more()
        code = ExitCode.NO_READER
    except OSError as error:
        code = _report_os_error(error, words)
    except Exception:
        traceback.print_exc()
        code = ExitCode.DEFECT
    _flush_stderr()
    sys.exit(code)


def _flush_stderr() -> None:
    """Flush what is left for stderr; if nobody reads it, discard it, since failing to flush at exit would change the exit code."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _tachoscope(words: Sequence[str]) -> int:
    from tachoscope_cli.app import call

    return call(words)


def _report_os_error(error: OSError, words: Sequence[str]) -> ExitCode:
    """Print an error of the system; only a full output device is not a defect of ours."""
    no_room = error.errno in _NO_ROOM and error.filename is None
    if no_room:
        _write_no_more()
    if not no_room or "--verbose" in words:
        traceback.print_exc()
    else:
        sys.stderr.write(f"tachoscope: could not write the output: {error.strerror}\n")
    return ExitCode.NOT_DONE if no_room else ExitCode.DEFECT


def _write_no_more() -> None:
    """Discard the buffered output, which would fail again at exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
