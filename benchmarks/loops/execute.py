"""Runs one case: copies the loop, plants, trains under the probe, analyzes, judges."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.loops.faults import TOKENIZE, Fault, calibration_edits, edits_of
from benchmarks.loops.judge import Row, judge
from benchmarks.loops.loop import Loop
from benchmarks.loops.plant import Edit, Spot, apply_edits
from benchmarks.loops.truth import read_marks, step_seconds, truth_of

HERE = Path(__file__).parent
LIMIT_SECONDS = 240.0
CALIBRATION_STEPS = 40


class RunError(Exception):
    """A run could not be made or judged."""


@dataclass(frozen=True)
class Usage:
    """CPU seconds at one time: of the whole machine, and of this process' ended children."""

    clock: float
    machine: float
    children: float

    @classmethod
    def now(cls) -> Usage:
        """Read both."""
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(ticks) - ticks[3] - ticks[4]  # without idle and iowait
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(time.monotonic(), busy / os.sysconf("SC_CLK_TCK"), own.ru_utime + own.ru_stime)

    def since(self, before: Usage) -> tuple[float, float]:
        """Return the seconds between, and how many cores were used by others than our children."""
        wall = self.clock - before.clock
        return wall, max((self.machine - before.machine) - (self.children - before.children), 0.0) / wall


