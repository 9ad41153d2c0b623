"""A DDP training that pauses once, on one rank for which the other waits, and then goes on and ends:

    python pausing_one_rank_ddp.py NUMBER SECONDS LOG STEP        # under torchrun

NUMBER: which of the pauses below. Its begin and end are appended to LOG as a line of JSON: name, Unix seconds, Unix seconds.
`$SLOW_MOUNT`: a file system that answers reads late; without it that pause is a sleep in the loader.
"""

import fcntl
import gc
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

NUMBER, SECONDS, LOG, AT_STEP = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], int(sys.argv[4])
BATCH, AFTER, STEP_SECONDS = 4, 30, 0.1
"""Samples of a batch; steps after the pause; what a step takes."""


def pause(name: str, do: Callable[[], object]) -> None:
    begin = time.time()
    do()
    with open(LOG, "a") as log:
        log.write(json.dumps([name, begin, time.time()]) + "\n")


def sleep() -> None:
    time.sleep(SECONDS)


def sleep_in_thread() -> None:
    """Wait for a thread of this process, which waits for what does not show."""
    thread = threading.Thread(target=sleep)
    thread.start()
    thread.join()


def compute() -> None:
    """Use a core, as a tokenizer or a metric does."""
    until = time.monotonic() + SECONDS
    data = bytes(4096)
    while time.monotonic() < until:
        hashlib.sha256(data).digest()


def compute_elsewhere() -> None:
    """Have another process compute, as compilers of torch do."""
    subprocess.run([sys.executable, "-c", f"import time\nend = time.time() + {SECONDS}\nwhile time.time() < end: pass"], check=True)


def wait_for_network() -> None:
    """Wait for an answer of another machine, as for a reward model."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = server.accept()
        time.sleep(SECONDS)
        connection.sendall(b"1")
        connection.close()

    threading.Thread(target=answer, daemon=True).start()
    with socket.create_connection(server.getsockname()) as client:
        client.recv(1)
    server.close()


def outside(program: str) -> str:
    """Start a process that is none of the job's, and return the first line that it prints."""
    start = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)"
    with subprocess.Popen([sys.executable, "-c", start, program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        line = running.stdout.readline().strip()
        running.stdout.close()
    return line


SERVER = f"""
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
end = time.monotonic() + {SECONDS}
"""
SLOW_DOWNLOAD = f"""{SERVER}
while time.monotonic() < end:
    connection.sendall(bytes(1024))
    time.sleep(1)
"""
SLOW_UPLOAD = f"""{SERVER}
time.sleep({SECONDS})
while connection.recv(1 << 20):
    pass
"""
HOLDER = """
import fcntl, sys, time
file = open({path!r}, "w")
fcntl.{call}(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep({seconds})
"""


def download() -> None:
    with socket.create_connection(("127.0.0.1", int(outside(SLOW_DOWNLOAD)))) as client:
        while client.recv(1 << 16):
            pass


def upload() -> None:
    with socket.create_connection(("127.0.0.1", int(outside(SLOW_UPLOAD)))) as client:
        client.sendall(bytes(64 << 20))


def download_in_thread() -> None:
    thread = threading.Thread(target=download)
    thread.start()
    thread.join()


def wait_for_lock(call: str) -> None:
    """Wait for the lock of a file that a process of another job holds."""
    with tempfile.NamedTemporaryFile() as file:
        outside(HOLDER.format(path=file.name, call=call, seconds=SECONDS))
        getattr(fcntl, call)(file.fileno(), fcntl.LOCK_EX)


def wait_for_flock() -> None:
    wait_for_lock("flock")


def wait_for_lockf() -> None:
    wait_for_lock("lockf")


def read_slow_file() -> None:
    mount = os.environ.get("SLOW_MOUNT")
    if mount is None:
        sleep()
        return
    with open(os.path.join(mount, "data"), "rb") as file:
        file.read(4096)


def write_slowly() -> None:
    """Write a checkpoint by hand, in pieces, to a slow disk."""
    with tempfile.TemporaryFile() as file:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            file.write(bytes(1 << 20))
            time.sleep(0.2)


def collect_garbage() -> None:
    until = time.monotonic() + SECONDS
    kept = [[number] for number in range(500_000)]
    while time.monotonic() < until:
        gc.collect()
    del kept


BEFORE: dict[int, tuple[str, Callable[[], None]]] = {
    1: ("first checkpoint, by hand", write_slowly),
    2: ("upload between two steps", sleep),
    3: ("first evaluation, by hand", compute),
    4: ("garbage collection", collect_garbage),
    12: ("upload over a socket", upload),
    13: ("compiler in another process between two steps", compute_elsewhere),
    14: ("file lock of another job between two steps", wait_for_lockf),
}
"""Between two steps."""
INPUT: dict[int, tuple[str, Callable[[], None]]] = {
    5: ("download of data", sleep),
    6: ("slow file system", read_slow_file),
    7: ("tokenizer", compute),
    11: ("sleep by a thread of a loader worker", sleep_in_thread),
    15: ("download over a socket by a loader worker", download),
    16: ("download over a socket by a thread of a loader worker", download_in_thread),
}
IN_A_WORKER = {11, 15, 16}
FORWARD: dict[int, tuple[str, Callable[[], None]]] = {
    8: ("compiler in other processes", compute_elsewhere),
    9: ("answer of a reward model", wait_for_network),
    10: ("a step that computes for long", compute),
    17: ("file lock of another job", wait_for_flock),
}


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == AT_STEP * BATCH and NUMBER in INPUT and os.environ["RANK"] == "1":
            pause(*INPUT[NUMBER])
        return torch.randn(8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.pause: tuple[str, Callable[[], None]] | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.pause is not None:
            pause(*self.pause)
        time.sleep(STEP_SECONDS)
        outputs: torch.Tensor = self.layer(inputs)
        return outputs


def main() -> None:
    dist.init_process_group("gloo")
    rank, net = dist.get_rank(), Net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, inputs in enumerate(DataLoader(Samples(), batch_size=BATCH, num_workers=2 if NUMBER in IN_A_WORKER else 0)):
        if step > AT_STEP + AFTER:
            break
        pauses = step == AT_STEP and rank == 1
        if pauses and NUMBER in BEFORE:
            pause(*BEFORE[NUMBER])
        net.pause = FORWARD.get(NUMBER) if pauses else None
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
