"""A small training in a control group with a limit, with one way of filling it. Started by `python -m benchmarks.out_of_memory`.

What is filled a second follows from the room that the group has when the steps begin, so that a run takes about as long as it
should on any machine. Lines with a `truth:` at their end are what a report should name.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any


def join(group: str) -> None:
    """Move this process into the group, before it loads anything large."""
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))


OPTIONS = argparse.ArgumentParser()
OPTIONS.add_argument("case")
OPTIONS.add_argument("--group", default="")
OPTIONS.add_argument("--join", action="store_true")
OPTIONS.add_argument("--seconds", type=float, default=30.0)
OPTIONS.add_argument("--fill-seconds", type=float, default=8.0)
OPTIONS.add_argument("--ratio", type=float, default=1.3, help="of the room that is filled; above 1 it is too much")
GIVEN = OPTIONS.parse_args()
join(GIVEN.group if GIVEN.join else "")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
WIDTH, STEP_SECONDS, LEAST_CALLS = 64, 0.02, 200
STARTED = Path(os.environ["SHARED_FOLDER"]) / "started"


def room() -> int:
    """Return how many bytes the group can still take."""
    folder = Path(GIVEN.group)
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used = int(stat["total_rss"]) + int(stat.get("total_shmem", 0))
    return int((folder / "memory.limit_in_bytes").read_text()) - used


class Filling:
    """Says how many bytes are due now, so that the given part of the room is filled in `fill_seconds`, and then no more.

    It takes at least `LEAST_CALLS` calls, so that a machine that is loaded has as many steps to look at as another one.
    """

    def __init__(self, share: float = 1.0) -> None:
        self.total = GIVEN.ratio * room() * share
        self.begin: float | None = None
        self.done = 0.0
        self.calls = 0

    def due(self, *, levels_off: bool = False) -> int:
        """Return the bytes to add; `levels_off`: ever fewer, never more than the part of the room."""
        now = time.monotonic()
        self.begin = self.begin if self.begin is not None else now
        self.calls += 1
        passed = min((now - self.begin) / GIVEN.fill_seconds, self.calls / LEAST_CALLS)
        wanted = self.total * (1 - np.exp(-passed) if levels_off else passed)
        if GIVEN.ratio <= 1:
            wanted = min(wanted, self.total)
        due = int(max(wanted - self.done, 0))
        self.done += due
        return due


class Samples(Dataset[torch.Tensor]):
    """Random samples; in a worker it may keep what it made."""

    def __init__(self, keeps: str = "", levels_off: bool = False) -> None:
        self.keeps, self.levels_off = keeps, levels_off
        self.kept: list[Any] = []
        self.filling: Filling | None = None

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(STEP_SECONDS / 16)
        if self.keeps:
            self.filling = self.filling or Filling(0.5)
            due = self.filling.due(levels_off=self.levels_off)
            if self.keeps == "bytes":
                self.kept.append(b"x" * due)  # truth: worker_bytes
            elif self.keeps == "arrays":
                self.kept.append(np.ones(due // 8))  # truth: worker_arrays
            elif self.keeps == "objects":
                self.kept.append([float(number) for number in range(due // 40)])  # truth: worker_objects
            else:
                self.kept.append(torch.ones(due // 4))  # truth: worker_tensors
        return torch.randn(WIDTH)


class Train:
    """One training: model, optimizer, and a way of filling memory after each step."""

    def __init__(self, case: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(RANK)
        self.model: Any = torch.nn.Sequential(torch.nn.Linear(WIDTH, 256), torch.nn.ReLU(), torch.nn.Linear(256, WIDTH))
        if WORLD > 1:
            torch.distributed.init_process_group("gloo")
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.case = case
        self.kept: list[Any] = []
        self.total: Any = 0.0
        self.filling = Filling()
        self.step = 0
        kind, _, what = case.partition(":")
        workers = 2 if kind in ("worker", "worker_cache", "clean_workers") else 0
        keeps = what if kind in ("worker", "worker_cache") else ""
        self.loader = DataLoader(Samples(keeps, kind == "worker_cache"), batch_size=8, num_workers=workers)
        self.batches = iter(self.loader)

    def run(self) -> None:
        """Train until the time is over, or the kernel ends it."""
        until = time.monotonic() + GIVEN.seconds
        while time.monotonic() < until or WORLD > 1:
            begin = time.monotonic()
            batch = self.longer(next(self.batches))
            loss = self.model(batch).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.after(loss, batch)
            self.step += 1
            if self.step == 5:
                STARTED.touch()
            time.sleep(max(STEP_SECONDS - (time.monotonic() - begin), 0))
            if WORLD > 1 and self.ended(until):
                break

    def ended(self, until: float) -> bool:
        """Return whether all ranks end: they agree, since a rank that ends alone hangs the others."""
        over = torch.tensor([float(time.monotonic() >= until)])
        torch.distributed.all_reduce(over)
        return bool(over.item())

    def longer(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the batch; of the rank with long sequences one that is longer, and at last far too long."""
        if self.case.startswith("sequences") and RANK == WORLD - 1:
            times = 1 + self.step % 8
            if self.step > 150:
                times = int(GIVEN.ratio * max(room(), 1 << 26) / (batch.shape[0] * 256 * 4))
            return batch.repeat(times, 1)
        if self.case == "clean_sequences":
            return batch.repeat(1 + (self.step * 37) % 400, 1)
        return batch

    def after(self, loss: torch.Tensor, batch: torch.Tensor) -> None:
        kind, _, what = self.case.partition(":")
        if kind == "list":
            self.keep(what, self.filling.due())
        elif kind == "cache":
            self.keep(what, self.filling.due(levels_off=what in ("tensors", "bytes")))
        elif kind == "graph":
            self.keep_graph(self.filling.due())
        elif kind == "shared":
            self.share(what, self.filling.due())
        elif self.case == "clean_saves" and self.step % 50 == 49:
            with tempfile.NamedTemporaryFile() as file:
                torch.save({"model": self.model.state_dict(), "more": torch.ones(4 << 20)}, file)
        elif self.case == "clean_evaluates" and self.step % 40 == 39:
            with torch.no_grad():
                [self.model(torch.randn(20_000, WIDTH)).mean() for _ in range(2)]
        elif self.case == "clean_files" and self.step % 10 == 9:
            read_a_file(self.step)

    def keep(self, what: str, due: int) -> None:
        if what == "bytes":
            self.kept.append(bytearray(due))  # truth: list_bytes
        elif what == "arrays":
            self.kept.append(np.ones(due // 8))  # truth: list_arrays
        elif what == "objects":
            self.kept.append([{"value": float(number)} for number in range(due // 240)])  # truth: list_objects
        else:
            self.kept.append(torch.ones(due // 4))  # truth: list_tensors

    def keep_graph(self, due: int) -> None:
        batch = torch.randn(max(due // (2 * 256 * 4), 1), WIDTH)
        loss = self.model(batch).square().mean()  # truth: graph
        self.total = self.total + loss

    def share(self, what: str, due: int) -> None:
        if what == "blocks":
            name = f"{Path(os.environ['SHARED_FOLDER']).name}-{self.step}"
            block = shared_memory.SharedMemory(name, create=True, size=max(due, 4096))  # truth: shared_blocks
            block.buf[:] = bytes(len(block.buf))
            self.kept.append(block)
        elif what == "files":
            with tempfile.NamedTemporaryFile(dir=os.environ["SHARED_FOLDER"], delete=False) as file:
                file.write(bytes(due))
        else:
            self.kept.append(torch.ones(max(due // 4, 1)).share_memory_())  # truth: shared_tensors


def read_a_file(number: int) -> None:
    """Read a file that this group has not read before, so that its page cache grows to the limit."""
    with contextlib.suppress(OSError):
        path = Path(tempfile.gettempdir()) / f"tachoscope-read-{os.getpid()}"
        path.write_bytes(os.urandom(1 << 20) * 8)
        path.read_bytes()


def neighbour() -> None:
    """No part of the job: a process that fills the group."""
    filling, kept = Filling(), []
    until = time.monotonic() + GIVEN.seconds
    while time.monotonic() < until:
        kept.append(bytearray(b"y" * filling.due()))
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    if GIVEN.case == "neighbour":
        while not STARTED.exists():  # the job computes its first steps
            time.sleep(STEP_SECONDS)
        time.sleep(2.0)
        neighbour()
    else:
        Train(GIVEN.case.removeprefix("beside:")).run()
