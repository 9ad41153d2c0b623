"""Reads the checkpoints of the node's jobs back, one at a time, and writes down what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

import tachoscope_core
import tachoscope_node
from tachoscope_core.checkpoints.saves import parse
from tachoscope_core.checkpoints.verification import ReadBack
from tachoscope_core.records import records
from tachoscope_node.checkpoints.queue import Task, VerifyQueue
from tachoscope_node.checkpoints.reader_process import ReadRequest
from tachoscope_node.config.settings import Checkpoints, Limits
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.spool.agent_records import OwnRecords
from tachoscope_node.spool.segment import Segment
from tachoscope_service.common.log import Log
from tachoscope_service.metrics.family import Family

_START = """
import os, sys
try:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
except OSError:
    pass
sys.path[:0] = sys.argv[1:]
from tachoscope_node.checkpoints.reader_process import main
main()
"""
"""Its start is to disturb nobody either. Linux derives the idle class of I/O from this priority: include/linux/ioprio.h."""
_LOOK_SECONDS = 1.0
_MAX_FAULT = 500


class Verifier:
    """Verifies checkpoints, in a thread that starts with the first manifest. No method raises.

    Args:
        own: writes the results; sound and corrupt ones only, since nothing is known of the others.
    """

    def __init__(
        self,
        state: Path,
        settings: Checkpoints,
        limits: Limits,
        live: JobRegistry,
        own: OwnRecords,
        log: Log,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.queue = VerifyQueue(
            state / "checkpoints.json", live.rejected, most_jobs=limits.jobs, again_seconds=settings.verify_again_seconds
        )
        self._live = live
        self._own = own
        self._log = log
        self._clock = clock
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def reconfigure(self, settings: Checkpoints, limits: Limits) -> None:
        self.settings = settings
        self.queue.again_seconds, self.queue.most_jobs = settings.verify_again_seconds, limits.jobs

    def apply(self, segment: Segment, lines: list[bytes]) -> None:
        """Read what new lines of a segment say about checkpoints."""
        if not self.settings.verify or segment.address is None:
            return
        for record in parse(lines):
            if (record.job, record.writer) == (segment.address.job, segment.writer):
                self.queue.add_record(record.job, segment.uid, record, self._clock())
                self._start()

    def _start(self) -> None:
        if self._thread is None and not self._stop.is_set():
            self._thread = threading.Thread(target=self._run, name="tachoscope-verify", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self.step():
                    continue
            except Exception as error:
                self._log.warning("verify", f"internal error while verifying checkpoints: {type(error).__name__}: {error}")
            self._stop.wait(_LOOK_SECONDS)

    def step(self) -> bool:
        """Verify one checkpoint if one is due; return whether one was."""
        task = self.queue.next(self._clock()) if self.settings.verify else None
        if task is None:
            return False
        order = self._order(task)
        verdict = order if isinstance(order, ReadBack) else in_a_process(order, self._stop)
        if verdict is None:
            return False
        if self.queue.done(task, verdict, self._clock()):
            self._report_verdict(task, verdict)
        return True

    def _order(self, task: Task) -> ReadRequest | ReadBack:
        """Return the read request, or the reason against it. The agent's own rights must not read for the job."""
        settings, me = self.settings, os.geteuid()
        if not settings.roots and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return ReadBack("unreachable", "in Kubernetes only what lies in checkpoints.roots is read, and none is configured")
        if me not in {0, task.uid}:
            return ReadBack("unreachable", f"an agent of user {me} does not read files for user {task.uid}")
        if task.checkpoint.bytes > settings.max_bytes:
            return ReadBack("unverifiable", f"it has {task.checkpoint.bytes} bytes, checkpoints.max_bytes is {settings.max_bytes}")
        return ReadRequest(
            task.checkpoint.reference,
            mapped(task.checkpoint.reference, settings.paths),
            task.checkpoint.manifests,
            sorted(task.expected_ranks),
            task.whole,
            task.uid,
            settings.roots,
            settings.bytes_per_second,
        )

    def _report_verdict(self, task: Task, verdict: ReadBack) -> None:
        checkpoint = task.checkpoint
        if verdict.result != "sound":
            what = f"checkpoint {checkpoint.reference[:_MAX_FAULT]!r} of job {task.job}"
            subject = f"{verdict.result} checkpoint of {task.job}"
            self._log.warning(subject, f"{what} is {verdict.result}: {verdict.fault[:_MAX_FAULT]!r}")
        if verdict.result in {"sound", "corrupt"}:
            self._own.write(
                task.job,
                records.CheckpointVerified,
                attempt=task.attempt,
                step=checkpoint.step,
                reference=checkpoint.reference,
                attempt_saved=checkpoint.attempt,
                sound=verdict.result == "sound",
                fault=verdict.fault[:_MAX_FAULT],
                bytes=verdict.bytes,
                seconds=verdict.seconds,
                ranks=[] if task.whole else sorted(checkpoint.manifests),
            )

    def tick(self, live_jobs: Collection[str]) -> None:
        """Keep what is known, of jobs that are live."""
        self.queue.drop_ended_jobs(live_jobs, self._clock())
        try:
            self.queue.save()
        except OSError as error:
            self._log.warning("checkpoints", f"could not save the state of checkpoint verification: {error.strerror}")

    def families(self, live_jobs: Collection[str]) -> list[Family]:
        return self.queue.families(live_jobs)

    def close(self) -> None:
        """Stop. An unfinished checkpoint is read again by the next agent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)


def mapped(path: str, paths: dict[str, str]) -> str:
    """Return where a path of the job is on this machine, by the longest prefix that is mapped."""
    for inside in sorted(paths, key=len, reverse=True):
        folder = inside.rstrip("/")
        if path == folder or path.startswith(f"{folder}/"):
            return paths[inside].rstrip("/") + path[len(folder) :]
    return path


def in_a_process(order: ReadRequest, stop: threading.Event) -> ReadBack | None:
    """Carry out an order by `reader_process`, in a process of its own; None if `stop` was set meanwhile."""
    packages = (tachoscope_node, tachoscope_core, msgspec)
    places = dict.fromkeys(str(Path(str(package.__file__)).parents[1]) for package in packages)
    # The agent's environment may hold the keys of its store, which are not the user's whose rights this process takes.
    environ = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _START, *places],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        cwd="/",
        start_new_session=True,
    )
    content: bytes | None = msgspec.json.encode(order)
    while True:
        try:
            answer, _ = process.communicate(content, timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            content = None
            if stop.is_set():
                process.kill()  # not waited for: a read from a storage that hangs cannot be ended
                return None
            continue
        try:
            return msgspec.json.decode(answer, type=ReadBack)
        except msgspec.DecodeError:
            return None if stop.is_set() else ReadBack("unreachable", f"reading back ended with code {process.returncode}")
