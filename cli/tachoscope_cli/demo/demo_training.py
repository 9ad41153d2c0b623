"""The demo's training script: a small sequence classifier, DDP over gloo on CPU, real files through `DataLoader`, and a real fault.

Knows nothing of the probe: it is watched as any user's script is. Each step computes for about 170 ms, so that on a clean run
exposed synchronisation (about 2 ms with gloo on loopback) and reading stay far below 5 % of it each.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from tachoscope_cli.demo.checkpoints import Checkpoints
from tachoscope_cli.demo.compiling import LengthPenalty
from tachoscope_cli.demo.faults import FAULTS
from tachoscope_cli.demo.leak import start_leak
from tachoscope_cli.demo.profile import PROFILED_STEPS, WARM_UP_STEPS, first_profiled

SLOW_SECONDS = 0.08
STRAGGLER_SECONDS = 0.15
"""Of input_straggler: on a slow machine, where a step takes 440 ms, 80 ms of one rank are less than a warning is given for."""
BATCH, SEQUENCE, FEATURES, HIDDEN, CLASSES = 32, 320, 32, 192, 10
SAMPLE_BYTES = SEQUENCE * FEATURES * 4
FILES = 192
CHECKPOINT_BYTES = 512 << 20
SLOW_RANK = 1


class Sequences(Dataset[tuple[torch.Tensor, int]]):  # type: ignore[misc]  # torch is untyped here
    """Samples from files, one file a sample; `read` says how its bytes are got."""

    def __init__(self, directory: Path, read: Callable[[Path], bytes]) -> None:
        self.paths = sorted(directory.glob("*.f32"))
        self.read = read

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        data = bytearray(self.read(self.paths[index]))
        return torch.frombuffer(data, dtype=torch.float32).view(SEQUENCE, FEATURES), index % CLASSES


class Classifier(nn.Module):  # type: ignore[misc]
    """A GRU and a linear layer: many multiplications for each weight, so that little has to be exchanged.

    The mean over the sequence is classified, not its last value: gradients that fade over 320 steps become denormal numbers, with
    which some processors multiply ten times as slowly.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(FEATURES, hidden, batch_first=True)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, inputs: torch.Tensor) -> Any:
        """Return the class scores, shape (batch, classes), for inputs of shape (batch, sequence, features)."""
        return self.head(self.gru(inputs)[0].mean(1))


def write_data(directory: Path, *, compressed: bool) -> None:
    """Write the data set: normal numbers, optionally compressed."""
    for index in range(FILES):
        generator = torch.Generator().manual_seed(index)
        data = torch.randn(SEQUENCE, FEATURES, generator=generator).numpy().tobytes()
        (directory / f"{index:05d}.f32").write_bytes(zlib.compress(data) if compressed else data)


def reader(
    fault: str, rank: int, directory: Path, slow_seconds: float = SLOW_SECONDS, only_while: Path | None = None
) -> Callable[[Path], bytes]:
    """Return how a sample's bytes are read under a fault.

    Args:
        slow_seconds: that a batch takes longer. only_while: a read is slow only while this file exists.
    """
    per_sample = slow_seconds / BATCH
    if fault == "input_workers" or (fault == "input_straggler" and rank == SLOW_RANK):
        return lambda path: slowly(path, per_sample) if only_while is None or only_while.exists() else path.read_bytes()
    if fault == "input_preprocess":
        data = next(directory.glob("*.f32")).read_bytes()
        begin = time.thread_time()
        zlib.decompress(data)
        repeats = max(1, round(per_sample / (time.thread_time() - begin)))
        return lambda path: decompress(path, repeats)
    if fault == "input_fetch":
        port = serve_slowly(SAMPLE_BYTES / per_sample)
        return lambda path: fetch(path, port)
    return Path.read_bytes


def slowly(path: Path, seconds: float) -> bytes:
    """Read a file and sleep, as a request to a far store does that is answered late."""
    time.sleep(seconds)
    return path.read_bytes()


def decompress(path: Path, repeats: int) -> bytes:
    """Read and decompress a file, several times over to stand for an expensive decoder."""
    data = path.read_bytes()
    for _ in range(repeats):
        plain = zlib.decompress(data)
    return plain


def fetch(path: Path, port: int) -> bytes:
    """Get a file's bytes from the server of `serve_slowly`."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{path}\n".encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def serve_slowly(bytes_per_second: float) -> int:
    """Start a file server, in a process of its own, that sends no faster than that; return its port."""
    server = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(server, bytes_per_second), daemon=True)
    process.start()
    return int(server.getsockname()[1])


def _serve(server: socket.socket, bytes_per_second: float) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            data = Path(connection.makefile().readline().strip()).read_bytes()
            time.sleep(len(data) / bytes_per_second)
            connection.sendall(data)


def compute(seconds: float) -> None:
    """Multiply matrices for that long."""
    matrix = torch.randn(64, 64)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        matrix = torch.tanh(matrix @ matrix)


_SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1_000_000): pass"


def contend_for_core() -> list[subprocess.Popen[bytes]]:
    """Pin this process to a core and start two others there that never rest, until this process is gone."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(2)]


