"""A DDP training of which rank 1 comes to a standstill at step 30: python hanging_ddp.py stop|skip|lock, under torchrun."""

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
            else:
                ctypes.PyDLL(None).sleep(600)  # a call through PyDLL keeps the interpreter's lock
        time.sleep(0.05)
        outputs: torch.Tensor = self.layer(inputs)
        return outputs


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Stands(sys.argv[1]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for (inputs,) in DataLoader(TensorDataset(torch.randn(4000, 8)), batch_size=4):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