@dataclass
class Runner:
    """What all runs share.

    Attributes:
        sources: folder with the public repositories.
        out: rows, stores and, of runs that failed, their output.
        python: the interpreter that trains; tachoscope and torchrun are beside it.
        keep: leave the folders of all runs.
    """

    sources: Path
    out: Path
    python: Path
    keep: bool = False
    _alive: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def missing(self, loop: Loop) -> str:
        """Return why a loop cannot be run here, empty: it can."""
        folder = self.folder_of(loop)
        if not (folder / loop.step.file).exists():
            return f"{folder / loop.step.file} is not there"
        absent = [name for name in loop.needs if not self._importable(name)]
        return f"not installed: {', '.join(absent)}" if absent else ""

    def folder_of(self, loop: Loop) -> Path:
        """Return the folder that is copied."""
        return (HERE if loop.folder == "own" else self.sources) / loop.folder

    def run(self, loop: Loop, fault: Fault, repeat: int) -> Row:
        """Train and analyze, and return the row."""
        base: Row = {"loop": loop.name, "fault": fault.name, "repeat": repeat, "when": time.strftime("%Y-%m-%dT%H:%M:%S")}
        clean_step = self.clean_step(loop) if fault.classes or fault.name != "clean" else 0.0
        job = f"{loop.name}-{fault.name}-{repeat}-{os.getpid()}"
        with self._workplace(loop, edits_of(loop, fault, clean_step, words_per_second())) as (folder, spots):
            command = [*self._tachoscope(), "run", "--job", job, "--store", str(self.store), "--", *self._command(loop)]
            before = Usage.now()
            self._call(command, folder, loop, self.out / f"{job}.log")
            took, others = Usage.now().since(before)
            report, refusal = self._analyze(job, folder)
            window = report.get("window", {"start": 0.0, "end": math.inf})
            truth = truth_of(read_marks(folder / "marks"), window["start"], window["end"])
        row = base | judge(report, fault, spots, truth)
        circumstances = {
            "clean_step_seconds": clean_step,
            "run_seconds": took,
            "other_cores": others,
            "job": job,
            "note": loop.note,
        }
        return row | circumstances | ({"refusal": refusal} if refusal else {})

    @property
    def store(self) -> Path:
        """Where the records go."""
        return self.out / "store"

    def clean_step(self, loop: Loop) -> float:
        """Return the seconds of a clean step, measured once without the probe and kept."""
        with self._lock:
            path = self.out / "clean_steps.json"
            known = json.loads(path.read_text()) if path.exists() else {}
            if loop.name not in known:
                known[loop.name] = self._calibrate(loop)
                path.write_text(json.dumps(known, indent=1) + "\n")
            return float(known[loop.name])

    def stop(self) -> None:
        """End what runs."""
        for child in list(self._alive):
            _end(child)

    def _calibrate(self, loop: Loop) -> float:
        with self._workplace(loop, calibration_edits(loop)) as (folder, _):
            stop = {"LOOPS_STOP_AFTER_STEPS": str(CALIBRATION_STEPS)}
            # Its ranks leave at different times, so that the exit code says nothing.
            self._call(self._command(loop), folder, loop, self.out / f"{loop.name}-calibration.log", stop, any_exit=True)
            seconds = step_seconds(read_marks(folder / "marks"))
        if not seconds:
            raise RunError(f"the clean loop did no step: see {self.out / loop.name}-calibration.log")
        return seconds

    @contextlib.contextmanager
    def _workplace(self, loop: Loop, edits: list[Edit]) -> Iterator[tuple[Path, list[Spot]]]:
        folder = Path(tempfile.mkdtemp(prefix=f"loops-{loop.name}-"))
        try:
            shutil.copytree(self.folder_of(loop), folder / "code", ignore=shutil.ignore_patterns(".git"))
            spots = apply_edits(folder / "code", edits)
            packages = folder / "site-packages"
            packages.mkdir()
            shutil.copy(HERE / "planted.py", packages)
            if loop.images:
                shutil.copytree(HERE / "stand_ins" / "torchvision", packages / "torchvision")
            (folder / "marks").mkdir()
            write_data(loop.data, folder / "code")
            yield folder, spots
        finally:
            if not self.keep:
                shutil.rmtree(folder, ignore_errors=True)

    def _call(
        self,
        command: list[str],
        folder: Path,
        loop: Loop,
        log: Path,
        extra: dict[str, str] | None = None,
        *,
        any_exit: bool = False,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = os.environ | self._environment(folder, loop) | (extra or {})
        with log.open("wb") as output:
            child = subprocess.Popen(
                command, cwd=folder / "code", env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            self._alive.add(child)
            try:
                code = child.wait(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                raise RunError(f"it did not end within {LIMIT_SECONDS:.0f} s: see {log}") from None
            finally:
                _end(child)
                self._alive.discard(child)
        if code and not any_exit:
            raise RunError(f"it ended with exit code {code}: see {log}")
        log.unlink()

    def _environment(self, folder: Path, loop: Loop) -> dict[str, str]:
        paths = [str(folder / "site-packages"), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            "LOOPS_MARKS": str(folder / "marks"),
            **({"LOOPS_IMAGES": str(loop.images)} if loop.images else {}),
        }

    def _analyze(self, job: str, folder: Path) -> tuple[Row, str]:
        """Return the report, or none and why there is none: that is a result, too, and a wrong one."""
        command = [*self._tachoscope(), "analyze", "--job", job, "--store", str(self.store), "--format", "json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            return {}, " ".join(done.stderr.split())[:300]
        report: Row = json.loads(done.stdout)
        folder_of_reports = self.out / "reports"
        folder_of_reports.mkdir(parents=True, exist_ok=True)
        (folder_of_reports / f"{job}.json").write_text(done.stdout)
        return report, ""

    def _tachoscope(self) -> list[str]:
        return [str(self.python.with_name("tachoscope"))]

    def _command(self, loop: Loop) -> list[str]:
        first, *rest = loop.command.split()
        if first != "torchrun":
            return [str(self.python), first, *rest]
        return [str(self.python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *rest]

    def _importable(self, name: str) -> bool:
        return subprocess.run([str(self.python), "-c", f"import {name}"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def write_data(kind: str, folder: Path) -> None:
    """Write what the loop reads: token files for nanoGPT, or a corpus of words."""
    drawn = random.Random(1)
    if kind == "tokens":
        data = folder / "data" / "planted"
        data.mkdir(parents=True)
        for name in ("train.bin", "val.bin"):
            (data / name).write_bytes(array("H", drawn.choices(range(256), k=200_000)).tobytes())
        import pickle

        (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 256}))
    if kind == "words":
        data = folder / "planted_words"
        data.mkdir()
        words = [f"word{number}" for number in range(2000)]
        for name, count in (("train.txt", 20 * 35 * 260), ("valid.txt", 5_000), ("test.txt", 5_000)):
            lines = (" ".join(drawn.choices(words, k=20)) for _ in range(count // 21))
            (data / name).write_text("\n".join(lines) + "\n")


def words_per_second() -> float:
    """Return how fast one interpreter here does the planted tokenizer."""
    names: dict[str, object] = {}
    exec(TOKENIZE, names)
    tokenize = names["tokenize"]
    assert callable(tokenize)
    tokenize(20_000)
    begin = time.perf_counter()
    tokenize(100_000)
    return 100_000 / (time.perf_counter() - begin)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child with all that it started: the session is its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=5)
