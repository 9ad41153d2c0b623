"""Attempts on this machine: processes of their own session, which outlive their supervisor.

An attempt claims its label before it does anything: a file that only one process can make. So a second one with the label, of a
supervisor that did not know of the first, ends at once.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tachoscope_cli.training_jobs.engine import AttemptRequest, EngineState
from tachoscope_core.errors import TachoscopeError

CLAIM_SECONDS = 60.0
"""How long a process may take to begin, on a loaded machine too."""


class LocalEngine:
    """Starts attempts on this machine. directory: of the claims, of this user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, label: str) -> str | None:
        """Return the process and its beginning, as `<pid>:<clock ticks>`."""
        try:
            return claim_path(self._directory, label).read_text().strip() or None
        except FileNotFoundError:
            return None

    def rendered(self, request: AttemptRequest) -> str:
        """Return the command."""
        return shlex.join(request.command) + "\n"

    def submit(self, request: AttemptRequest) -> str:
        """Start the process of an attempt."""
        claim = claim_path(self._directory, request.label)
        try:
            with request.log.open("ab") as log:
                process = subprocess.Popen(
                    [*request.command, "--claim", str(claim)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=request.job.working_directory,
                    start_new_session=True,
                )
        except OSError as error:
            raise TachoscopeError(f"attempt {request.number} of {request.job.name} could not be started: {error}") from None
        deadline = time.monotonic() + CLAIM_SECONDS
        while time.monotonic() < deadline:
            if (found := self.find(request.label)) is not None:
                return found
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise TachoscopeError(f"attempt {request.number} of {request.job.name} did not begin", fix=f"see {request.log}")

    def state(self, engine_id: str) -> EngineState:
        """Return whether the process is alive."""
        pid, _, began = engine_id.partition(":")
        return EngineState("running" if began and began_of(int(pid)) == began else "ended")

    def hosts(self, engine_id: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return this machine."""
        return {socket.gethostname(): socket.gethostname()}

    def output(self, engine_id: str, log: Path) -> str:  # noqa: ARG002
        """Return the file."""
        return str(log)

    def cancel(self, engine_id: str) -> None:
        """Send a SIGTERM."""
        pid, _, began = engine_id.partition(":")
        with contextlib.suppress(ProcessLookupError, OSError):
            held = os.pidfd_open(int(pid))
            try:
                if began_of(int(pid)) == began:
                    signal.pidfd_send_signal(held, signal.SIGTERM)
            finally:
                os.close(held)


def claim_path(directory: Path, label: str) -> Path:
    """Return the file that an attempt makes when it begins."""
    return directory / f"{label}.claim"


def claim(path: Path) -> bool:
    """Claim an attempt for this process; return False if another one has it."""
    own = path.with_suffix(f".{os.getpid()}")
    own.write_text(f"{os.getpid()}:{began_of(os.getpid())}\n")
    try:
        os.link(own, path)  # whole, or not at all
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def began_of(pid: int) -> str:
    """Return when a process began, in clock ticks since the machine booted; empty: it is gone, or has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in {"Z", "X"} else fields[19]
