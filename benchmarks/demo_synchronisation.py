"""What synchronisation costs the demo's model on a clean run: steps with DDP's exchange against steps under `no_sync`.

torchrun --standalone --nproc-per-node 2 benchmarks/demo_synchronisation.py
"""

from __future__ import annotations

import contextlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

from tachoscope_cli.demo.demo_training import BATCH, CLASSES, FEATURES, HIDDEN, SEQUENCE, Classifier

PAIRS, BLOCK = 15, 4


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(Classifier(HIDDEN))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(BATCH, SEQUENCE, FEATURES), torch.randint(0, CLASSES, (BATCH,))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(PAIRS):
        for synchronised in (True, False) if pair % 2 else (False, True):
            for _ in range(BLOCK):
                begin = time.perf_counter()
                with contextlib.nullcontext() if synchronised else model.no_sync():
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(inputs), labels).backward()
                    optimizer.step()
                seconds[synchronised].append(time.perf_counter() - begin)
    if dist.get_rank() == 0:
        for name, of in (("median", statistics.median), ("mean", statistics.fmean)):
            with_exchange, without = of(seconds[True]), of(seconds[False])
            share = 1 - without / with_exchange
            print(f"{name} step {with_exchange * 1e3:.1f} ms, under no_sync {without * 1e3:.1f} ms: {share:.1%} of the step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
