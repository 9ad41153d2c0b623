"""A job under the schedule of faults: its folder, its cluster, and what its ranks noted, which is the truth."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy
from benchmarks.recovery.storage import Storage
from benchmarks.slurm_cluster import SlurmCluster

EVERY = 20
"""Steps between checkpoints."""
STEP_SECONDS = 0.2
STEPS_OF_SHARD = 20
NAME = "schedule"


@dataclass(frozen=True, slots=True)
class Step:
    """A step as a rank noted it: times in Unix seconds."""

    number: int
    began: float
    ended: float
    pid: int
    host: str


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault as the injector noted it, with its own clock. step: the highest until then."""

    name: str
    time: float
    step: int


@dataclass
class Run:
    """One job under the schedule, in a folder of its own.

    Attributes:
        began: Unix seconds. corrupt, bad_shard: names of the files that a fault damaged. person_acts: a line for each.
    """

    folder: Path
    cluster: SlurmCluster
    storage: Storage
    steps: int
    began: float = 0.0
    planted: list[Planted] = field(default_factory=list)
    person_acts: list[str] = field(default_factory=list)
    corrupt: str = "none"
    bad_shard: str = "none"

    def fill(self) -> None:
        """Write the training and its shards."""
        shutil.copy(Path(__file__).with_name("training.py"), self.folder / "train.py")
        (self.folder / "shards").mkdir()
        for number in range(self.steps // STEPS_OF_SHARD + 2):
            numpy.savez(self.shard(number), samples=numpy.ones((16, 64), numpy.float32))

    def shard(self, number: int) -> Path:
        return self.folder / f"shards/part-{number:03}.npz"

    @property
    def environment(self) -> dict[str, str]:
        places = {"XDG_STATE_HOME": "state", "TACHOSCOPE_SPOOL": "spool", "TACHOSCOPE_STORE": "store"}
        return {**self.cluster.environment, **{name: str(self.folder / place) for name, place in places.items()}}

    def command(self) -> list[str]:
        rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29519", "--local-addr=127.0.0.1"]
        torchrun = [str(Path(sys.executable).with_name("torchrun")), "--nnodes=2", "--nproc-per-node=1", *rendezvous, "train.py"]
        length = [f"--steps={self.steps}", f"--every={EVERY}", f"--seconds={STEP_SECONDS}"]
        return [*torchrun, *length, f"--checkpoints={self.storage.folder}", f"--shards={self.folder}/shards"]

    def call(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tachoscope_cli.main", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def noted(self, rank: int) -> list[Step]:
        rows = self._rows(f"steps-{rank}.txt", 5)
        return [Step(int(row[0]), float(row[1]), float(row[2]), int(row[3]), row[4]) for row in rows]

    def saved(self) -> list[tuple[int, float]]:
        """Return step and time of each checkpoint."""
        return [(int(row[0]), float(row[1])) for row in self._rows("saves.txt", 2)]

    def resumed(self) -> list[str]:
        """Return the checkpoints that rank 0 loaded, or tried to."""
        return [Path(row[1]).name for row in self._rows("resumes.txt", 3) if row[0] == "0"]

    def _rows(self, name: str, fields: int) -> list[list[str]]:
        path = self.folder / name
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [row for row in rows if len(row) == fields]

    def highest(self) -> int:
        return max((step.number for rank in range(2) for step in self.noted(rank)), default=0)

    def pid(self, rank: int) -> int:
        return self.noted(rank)[-1].pid

    def host(self, rank: int) -> str:
        return self.noted(rank)[-1].host

    def newest_checkpoint(self) -> Path:
        return max(self.storage.folder.glob("checkpoint-*.pt"), key=lambda path: path.stat().st_mtime)

    def bad_shards(self) -> list[Path]:
        return [path for path in (self.folder / "shards").iterdir() if not _is_sound(path)]


def flip_bytes(path: Path) -> None:
    """Damage a file in its middle."""
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 3, len(data) // 3 + 64):
        data[place] ^= 0xFF
    with path.open("r+b") as file:
        file.write(data)
        os.fsync(file.fileno())


def _is_sound(path: Path) -> bool:
    try:
        with numpy.load(path) as shard:
            return len(shard["samples"]) > 0
    except (OSError, ValueError, zipfile.BadZipFile):
        return False
