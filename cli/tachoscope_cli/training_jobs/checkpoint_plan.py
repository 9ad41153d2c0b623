"""The plan of checkpoints of one attempt: its folder, what is known before, and notices that come to the attempt's process."""

from __future__ import annotations

import contextlib
import glob
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec

from tachoscope import guard
from tachoscope_analyzers.records.load import from_store
from tachoscope_cli.launcher.checkpoint_interval import SAVES, IntervalSettings
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.checkpoint_plan import INTERVAL_VARIABLE, VARIABLE, CheckpointPlan
from tachoscope_core.jobs.submitted_jobs import TrainingJobStatus
from tachoscope_core.storage.store import Store


@contextlib.contextmanager
def plan(status: TrainingJobStatus, number: int, store: Store) -> Iterator[dict[str, str]]:
    """Yield the environment variables of an attempt that may change its interval; none if that is not configured.

    Meanwhile a SIGUSR1, which Slurm sends for `signal: B:USR1@120`, is a notice: the ranks save at once.
    """
    job = status.submitted.job
    mode = job.actions.checkpoint_interval
    if mode == "off":
        yield {}
        return
    try:
        directory, name = Path(job.working_directory), f".tachoscope-{job.name}-{status.submitted.id}"
        folder = _made(directory, name, number) if mode == "apply" else ""
        settings = _settings(status, number, store, folder)
    except (OSError, TachoscopeError) as error:
        guard.print_line(f"the interval of checkpoints stays as it is: {error}")
        yield {}
        return
    found = {INTERVAL_VARIABLE: msgspec.json.encode(settings).decode()}
    try:
        with _announcing(folder):
            yield found | ({VARIABLE: folder} if folder else {})
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def _made(directory: Path, name: str, number: int) -> str:
    """Make the folder, where all nodes see it: in the job's working directory. Those of attempts that were killed are removed."""
    for left in directory.glob(f"{glob.escape(name)}-*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = directory / f"{name}-{number}"
    folder.mkdir(mode=0o700)
    return str(folder)


def _settings(status: TrainingJobStatus, number: int, store: Store, folder: str) -> IntervalSettings:
    ended = [one for one in status.attempts if one.ended_at]
    return IntervalSettings(
        plan=folder,
        attempt=number,
        budget=status.actions_left,
        usual_seconds=_usual_seconds(store, status.submitted.job.name),
        failures=sum(one.failure is not None for one in ended),
        life_seconds=sum(one.ended_at - one.end.started_at for one in ended if one.end is not None),
    )


def _usual_seconds(store: Store, name: str) -> float:
    """Return how long the slowest of the first saves of the job took, before anything could become slower; 0: not known."""
    with contextlib.suppress(TachoscopeError):
        saved = from_store(store, name, ends_only=True).checkpoints if name in store.jobs() else []
        first = sorted((one for one in saved if one.rank == 0), key=lambda one: one.time)[:SAVES]
        if len(first) == SAVES:
            return max(one.blocking_seconds for one in first)
    return 0.0


@contextlib.contextmanager
def _announcing(folder: str) -> Iterator[None]:
    def announce(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            CheckpointPlan(folder).announce_end(signal.Signals(number).name)

    if not folder:
        yield
        return
    before = signal.signal(signal.SIGUSR1, announce)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
