"""Supervises all training jobs of a store, also those that are submitted later: each by a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tachoscope_cli.training_jobs.lock import supervisor_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.submitted_jobs import ENDED, TrainingJobs
from tachoscope_core.storage.store import Store

LOOK_SECONDS, LOOK_REMOTE_SECONDS = 5.0, 60.0
"""Between two looks at the store; of objects each look is some paid requests a job."""


def log_of(directory: Path, name: str) -> Path:
    """Return the file that the supervisor of a job logs to."""
    return directory / f"{name}.supervisor.log"


def start_supervisor(store: Store, directory: Path, name: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the supervisor of a job, which outlives this process; return it, and the file that it logs to."""
    path = log_of(directory, name)
    with path.open("ab") as log:
        words = [sys.executable, "-m", "tachoscope_cli.main", "supervise", name, "--store", store.url]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    return process, path


class SuperviseAll:
    """Starts the supervisors of the jobs that have none on this machine. directory: of this user, for logs and locks."""

    def __init__(self, store: Store, directory: Path, log: Callable[[str], None]) -> None:
        self._store = store
        self._directory = directory
        self._log = log
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> None:
        """Go on until this process is ended; the supervisors go on without it."""
        self._log(f"supervises the training jobs of {self._store.url}")
        while True:
            try:
                self.look()
            except (TachoscopeError, OSError) as error:
                self._log(f"{error}; trying again")
            time.sleep(LOOK_SECONDS if self._store.local else LOOK_REMOTE_SECONDS)

    def look(self) -> None:
        """Start what is missing."""
        self._started = {name: one for name, one in self._started.items() if one.poll() is None}
        jobs = TrainingJobs(self._store)
        for name in jobs.names():
            if name in self._started or supervisor_of(self._directory, name) is not None:
                continue
            try:
                ended = jobs.status(name).state in ENDED
            except TachoscopeError as error:  # of another user, or damaged: the other jobs go on
                self._log(str(error))
                continue
            if not ended:
                self._started[name], path = start_supervisor(self._store, self._directory, name)
                self._log(f"supervises {name}; the log: {path}")
