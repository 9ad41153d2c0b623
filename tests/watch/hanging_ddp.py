"""A DDP training that comes to a standstill because of rank 1: python hanging_ddp.py HOW [STEP [SECONDS]], under torchrun.

HOW: stop (by a signal), skip (it does something else meanwhile), lock (it holds Python's lock), omit (it leaves out a collective
and goes on), larger or smaller (its part of a collective is of another size), deadlock (two threads wait for each other's lock),
pipe (it writes into a full pipe), mount (it reads from `$SLOW_MOUNT`, which never answers: state D), file_lock (it waits for the
lock of a file), worker (a loader worker sleeps), worker_stop, worker_lock (it is stopped, or waits for a lock of its own), between
(it sleeps between two steps), between_lock, between_child (it waits there for its own lock, or for a process that waits for it).
Of unlike sizes gloo's ring mostly makes an error; it hangs where both are cut into segments of one length, of a MiB here, but into
more of them. STEP: at which, 30; SECONDS: that a step takes, 0.05. Each stands in a function of its own, `stand_by_HOW`.
"""

import ctypes
import fcntl
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.control_plane import worker_main
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

MIB = 1 << 18
"""In numbers of 4 bytes."""
SIZES = {"larger": (6, 12), "smaller": (12, 6), "omit": (6, 0)}
"""MiB that all ranks exchange, and rank 1 at the step: two segments or four for each of three ranks."""
BATCH = 4
HOW = sys.argv[1]
AT_STEP = int(sys.argv[2]) if len(sys.argv) > 2 else 30
STEP_SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 0.05


def stand_by_stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stand_by_skip() -> None:
    time.sleep(600)


def stand_by_lock() -> None:
    ctypes.PyDLL(None).sleep(600)  # a call through PyDLL keeps the interpreter's lock


def stand_by_deadlock() -> None:
    first, second = threading.Lock(), threading.Lock()

    def other() -> None:
        with second:
            time.sleep(0.2)
            with first:
                pass

    with first:
        threading.Thread(target=other, daemon=True).start()
        time.sleep(0.1)
        with second:
            pass


def stand_by_pipe() -> None:
    _, end = os.pipe()
    while True:
        os.write(end, bytes(65536))


def stand_by_mount() -> None:
    with open(os.path.join(os.environ["SLOW_MOUNT"], "data"), "rb") as file:
        file.read(4096)


def stand_by_file_lock() -> None:
    with tempfile.NamedTemporaryFile() as file:
        holder = os.open(file.name, os.O_RDWR)
        fcntl.flock(holder, fcntl.LOCK_EX)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)


IN_FORWARD: dict[str, Callable[[], None]] = {
    "stop": stand_by_stop,
    "skip": stand_by_skip,
    "lock": stand_by_lock,
    "deadlock": stand_by_deadlock,
    "pipe": stand_by_pipe,
    "mount": stand_by_mount,
    "file_lock": stand_by_file_lock,
}


class Stands(nn.Module):
    """Stands still in its forward pass at the step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.count = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if self.count == AT_STEP and dist.get_rank() == 1 and HOW in IN_FORWARD:
            IN_FORWARD[HOW]()
        time.sleep(STEP_SECONDS)
        outputs: torch.Tensor = self.layer(inputs)
        return outputs


def stand_by_worker() -> None:
    time.sleep(600)


def stand_by_worker_stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stand_by_worker_lock() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


IN_A_WORKER: dict[str, Callable[[], None]] = {
    "worker": stand_by_worker,
    "worker_stop": stand_by_worker_stop,
    "worker_lock": stand_by_worker_lock,
}


class Samples(Dataset[torch.Tensor]):
    """Of which the loader worker that makes the step's batch stands still, on rank 1."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if HOW in IN_A_WORKER and index == AT_STEP * BATCH and os.environ["RANK"] == "1":
            IN_A_WORKER[HOW]()
        return torch.randn(8)


def stand_by_between() -> None:
    time.sleep(600)


def stand_by_between_lock() -> None:
    lock = threading.Lock()
    with lock, lock:
        pass


def stand_by_between_child() -> None:
    reads, _ = os.pipe()
    if not (child := os.fork()):
        os.read(reads, 1)  # of a pipe that both have open
    os.waitpid(child, 0)


BETWEEN: dict[str, Callable[[], None]] = {
    "between": stand_by_between,
    "between_lock": stand_by_between_lock,
    "between_child": stand_by_between_child,
}


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Stands())
    apart = dist.new_group()  # in one group what is sent next would be taken for what was left out, and end the job with an error
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(), batch_size=BATCH, num_workers=2 if HOW in IN_A_WORKER else 0)
    for step, inputs in enumerate(loader, start=1):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        size = SIZES.get(HOW, (0, 0))[step == AT_STEP and dist.get_rank() == 1]
        if size:
            dist.all_reduce(torch.zeros(MIB * size), group=apart)
        optimizer.step()
        if HOW in BETWEEN and step == AT_STEP and dist.get_rank() == 1:
            BETWEEN[HOW]()


if __name__ == "__main__":
    with worker_main():  # serves at `$TORCH_WORKER_SERVER_SOCKET`, if that is set
        main()
