"""Processes that a fire drill starts: each ends with its block, whatever else happens, and so does all that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.1
_LAST_LINES = 5
_T = TypeVar("_T")


def program(name: str, package: str) -> str:
    """Return the path of a program.

    Raises:
        TachoscopeError: it is not installed; Debian's `package` has it.
    """
    found = shutil.which(name)
    if found is None:
        raise TachoscopeError(f"a drill needs {name}, which is not installed", fix=f"apt-get install {package}")
    return found


def free_port() -> int:
    """Return a port of this machine's loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the length of the block, in a session of its own, so that the terminal's Ctrl-C does not reach it."""
    with log.open("ab") as output:
        process = subprocess.Popen(list(command), stdout=output, stderr=output, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process with a session of its own, and what is left of that session."""
    if process.returncode is not None:
        return
    _signal(process, how)
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline and os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        time.sleep(_LOOK_SECONDS / 2)
    _signal(process, signal.SIGKILL)  # before it is waited for: until then its number is no other's
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def wait_until(
    found: Callable[[], _T | None],
    seconds: float,
    what: str,
    watched: Mapping[str, Path] | None = None,
    process: subprocess.Popen[bytes] | None = None,
) -> _T:
    """Return what is found within so many seconds; looked for ten times a second.

    Args:
        found: gives None, or fails with an OSError, while it is not there. what: for the message.
        watched: names and logs of processes, whose last lines end the message.
        process: without it, it is waited for no longer.

    Raises:
        TachoscopeError: it was not found.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        with contextlib.suppress(OSError):
            if (result := found()) is not None:
                return result
        time.sleep(_LOOK_SECONDS)
    last = "".join(f"\n{name} said last: {tail(log)}" for name, log in (watched or {}).items())
    raise TachoscopeError(f"timed out after {seconds:.0f} s waiting until {what}{last}", exit_code=ExitCode.NOT_WELL)


def tail(log: Path) -> str:
    """Return the last lines of a log."""
    with contextlib.suppress(OSError):
        return " | ".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:]) or "nothing"
    return "nothing"
