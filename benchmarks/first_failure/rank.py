"""A rank of a small training with one planted fault: torchrun ... rank.py FAULT FOLDER.

The line at which a fault strikes ends with a comment `fault:` and its name: the truth that answers are compared with.
"""

import ctypes
import datetime
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FAULTY = WORLD - 1
"""The rank that is at fault, where it is not rank 0."""
MINE = RANK == FAULTY
STEPS, FAULT_STEP = 14, 6
TIMEOUT_SECONDS = 6.0

if FAULT == "import_error" and MINE:
    import no_such_module_anywhere  # noqa: F401  # fault: import_error
if FAULT == "import_error_everywhere":
    import no_such_module_either  # noqa: F401  # fault: import_error_everywhere

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.elastic.multiprocessing.errors import record  # noqa: E402

torch.set_num_threads(1)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * 8

    def __getitem__(self, index):
        if FAULT == "loader_worker_raises" and MINE and index == FAULT_STEP * 8:
            raise ValueError(f"sample {index} has no label")  # fault: loader_worker_raises
        if FAULT == "loader_worker_killed" and MINE and index == FAULT_STEP * 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((16,), float(index % 7))


def step_fault(step, loss, model):
    """Faults that strike within a step of the rank at fault."""
    if FAULT == "sleeps":
        time.sleep(300)  # fault: sleeps
    elif FAULT == "deadlocked_lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # fault: deadlocked_lock
    elif FAULT == "killed_from_outside":
        subprocess.Popen(["kill", "-9", str(os.getpid())])
        time.sleep(60)
    elif FAULT == "segmentation_fault":
        ctypes.string_at(0)  # fault: segmentation_fault
    elif FAULT == "abort":
        os.abort()  # fault: abort
    elif FAULT == "allocation_fails":
        torch.empty(1 << 46)  # fault: allocation_fails
    elif FAULT == "memory_error":
        bytearray(1 << 60)  # fault: memory_error
    elif FAULT == "not_finite":
        loss = loss * float("nan")
        assert torch.isfinite(loss), f"loss is {loss.item()} in step {step}"  # fault: not_finite
    elif FAULT == "exit_0":
        sys.exit(0)  # fault: exit_0
    elif FAULT == "exit_at_once":
        os._exit(3)  # fault: exit_at_once
    elif FAULT == "caught_then_exit":
        caught_then_exit()
    elif FAULT == "shape_mismatch":
        model(torch.zeros(4, 17))  # fault: shape_mismatch
    elif FAULT == "key_error":
        {"lr": 0.1}["weight_decay"]  # fault: key_error
    elif FAULT == "wrapped_error":
        wrapped_error()
    elif FAULT == "slow_clean_up":
        slow_clean_up()
    elif FAULT == "data_server_refuses":
        socket.create_connection(("127.0.0.1", 1), timeout=5)  # fault: data_server_refuses
    elif FAULT == "command_fails":
        subprocess.run(["false"], check=True)  # fault: command_fails


def caught_then_exit():
    try:
        json.loads("{broken")  # fault: caught_then_exit
    except ValueError:
        traceback.print_exc()
        sys.exit(1)


def wrapped_error():
    try:
        int("seven")  # fault: wrapped_error
    except ValueError as error:
        raise RuntimeError("the training failed") from error


def slow_clean_up():
    """The others give up before this rank is gone."""
    try:
        return 1 // 0  # fault: slow_clean_up
    finally:
        time.sleep(TIMEOUT_SECONDS + 6.0)


def fetch_in_thread(batches):
    for number in range(STEPS):
        if number == FAULT_STEP:
            raise OSError("the bucket is gone")  # fault: prefetch_thread_dies
        batches.put(number)


def save(model):
    if FAULT == "full_disk" and RANK == 0:
        with open("/dev/full", "wb") as file:
            file.write(b"x" * (1 << 20))  # fault: full_disk
            file.flush()
    dist.barrier()


def load():
    if FAULT == "corrupt_checkpoint" and MINE:
        path = FOLDER / "checkpoint.pt"
        path.write_bytes(b"PK\x03\x04 cut off")
        torch.load(path)  # fault: corrupt_checkpoint
    if FAULT == "missing_data" and MINE:
        (FOLDER / "no" / "such" / "shard.tar").open("rb")  # fault: missing_data
    if FAULT == "port_in_use" and RANK == 0:
        held, second = socket.socket(), socket.socket()
        held.bind(("127.0.0.1", 0))
        held.listen()
        second.bind(held.getsockname())  # fault: port_in_use
    dist.barrier()


@record
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS))
    load()
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    workers = 1 if FAULT.startswith("loader_worker") else 0
    loader = torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=workers)
    batches = queue.Queue()
    if FAULT == "prefetch_thread_dies" and MINE:
        threading.Thread(target=fetch_in_thread, args=(batches,), daemon=True).start()
    for step, batch in enumerate(loader):
        if FAULT == "too_few_batches" and MINE and step == FAULT_STEP:
            break
        if FAULT == "prefetch_thread_dies" and MINE:
            batches.get()
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        if MINE and step == FAULT_STEP:
            step_fault(step, loss, model)
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.02)
        if step == FAULT_STEP + 2:
            save(model)


if __name__ == "__main__":
    main()
