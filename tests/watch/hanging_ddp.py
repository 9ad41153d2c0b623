"""A DDP training that comes to a standstill at step 30 because of rank 1: python hanging_ddp.py HOW, under torchrun.

HOW: stop (by a signal), skip (it does something else meanwhile), lock (it holds Python's lock), omit (it leaves out a collective
and goes on), larger or smaller (its part of a collective is of another size). Of unlike sizes gloo's ring mostly makes an error; it
hangs where both are cut into segments of one length, of a MiB here, but into more of them.
"""

import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

MIB = 1 << 18
"""In numbers of 4 bytes."""
SIZES = {"larger": (6, 12), "smaller": (12, 6), "omit": (6, 0)}
"""MiB that all ranks exchange, and rank 1 at step 30: two segments or four for each of three ranks."""


class Stands(nn.Module):
    """Stands still in its 30th forward pass."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.how, self.count = how, 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.count += 1
        if self.count == 30 and dist.get_rank() == 1:
            if self.how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.how == "skip":
                time.sleep(600)
            elif self.how == "lock":
                ctypes.PyDLL(None).sleep(600)  # a call through PyDLL keeps the interpreter's lock
        time.sleep(0.05)
        outputs: torch.Tensor = self.layer(inputs)
        return outputs


def main() -> None:
    dist.init_process_group("gloo")
    how = sys.argv[1]
    model = DistributedDataParallel(Stands(how))
    apart = dist.new_group()  # in one group what is sent next would be taken for what was left out, and end the job with an error
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs,) in enumerate(DataLoader(TensorDataset(torch.randn(4000, 8)), batch_size=4), start=1):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        size = SIZES.get(how, (0, 0))[step == 30 and dist.get_rank() == 1]
        if size:
            dist.all_reduce(torch.zeros(MIB * size), group=apart)
        optimizer.step()


if __name__ == "__main__":
    main()
