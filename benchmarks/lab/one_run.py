"""One run: its ranks are started, watched as `tachoscope run` watches them, hurt from outside where that is the fault; then the
records are shipped and the truth is written beside them.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from benchmarks.lab import cgroups, facilities, faults, network, processes, rank
from benchmarks.lab.faults.lifecycle import RESTART_SECONDS
from benchmarks.lab.rank_rows import Rows
from benchmarks.lab.spec import Spec
from benchmarks.lab.truth import truth_of
from benchmarks.lab.workloads import data, models

from tachoscope.spool.ship import ship
from tachoscope_cli.launcher.supervision import Supervision
from tachoscope_core.storage.store import Store

JOB = "lab"
SPOOL_PREFIX = "tachoscope-lab-"
LOOK_SECONDS = 0.3
PATIENCE_SECONDS = 120.0
"""A run in which no rank finishes a step for so long is given up."""
NOTICED_SECONDS = 0.1
"""After the death of a rank its launcher ends the others: torchrun looks that often."""
HANG_SECONDS = 4.0
"""From when on the watcher speaks of a hang, as $TACHOSCOPE_HANG_SECONDS lets users choose; the lab's last for longer."""


class RunFailedError(Exception):
    """A rank ended as it should not have; the message has its last words."""


@dataclass(slots=True)
class _Deed:
    """What is done to the job from outside: `stop` and go on, or `kill` and start again."""

    kind: str
    rank: int
    at_step: int
    seconds: float
    done: bool = False
    seen: dict[str, float] = field(default_factory=dict)


def _deed_of(spec: Spec) -> _Deed | None:
    kinds = {("hang", "stopped"): "stop", ("lost_work", "killed"): "kill"}
    for planned in spec.faults:
        kind = kinds.get((planned.slug, planned.cause))
        if kind is not None:
            values = planned.parameters
            return _Deed(kind, planned.rank, int(values["at_step"]), float(values.get("hang_seconds", 0.0)))
    return None


def make(spec: Spec, out: Path) -> dict[str, Any]:
    """Make a run, put it into `out` under its id, and return its truth.

    Raises:
        RunFailedError: the training failed by itself; nothing is kept but its logs, in `out/failed`.
        KeyboardInterrupt: interrupted; all processes, namespaces, groups and half-written files are gone.
    """
    partial = out / f".partial-{spec.id}"
    shutil.rmtree(partial, ignore_errors=True)
    work = partial / "work"
    work.mkdir(parents=True)
    try:
        needs = tuple(need for planned in spec.faults for need in faults.cause_of(planned).needs)
        needs += ("network_cards",) if spec.workload == "exchange" else ()
        needs += ("memory_limit",) if "cache_ratio" in spec.shape else ()
        reason = facilities.why_not(needs)
        if reason:
            (partial / "store").mkdir()
            truth = truth_of(spec, None, reason)
        else:
            truth = truth_of(spec, _recorded(spec, partial, work))
        (partial / "truth.json").write_text(json.dumps(truth, indent=1))
        shutil.rmtree(work)
        partial.rename(out / spec.id)
        return truth
    except RunFailedError:
        logs = out / "failed" / spec.id
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        for log in work.glob("rank-*.log"):
            shutil.copy(log, logs)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _recorded(spec: Spec, partial: Path, work: Path) -> Rows:
    if "model" in spec.shape:
        data.write_files(work / "data", math.prod(models.sample_shape(spec.shape["model"], spec.shape["scale"])))
    spool = Path(tempfile.mkdtemp(prefix=f"{SPOOL_PREFIX}{os.getpid()}-", dir="/dev/shm"))
    run_directory = spool / f"run-{uuid.uuid4()}"
    run_directory.mkdir()
    environ = {
        "TACHOSCOPE_SPOOL": str(spool),
        "TACHOSCOPE_RUN_DIR": str(run_directory),
        "TACHOSCOPE_JOB": JOB,
        "TACHOSCOPE_ATTEMPT": "0",
        "TACHOSCOPE_STORE": str(partial / "store"),
    }
    os.environ["TACHOSCOPE_HANG_SECONDS"] = str(HANG_SECONDS)
    try:
        with _network(spec) as namespaces:
            outside = _Attempts(spec, work, environ, tuple(namespaces), Supervision(run_directory, JOB, 0)).run()
        ship(run_directory, Store(str(partial / "store")))
        files = [work / f"rank-{number}.json" for number in range(spec.world_size)]
        return Rows([json.loads(file.read_text()) for file in files], outside)
    finally:
        processes.end_all()
        cgroups.remove_all()
        shutil.rmtree(spool, ignore_errors=True)


