"""A DDP training over gloo whose network becomes slower in the middle: rank 0 limits the rate of the loopback then.

unshare -n sh -c 'ip link set lo up
                  exec tachoscope run -- python tests/trainings/network_training.py PORT STEPS [--slow-from STEP]'

Prints the mean seconds of a step before and after.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WIDTH, LAYERS, BATCH = 512, 2, 512
LIMIT = ("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "burst", "256kb", "latency", "400ms", "rate")


def main(rank: int, options: argparse.Namespace) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    net = nn.Sequential(*[part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = TensorDataset(torch.rand(options.steps, BATCH, WIDTH))
    begin, times = time.perf_counter(), []
    for number, (batch,) in enumerate(DataLoader(inputs, batch_size=None)):
        if number == options.slow_from and rank == 0:
            subprocess.run([*LIMIT, options.rate], check=True)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    middle = options.slow_from if options.slow_from > 0 else options.steps // 2
    before, after = times[middle - 1] / middle, (times[-1] - times[middle - 1]) / (options.steps - middle)
    print(f"rank {rank} step before {before:.5f} after {after:.5f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--slow-from", type=int, default=-1)
    parser.add_argument("--rate", default="400mbit")
    given = parser.parse_args()
    mp.spawn(main, (given,), nprocs=2)
