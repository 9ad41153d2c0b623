"""A training whose costs are planted: what `python -m benchmarks.advice_followed` runs, before and after it follows the advice.

`ADVICE_CASE` holds the case (see `cases.Case`), `ADVICE_SETTINGS` the settings to follow, both as JSON; `ADVICE_UNITS` the units of
computing in a millisecond, so that both runs compute the same. Rank 0 writes what it measured to `ADVICE_RESULT`.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

CASE: dict[str, Any] = json.loads(os.environ["ADVICE_CASE"])
SETTINGS: dict[str, Any] = json.loads(os.environ["ADVICE_SETTINGS"])
UNITS_A_MILLISECOND = float(os.environ["ADVICE_UNITS"])
SECONDS = float(os.environ["ADVICE_SECONDS"])
WARM_STEPS = 10
SAMPLES = 1_000_000
"""Of an epoch, where the case does not say otherwise: no run gets so far."""


def compute(milliseconds: float) -> None:
    """Compute in the calling thread, on one core."""
    x = torch.full((24, 24), 0.5)
    for _ in range(round(milliseconds * UNITS_A_MILLISECOND)):
        x = (x @ x).clamp(-1, 1)


class Slowly(socketserver.BaseRequestHandler):
    """Answers each byte with one, after the time that the case reads for."""

    def handle(self) -> None:
        while self.request.recv(1):
            time.sleep(CASE["making_ms"] / 1e3)
            self.request.sendall(b"\0")


class Server(socketserver.ThreadingTCPServer):
    """A store of samples, in a process of its own."""

    daemon_threads = True


def serve() -> int:
    """Start the store and return its port."""
    server = Server(("127.0.0.1", 0), Slowly)
    port = int(server.server_address[1])
    parent = os.getpid()
    if os.fork() == 0:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)
    server.socket.close()
    return port


class Making:
    """Makes a batch: sleeps, computes, or asks a server."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: dict[int, socket.socket] = {}

    def __call__(self) -> None:
        how, milliseconds = CASE["how"], CASE["making_ms"]
        if how == "sleep":
            time.sleep(milliseconds / 1e3)
        elif how == "compute":
            compute(milliseconds)
        else:
            if os.getpid() not in self.connections:
                self.connections[os.getpid()] = socket.create_connection(("127.0.0.1", self.port))
            self.connections[os.getpid()].sendall(b"?")
            self.connections[os.getpid()].recv(1)


Batch = tuple[torch.Tensor, torch.Tensor]


def batch_of(number: int) -> Batch:
    """Return a batch of the size of the case, and its number."""
    return torch.zeros(max(CASE["batch_bytes"] // 4, 16)), torch.tensor(number)


class Batches(Dataset[Batch]):
    """A map-style data set whose elements are batches."""

    def __init__(self, make: Callable[[], None]) -> None:
        self.make = make

    def __len__(self) -> int:
        return int(CASE["epoch_batches"] or SAMPLES)

    def __getitem__(self, number: int) -> Batch:
        self.make()
        return batch_of(number)


class Stream(IterableDataset[Batch]):
    """An iterable data set that leaves it to others to divide it among workers."""

    def __init__(self, make: Callable[[], None]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Batch]:
        for number in range(SAMPLES):
            self.make()
            yield batch_of(number)


class DividedStream(Stream):
    """An iterable data set that divides itself."""

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        first, every = (worker.id, worker.num_workers) if worker else (0, 1)
        for number in range(first, SAMPLES, every):
            self.make()
            yield batch_of(number)


DATA_SETS: dict[str, Callable[[Callable[[], None]], Any]] = {"map": Batches, "iterable": Stream, "sharded": DividedStream}


class Net(nn.Module):
    """Computes for as long as the case says, and has as many parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(max(CASE["parameter_bytes"] // 4, 64)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            compute(CASE["rest_ms"])
            if CASE["wide_ms"]:  # on all threads that there are
                for _ in range(round(CASE["wide_ms"])):
                    torch.rand(192, 192) @ torch.rand(192, 192)
        return (self.weight * 1e-3).sum() + x.mean()


class Saving:
    """Saves a checkpoint every so many steps, or as often as is advised."""

    def __init__(self, model: nn.Module, folder: Path) -> None:
        self.model, self.path, self.saved = model, folder / "checkpoint.pt", time.monotonic()
        self.more = torch.zeros(CASE["checkpoint_bytes"] // 4)

    def after(self, step: int) -> None:
        if not CASE["save_every"]:
            return
        interval = SETTINGS.get("checkpoint_interval_seconds")
        due = step % CASE["save_every"] == 0 if interval is None else time.monotonic() - self.saved >= interval
        if due:
            torch.save({"model": self.model.state_dict(), "more": self.more}, self.path)
            self.saved = time.monotonic()


def loader_of(make: Callable[[], None]) -> DataLoader[Batch]:
    """Return the loader with the workers of the case, or those that are advised."""
    workers = int(SETTINGS.get("num_workers", CASE["workers"]))
    persistent = bool(SETTINGS.get("persistent_workers", False)) and workers > 0
    return DataLoader(DATA_SETS[CASE["data_set"]](make), batch_size=None, num_workers=workers, persistent_workers=persistent)


def train(rank: int, port: int, meeting: str) -> None:
    """Train for the time of the case."""
    ranks = int(CASE["ranks"])
    net: nn.Module = Net()
    model = net
    if ranks > 1:
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
        model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    accumulate = int(SETTINGS.get("accumulated_batches", 1))
    with tempfile.TemporaryDirectory() as folder:
        ends, numbers = steps(loader_of(Making(port)), model, optimizer, accumulate, Saving(net, Path(folder)))
    if rank == 0:
        step_seconds = (ends[-1] - ends[WARM_STEPS]) / (len(ends) - 1 - WARM_STEPS)
        again = len(numbers) - len(set(numbers)) if not CASE["epoch_batches"] else 0
        Path(os.environ["ADVICE_RESULT"]).write_text(
            json.dumps({"step_seconds": step_seconds, "batches": len(ends), "again": again})
        )
    if ranks > 1:
        dist.destroy_process_group()


def steps(
    loader: DataLoader[Batch], model: nn.Module, optimizer: torch.optim.Optimizer, accumulate: int, saving: Saving
) -> tuple[list[float], list[int]]:
    """Return when each batch was done, and the numbers of the batches."""
    ends: list[float] = []
    numbers: list[int] = []
    begin = time.monotonic()
    while True:
        for x, number in loader:
            last = (len(ends) + 1) % accumulate == 0
            if isinstance(model, DistributedDataParallel):
                model.require_backward_grad_sync = last  # what no_sync() does
            model(x).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
                saving.after((len(ends) + 1) // accumulate)
            numbers.append(int(number))
            ends.append(time.monotonic())
            if last and len(ends) > 2 * WARM_STEPS and enough(ends[-1] - begin):
                return ends, numbers


def enough(seconds: float) -> bool:
    """Return whether to stop: all ranks at the same step."""
    if not dist.is_initialized():
        return seconds >= SECONDS
    flag = torch.tensor(float(seconds >= SECONDS))
    dist.all_reduce(flag)
    return bool(flag)


def main() -> None:
    """Train with as many processes as the case has ranks."""
    port = serve() if CASE["how"] == "read" else 0
    if CASE["ranks"] == 1:
        train(0, port, "")
        return
    with tempfile.TemporaryDirectory() as folder:
        start_processes(train, (port, f"file://{folder}/meeting"), nprocs=CASE["ranks"], start_method="spawn")


if __name__ == "__main__":
    main()
