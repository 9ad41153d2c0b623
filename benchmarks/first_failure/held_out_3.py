"""A rank of a small training with a planted fault of the third held-out set: torchrun ... held_out_3.py FAULT FOLDER.

As in `rank.py`, the line at which a fault strikes ends with a comment `fault:` and its name.
"""

import asyncio
import datetime
import faulthandler
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MINE = RANK == WORLD - 1
STEPS, FAULT_STEP, BATCH = 14, 6, 8
TIMEOUT_SECONDS, WATCHDOG_SECONDS = 6.0, 4.0

torch.set_num_threads(1)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        if FAULT == "worker_exits" and MINE and index == FAULT_STEP * BATCH:
            os._exit(4)  # fault: worker_exits
        return torch.full((16,), float(index % 7))


def tokenize(text):
    if not text:
        raise ValueError("document 3 is empty")  # fault: pool_process_raises
    return len(text)


async def upload(part):
    await asyncio.sleep(0.01 * part)
    if part == 2:
        raise ConnectionAbortedError("the server of the bucket went away")  # fault: async_task_raises
    await asyncio.sleep(1.0)


async def upload_all():
    async with asyncio.TaskGroup() as group:
        for part in range(4):
            group.create_task(upload(part))


def step_fault():
    """Faults that strike within a step of the rank at fault."""
    if FAULT == "one_barrier_more":
        dist.barrier()  # fault: one_barrier_more
    elif FAULT == "traceback_later_exits":
        time.sleep(60)  # fault: traceback_later_exits
    elif FAULT == "cpu_limit":
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + 1, used + 100))
        while True:
            pass
    elif FAULT == "stopped_by_signal":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif FAULT == "pool_process_raises":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(tokenize, ["a", "b", "", "c"])
    elif FAULT == "async_task_raises":
        asyncio.run(upload_all())


@record
def main():
    if FAULT == "no_rendezvous" and MINE:
        subprocess.run(["sleep", "60"], check=True)  # fault: no_rendezvous
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = torch.utils.data.DataLoader(Samples(), batch_size=BATCH, num_workers=1 if FAULT == "worker_exits" else 0)
    for step, batch in enumerate(loader):
        if FAULT == "traceback_later_exits" and step > 1:
            faulthandler.dump_traceback_later(WATCHDOG_SECONDS, exit=True)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        if MINE and step == FAULT_STEP:
            step_fault()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.02)


if __name__ == "__main__":
    main()
