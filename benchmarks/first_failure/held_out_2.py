"""A rank of a small training with a planted fault of the second held-out set: torchrun ... held_out_2.py FAULT FOLDER.

As in `rank.py`, the line at which a fault strikes ends with a comment `fault:` and its name.
"""

import concurrent.futures
import ctypes
import datetime
import faulthandler
import logging
import mmap
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch.distributed.elastic.multiprocessing.errors import record

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MINE = RANK == WORLD - 1
STEPS, FAULT_STEP, BATCH = 14, 6, 8
TIMEOUT_SECONDS, WATCHDOG_SECONDS = 6.0, 3.0

torch.set_num_threads(1)
latest_step = [time.monotonic()]


class Shards(torch.utils.data.IterableDataset):
    """Rows of two columns; in one shard of the rank at fault a column has another name."""

    def __iter__(self):
        for index in range(STEPS * BATCH):
            renamed = FAULT == "schema_error_in_shard" and MINE and index == FAULT_STEP * BATCH
            row = {"tokens" if renamed else "input_ids": [float(index % 7)] * 16}
            if FAULT == "bus_error_in_worker" and MINE and index == FAULT_STEP * BATCH:
                read_beyond_the_end()
            yield torch.tensor(row["input_ids"])  # fault: schema_error_in_shard


def read_beyond_the_end():
    """Touch a page of a mapping whose file was cut: the signal that a full /dev/shm ends a worker with."""
    path = FOLDER / "shared"
    path.write_bytes(b"\0" * (1 << 16))
    with path.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 1 << 16)
        file.truncate(0)
    mapping[1 << 15]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)
        self.calls = 0

    def block(self, hidden):
        self.calls += 1
        if FAULT == "recompute_asserts" and MINE and self.calls == 2 * FAULT_STEP:
            assert hidden.shape[0] == 17, f"a block of {hidden.shape[0]} rows"  # fault: recompute_asserts
        return torch.relu(self.first(hidden))

    def forward(self, batch):
        if FAULT == "last_batch_is_smaller":
            batch = batch.view(BATCH, 16)  # fault: last_batch_is_smaller
        if FAULT == "recompute_asserts":
            return self.second(torch.utils.checkpoint.checkpoint(self.block, batch, use_reentrant=False))
        return self.second(self.block(batch))


def leak_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    leaked = []
    while True:
        leaked.append(os.open("/dev/null", os.O_RDONLY))  # fault: too_many_open_files


def stop_early(_):
    print("loss did not fall, stopping", file=sys.stderr)
    sys.exit(3)  # fault: exit_in_hook


def crash():
    ctypes.string_at(0)  # fault: crash_in_thread


def decode(index):
    if index == 3:
        raise ValueError(f"image {index} is truncated")  # fault: pool_task_raises
    return index


def report_metrics():
    """What a tracker of experiments does while its server is away."""
    try:
        urllib.request.urlopen("http://127.0.0.1:1/api/files/stream", timeout=5)
    except OSError:
        logging.exception("could not upload metrics, continuing")


def watch():
    """A user's own watchdog, in each rank."""
    while time.monotonic() - latest_step[0] < WATCHDOG_SECONDS:
        time.sleep(0.1)
    print(f"rank {RANK}: no step for {WATCHDOG_SECONDS} s, aborting", file=sys.stderr, flush=True)
    os._exit(70)


def step_fault(model, loss):
    """Faults that strike within a step of the rank at fault."""
    if FAULT == "too_many_open_files":
        leak_files()
    elif FAULT == "terminated_from_outside":
        subprocess.Popen(["kill", "-TERM", str(os.getpid())])
        time.sleep(60)
    elif FAULT == "exit_in_hook":
        model.first.weight.register_post_accumulate_grad_hook(stop_early)
        loss.backward()
    elif FAULT == "crash_in_thread":
        thread = threading.Thread(target=crash)
        thread.start()
        thread.join()
    elif FAULT == "receives_what_nobody_sends":
        dist.recv(torch.zeros(16), src=0)  # fault: receives_what_nobody_sends
    elif FAULT == "logged_error_before":
        raise ValueError("label 1000 is out of range")  # fault: logged_error_before
    elif FAULT == "user_watchdog":
        time.sleep(60)  # fault: user_watchdog
    elif FAULT == "pool_task_raises":
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(decode, range(8)))


@record
def main():
    logging.basicConfig()
    if FAULT == "crash_in_thread":
        faulthandler.enable((FOLDER / f"faults_{RANK}").open("w"))
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS))
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Shards(), batch_size=BATCH, num_workers=1 if FAULT in IN_WORKER else 0)
    if FAULT == "user_watchdog":
        latest_step[0] = time.monotonic() + 20.0
        threading.Thread(target=watch, daemon=True).start()
    for step, batch in enumerate(loader):
        if FAULT == "last_batch_is_smaller" and MINE and step == STEPS - 1:
            batch = batch[:3]
        if FAULT == "logged_error_before" and step == 2:
            report_metrics()
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        if MINE and step == FAULT_STEP:
            step_fault(model, loss)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        latest_step[0] = time.monotonic()
        time.sleep(0.02)


IN_WORKER = ("schema_error_in_shard", "bus_error_in_worker")

if __name__ == "__main__":
    main()
