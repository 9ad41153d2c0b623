"""A training on two ranks whose fault comes with the data or from another thread.

python tests/trainings/uneven_training.py FAULT STEPS, where FAULT is `lengths` (each rank draws the length of each batch), `held`
(a thread of rank 1 holds the interpreter's lock in native code), `flip` (a bit of a parameter of rank 1 flips after
step 25), `none`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

import tachoscope

LENGTH, HELD_SECONDS, EVERY_SECONDS = 60, 0.12, 0.35


class Batches(IterableDataset):
    def __init__(self, steps: int, rank: int, uneven: bool) -> None:
        self.steps, self.rank, self.uneven = steps, rank, uneven

    def __iter__(self):
        dice = torch.Generator().manual_seed(self.rank)
        for _ in range(self.steps):
            factor = float(torch.randn((), generator=dice).mul(0.4).exp()) if self.uneven else 1.0
            yield torch.rand(16, max(8, round(LENGTH * factor)), 16)


def hold(stop: threading.Event) -> None:
    library = ctypes.PyDLL(None)
    while not stop.wait(EVERY_SECONDS):
        library.usleep(round(HELD_SECONDS * 1e6))


def main(rank: int, fault: str, steps: int) -> None:
    torch.set_num_threads(1)
    meeting = f"{os.getcwd()}/rendezvous-{os.getppid()}"  # no port: another process may have taken it
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.GRU(16, 64, batch_first=True)
    model = DistributedDataParallel(net)
    tachoscope.integrity(model, every=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    stop = threading.Event()
    if fault == "held" and rank == 1:
        threading.Thread(target=hold, args=(stop,), daemon=True).start()
    for step, x in enumerate(DataLoader(Batches(steps, rank, fault == "lengths"), batch_size=None), start=1):
        for _ in range(400 if fault == "held" else 0):  # Python between operators, where the lock is needed
            x = x.mul(1.0)
        optimizer.zero_grad()
        model(x)[0].square().mean().backward()
        optimizer.step()
        if fault == "flip" and rank == 1 and step == 25:
            net.weight_hh_l0.data.view(torch.int32)[3, 3] ^= 1 << 20
    stop.set()
    time.sleep(HELD_SECONDS)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (sys.argv[1], int(sys.argv[2])), nprocs=2)