def save(path: Path) -> None:
    """Save a large state so that it survives a crash."""
    with path.open("wb") as file:
        torch.save({"state": torch.zeros(CHECKPOINT_BYTES // 4)}, file)
        file.flush()
        os.fsync(file.fileno())


class Profiled:
    """`PROFILED_STEPS` steps in the middle under torch's profiler; what it recorded is written when all steps are done."""

    def __init__(self, steps: int, folder: Path | None) -> None:
        self._first, self._folder, self._done = first_profiled(steps), folder, 0
        self._profiler: Any = None
        if folder is not None:  # the first profiler of a process takes seconds to start, some of them after `start`
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
                torch.zeros(1)

    def step_ended(self) -> None:
        """Start, go on or stop; called after each step."""
        if self._folder is None:
            return
        self._done += 1
        began = self._first - WARM_UP_STEPS - 1
        if self._done == began:
            active = torch.profiler.schedule(wait=0, warmup=WARM_UP_STEPS, active=PROFILED_STEPS, repeat=1)
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=active)
            self._profiler.start()
        elif began < self._done < self._first + PROFILED_STEPS:
            self._profiler.step()

    def write(self, rank: int) -> None:
        """Write the trace with torch's own exporter."""
        if self._folder is not None:
            self._folder.mkdir(exist_ok=True)
            self._profiler.export_chrome_trace(str(self._folder / f"rank-{rank}.json.gz"))


def train(
    fault: str,
    steps: int,
    directory: Path,
    slow_seconds: float,
    only_while: Path | None,
    traces: Path | None = None,
    save_seconds: float | None = None,
    leak_bytes_per_second: float | None = None,
) -> None:
    """Train; one call a rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        write_data(directory, compressed=fault == "input_preprocess")
    dist.barrier()
    data = Sequences(directory, reader(fault, rank, directory, slow_seconds, only_while))
    sampler: DistributedSampler[tuple[torch.Tensor, int]] = DistributedSampler(data)
    tiny = fault == "comm_exposed"
    loader = DataLoader(data, batch_size=1 if tiny else BATCH, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Flatten(), nn.Linear(SEQUENCE * FEATURES, CLASSES)) if tiny else Classifier(HIDDEN)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    garbage: list[Any] = []
    if fault == "host_pause":
        garbage = [[index] for index in range(2_000_000)]
    profiled = Profiled(steps, traces)
    checkpoints = Checkpoints(directory, model, save_seconds if rank == 0 else None)
    start_leak(leak_bytes_per_second, only_while)
    penalty = LengthPenalty(only_while) if fault == "recompilation" else None
    spinners = contend_for_core() if fault == "cpu_contention" and rank == SLOW_RANK else []
    dist.barrier()
    step = epoch = 0
    while step < steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            if penalty is not None:
                loss = loss + penalty()
            if fault == "compute_straggler" and rank == SLOW_RANK and (only_while is None or only_while.exists()):
                compute(slow_seconds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if fault == "checkpoint_stall" and rank == 0 and step % 10 == 0:
                save(directory / "checkpoint.pt")
            if fault == "host_pause" and step % 5 == 0:
                gc.collect()
            if fault == "unknown":
                time.sleep(SLOW_SECONDS)
            profiled.step_ended()
            checkpoints.step_ended(step)
            if step == steps:
                break
    profiled.write(rank)
    garbage.clear()
    for spinner in spinners:
        spinner.kill()
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--data", type=Path, required=True, help="empty folder for data and checkpoint")
    parser.add_argument("--slow-seconds", type=float, help="for input_* and compute_straggler: extra seconds of a step")
    parser.add_argument(
        "--fault-while",
        type=Path,
        metavar="FILE",
        help="for input_*, compute_straggler, recompilation and leaks: the fault lasts while this file exists",
    )
    parser.add_argument(
        "--save-seconds", type=float, help="save a checkpoint at this interval; a failed save is reported, and training continues"
    )
    parser.add_argument("--leak-bytes-per-second", type=float, help="memory that is kept, and freed once --fault-while is gone")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="profile steps in the middle, and write the traces there")
    options = parser.parse_args()
    slow_seconds = options.slow_seconds or (STRAGGLER_SECONDS if options.fault == "input_straggler" else SLOW_SECONDS)
    train(
        options.fault,
        options.steps,
        options.data,
        slow_seconds,
        options.fault_while,
        options.traces,
        options.save_seconds,
        options.leak_bytes_per_second,
    )


if __name__ == "__main__":
    main()