@contextlib.contextmanager
def _network(spec: Spec) -> Iterator[list[int]]:
    kinds = {faults.cause_of(planned).network for planned in spec.faults} | ({"cards"} if spec.workload == "exchange" else set())
    if "cards" in kinds:
        with network.cards(spec.world_size) as namespaces:
            yield namespaces
    elif "loopback" in kinds:
        with network.loopback() as namespaces:
            yield namespaces
    else:
        yield []


class _Attempts:
    """The attempts of one run: its processes, what is done to them from outside, and who watches."""

    def __init__(self, spec: Spec, work: Path, environ: dict[str, str], namespaces: tuple[int, ...], watching: Supervision) -> None:
        self.spec, self.work, self.environ, self.namespaces, self.watching = spec, work, environ, namespaces, watching
        self.progress = multiprocessing.get_context("fork").RawArray("i", spec.world_size)
        self.deed = _deed_of(spec)
        self.outside: dict[str, float] = {}
        self._looked = 0.0
        self._came = (list(self.progress), time.monotonic())

    def run(self) -> dict[str, float]:
        """Run until all ranks have ended; return what was seen from outside."""
        self.watching.started(["python", f"{self.spec.workload}.py"])
        attempt = 0
        while not self._attempt(self._start(attempt)):
            attempt += 1
            killed_at = self.outside["killed_at"]
            time.sleep(RESTART_SECONDS)  # as long as a launcher takes to notice and to start again
            self.outside["down_seconds"] = time.monotonic() - killed_at
        self.watching.command_ended(0)
        return self.outside

    def _start(self, attempt: int) -> list[ForkProcess]:
        places = (JOB, self.work, self.environ, self.progress, self.namespaces)
        return [processes.fork(rank.main, self.spec, number, attempt, *places) for number in range(self.spec.world_size)]

    def _attempt(self, ranks: list[ForkProcess]) -> bool:
        """Wait until the ranks have ended; False where they are to be started again."""
        while any(process.is_alive() for process in ranks):
            self._look()
            self._hurt(ranks)
            if self.outside.pop("start_again", 0.0):
                self._look(now=True)
                for process in ranks:
                    process.kill()
                    process.join()
                return False
            self._give_up_if_stuck()
            if any(process.exitcode not in {None, 0} for process in ranks):
                break
            time.sleep(0.02)
        self._look(now=True)
        failed = [number for number, process in enumerate(ranks) if process.exitcode != 0]
        if failed:
            words = (self.work / f"rank-{failed[0]}.log").read_text(errors="replace").strip().splitlines()[-12:]
            raise RunFailedError("\n".join([f"{self.spec.id}: rank {failed[0]} failed", *words]))
        return True

    def _give_up_if_stuck(self) -> None:
        steps, since = self._came
        if list(self.progress) != steps:
            self._came = (list(self.progress), time.monotonic())
        elif time.monotonic() - since > PATIENCE_SECONDS:
            raise RunFailedError(f"{self.spec.id}: no step for {PATIENCE_SECONDS:.0f} s, after steps {steps}")

    def _look(self, *, now: bool = False) -> None:
        if now or time.monotonic() - self._looked >= LOOK_SECONDS:
            self._looked = time.monotonic()
            self.watching.poll()

    def _hurt(self, ranks: list[ForkProcess]) -> None:
        deed = self.deed
        if deed is None or deed.done:
            return
        pid = ranks[deed.rank].pid
        if pid is None or self.progress[deed.rank] < deed.at_step:
            return
        now = time.monotonic()
        if deed.kind == "kill":
            os.kill(pid, signal.SIGKILL)
            ranks[deed.rank].join()
            time.sleep(NOTICED_SECONDS)
            deed.done = True
            done = self.progress[deed.rank]
            every = int(self.spec.shape["save_every"])
            self.outside |= {
                "killed_at": now,
                "start_again": 1.0,
                "steps_done": done,
                "replayed_steps": done - done // every * every,
            }
        elif not deed.seen:
            os.kill(pid, signal.SIGSTOP)
            deed.seen["stopped"] = now
        elif now - deed.seen["stopped"] >= deed.seconds:
            os.kill(pid, signal.SIGCONT)
            deed.done = True
            self.outside["hang_seconds"] = time.monotonic() - deed.seen["stopped"]


def remove_what_others_left() -> None:
    """Remove spools and control groups of labs that were killed."""
    cgroups.remove_all(of_others=True)
    for folder in Path("/dev/shm").glob(f"{SPOOL_PREFIX}*"):
        if not Path(f"/proc/{folder.name.removeprefix(SPOOL_PREFIX).split('-')[0]}").exists():
            shutil.rmtree(folder, ignore_errors=True)
