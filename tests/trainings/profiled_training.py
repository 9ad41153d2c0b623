"""A training that knows nothing of tachoscope: DDP on CPU, whose loader is slow and loads in the training process. SECONDS"""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset[torch.Tensor]):
    """Samples that take 4 ms each."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, _: int) -> torch.Tensor:
        time.sleep(0.004)
        return torch.randn(64)


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    end = time.monotonic() + float(sys.argv[1])
    for batch in DataLoader(Slow(), batch_size=16):
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()
        if time.monotonic() > end:
            break
    os._exit(0)  # the other rank may be gone


if __name__ == "__main__":
    main()
