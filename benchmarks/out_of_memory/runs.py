"""The runs of the bars, and how one is made: its control group, its neighbour, `tachoscope run` around it, and its report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_store
from tachoscope_cli.drill import memory_group
from tachoscope_core.report.report import Report
from tachoscope_core.storage.store import Store

GROUPS = Path("/sys/fs/cgroup/memory")
TRAINING = Path(__file__).with_name("training.py")
RUN_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    Attributes:
        case: as `training.py` knows it. kind: `kill`, `clean` or `cache`. limit_mib: of the group.
        part, rank, truth: what grows, of which rank (-1: of none), and the mark of the line (empty: no line of Python owns it).
        ranks: of the job. ratio: of the room that is filled. seconds: how long it trains. launcher_inside: the group has
            `tachoscope run` in it, as in a container.
    """

    name: str
    case: str
    kind: str
    limit_mib: int = 400
    part: str = ""
    rank: int = 0
    truth: str = ""
    ranks: int = 1
    ratio: float = 1.3
    seconds: float = 40.0
    fill_seconds: float = 12.0
    launcher_inside: bool = False


def _kills() -> list[Run]:
    found = [
        Run(f"list, {what}", f"list:{what}", "kill", part="process", truth=f"list_{what}")
        for what in ("tensors", "arrays", "bytes", "objects")
    ]
    found.append(Run("loss summed with its graph", "graph", "kill", part="process", truth="graph"))
    found += [
        Run(f"loader worker, {what}", f"worker:{what}", "kill", 500, part="loader_workers", truth=f"worker_{what}")
        for what in ("tensors", "arrays", "bytes", "objects")
    ]
    found += [
        Run(f"shared memory, {what}", f"shared:{what}", "kill", part="shared_memory", truth=truth)
        for what, truth in (("tensors", "shared_tensors"), ("blocks", "shared_blocks"), ("files", ""))
    ]
    found += [
        Run(f"one rank with long sequences, {limit} MiB", "sequences", "kill", limit, part="process", rank=1, ranks=2)
        for limit in (600, 700, 800, 900)
    ]
    found += [
        Run(f"a neighbour, {limit} MiB", "beside:clean", "kill", limit, part="other_processes", rank=-1)
        for limit in (400, 450, 500, 550)
    ]
    # Until the kernel ends it, however slow the machine is; beside a neighbour the job may go on.
    found = [replace(one, seconds=one.seconds if one.case.startswith("beside") else RUN_SECONDS / 2) for one in found]
    # In a container the launcher is in the group as well, and counts.
    return [
        replace(one, launcher_inside=place % 2 == 1, limit_mib=one.limit_mib + 100 * (place % 2)) for place, one in enumerate(found)
    ]


def _clean() -> list[Run]:
    cases = ("clean", "clean_workers", "clean_sequences", "clean_saves", "clean_evaluates", "clean_files")
    found = [Run(f"{case}, {number}", case, "clean", 500, seconds=12.0) for number in range(3) for case in cases]
    return [
        *found,
        Run("clean, long", "clean", "clean", 500, seconds=40.0),
        Run("clean_workers, long", "clean_workers", "clean", 600, seconds=40.0),
    ]


def _caches() -> list[Run]:
    found = []
    for place, (case, ratio) in enumerate(
        [
            ("cache:tensors", 0.3),
            ("cache:tensors", 0.6),
            ("cache:bytes", 0.45),
            ("cache:bytes", 0.8),
            ("cache:arrays", 0.25),
            ("cache:arrays", 0.45),
            ("cache:objects", 0.35),
            ("worker_cache:arrays", 0.4),
            ("worker_cache:bytes", 0.7),
            ("clean_files", 0.5),
        ]
    ):
        found.append(Run(f"cache {place}: {case} to {ratio:.0%}", case, "cache", 600, ratio=ratio, seconds=36.0, fill_seconds=9.0))
    return found


RUNS = [*_kills(), *_clean(), *_caches()]


def make(run: Run, folder: Path) -> tuple[Report | None, str]:
    """Make a run in an empty folder; return what `judge` says of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shared = Path("/dev/shm") / f"tachoscope-bar-{os.getpid()}"
    shared.mkdir(exist_ok=True)
    try:
        with memory_group.created() as group:
            memory_group.limit(group, run.limit_mib << 20)
            _watched(run, folder, Path(group.folder), shared)
    finally:
        shutil.rmtree(shared, ignore_errors=True)
        for block in shared.parent.glob(f"{shared.name}-*"):  # of the killed process
            block.unlink(missing_ok=True)
    return judge(folder)


def judge(folder: Path) -> tuple[Report | None, str]:
    """Return the report of a run that was made, None without one, and what `tachoscope run` said."""
    said = (folder / "said.txt").read_text()
    try:
        return analyze(from_store(Store(str(folder / "store")), "bar")), said
    except Exception as error:
        return None, f"{said}\n{type(error).__name__}: {error}"


def _watched(run: Run, folder: Path, group: Path, shared: Path) -> None:
    environ = os.environ | {"SHARED_FOLDER": str(shared), "TACHOSCOPE_SPOOL": str(folder / "spool"), "OMP_NUM_THREADS": "1"}
    given = [
        *("--group", str(group), "--seconds", str(run.seconds), "--fill-seconds", str(run.fill_seconds)),
        *("--ratio", str(run.ratio), *([] if run.launcher_inside else ["--join"])),
    ]
    job = [sys.executable]
    if run.ranks > 1:
        job += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={run.ranks}"]
    command = [
        *(sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "bar", "--store", str(folder / "store"), "--"),
        *(*job, str(TRAINING), run.case, *given),
    ]
    inside = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if run.launcher_inside else None
    beside = None
    with (folder / "said.txt").open("w+") as said:
        if run.case.startswith("beside"):
            beside = subprocess.Popen(
                [sys.executable, str(TRAINING), "neighbour", "--join", *given[:8]], env=environ, stdout=said, stderr=said
            )
        job_process = subprocess.Popen(command, env=environ, stdout=said, stderr=said, preexec_fn=inside)
        try:
            job_process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            job_process.kill()
        if beside is not None:
            beside.kill()
            beside.wait()


def line_of(truth: str) -> str:
    """Return `file:line` of the line that is marked so; empty for an empty mark."""
    lines = TRAINING.read_text().splitlines()
    return next(
        (f"{TRAINING.name}:{number}" for number, text in enumerate(lines, 1) if truth and text.endswith(f"# truth: {truth}")), ""
    )
