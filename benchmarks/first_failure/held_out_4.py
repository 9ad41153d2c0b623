"""A rank of a small training with a planted fault of the fourth held-out set: torchrun ... held_out_4.py FAULT FOLDER.

As in `rank.py`, the line at which a fault strikes ends with a comment `fault:` and its name.
"""

import atexit
import concurrent.futures
import ctypes
import datetime
import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MINE = RANK == WORLD - 1
STEPS, FAULT_STEP, BATCH = 14, 6, 8
TIMEOUT_SECONDS = 6.0

torch.set_num_threads(1)


class Samples(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(STEPS * BATCH):
            if FAULT == "stream_ends_in_generator" and MINE and number == FAULT_STEP * BATCH:
                next(iter(()))  # fault: stream_ends_in_generator
            yield torch.full((16,), float(number % 7))


def on_alarm(number, frame):
    raise TimeoutError("the batch took longer than 1 s")  # fault: alarm_raises


def tokenize_shards(lines):
    for line in lines.get():
        lines.put(line.upper())


def decode(index):
    if index == 3:
        raise OSError(f"image {index} is truncated")  # fault: pool_thread_raises
    return index


def crash_at_exit():
    ctypes.string_at(0)  # fault: crash_at_exit


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        return inputs * 2

    @staticmethod
    def backward(context, gradient):
        raise NotImplementedError("no gradient of Double")  # fault: own_function_has_no_backward


def step_fault(loss):
    """Faults that strike within a step of the rank at fault; return the loss."""
    if FAULT == "alarm_raises":
        signal.signal(signal.SIGALRM, on_alarm)
        signal.alarm(1)
        time.sleep(60)
    elif FAULT == "child_left_without_a_word":
        lines = multiprocessing.get_context("fork").Queue()
        multiprocessing.get_context("fork").Process(target=sys.exit, args=(0,), daemon=True).start()
        lines.get()  # fault: child_left_without_a_word
    elif FAULT == "pool_thread_raises":
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(decode, range(8)))
    elif FAULT == "crash_at_exit":
        atexit.register(crash_at_exit)
        sys.exit(0)
    elif FAULT == "own_function_has_no_backward":
        return Double.apply(loss)
    elif FAULT == "condition_is_never_notified":
        with (ready := threading.Condition()):
            ready.wait_for(lambda: False)  # fault: condition_is_never_notified
    elif FAULT == "object_of_broadcast_is_none":
        config = [{"lr": 0.1}] if RANK == 0 else [None]
        config[0]["lr"] *= 0.5  # fault: object_of_broadcast_is_none
    return loss


@record
def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_SECONDS))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for step, batch in enumerate(torch.utils.data.DataLoader(Samples(), batch_size=BATCH)):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        if MINE and step == FAULT_STEP:
            loss = step_fault(loss)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.02)


if __name__ == "__main__":
    main()
