"""A DDP training with ten long clean pauses, after which rank 1 hangs: python pausing_ddp.py SECONDS LOG, under torchrun.

Each pause is real for the probe (a slow disk, a slow evaluation, a slow compiler, slow data), and its begin and end are appended
to LOG as a line of JSON: name, Unix seconds, Unix seconds.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import tachoscope

SECONDS, LOG = float(sys.argv[1]), sys.argv[2]
BATCH, BETWEEN = 4, 12
"""Samples of a batch; steps from one pause to the next."""


def pause(name: str) -> None:
    begin = time.time()
    time.sleep(SECONDS)
    with open(LOG, "a") as log:
        log.write(json.dumps([name, begin, time.time()]) + "\n")


class SlowDisk(io.BytesIO):
    """Takes its time for the first write."""

    slow = True

    def write(self, data: Any) -> int:
        if self.slow:
            self.slow = False
            pause("save")
        return super().write(data)


class Samples(Dataset[torch.Tensor]):
    """Of which one is slow to come."""

    def __init__(self, slow: int) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.slow:
            pause("input")
        return torch.randn(8)


def compiler(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph slowly, to itself."""
    pause("compile")
    return graph.forward


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.compile(nn.Linear(8, 8), backend=compiler, dynamic=False)
        self.stands = self.slow = False

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.slow:
            pause("evaluation")
            return inputs
        time.sleep(600 if self.stands else 0.05)
        outputs: torch.Tensor = self.layer(inputs)
        return outputs


def save(net: Net) -> None:
    torch.save(net.state_dict(), SlowDisk())


def evaluate(net: Net) -> None:
    net.eval()
    net.slow = True
    net(torch.randn(BATCH, 8))
    net.slow = False
    net.train()


def evaluate_without_gradients(net: Net) -> None:
    net.slow = True
    with torch.no_grad():
        for inputs in DataLoader(torch.randn(BATCH, 8), batch_size=BATCH):
            net(inputs)
    net.slow = False


def own_checkpoint(_: Net) -> None:
    with tachoscope.phase("checkpoint"):
        pause("own checkpoint")


PAUSES: list[tuple[Callable[[Net], None], tuple[int, ...]]] = [
    (save, (0, 1)),
    (save, (0,)),
    (evaluate, (0, 1)),
    (evaluate_without_gradients, (1,)),
    (own_checkpoint, (1,)),
    (lambda _: pause("between two epochs"), (0, 1)),
]
"""What takes long, and on which ranks; on others than these the next step waits for them."""


def main() -> None:
    dist.init_process_group("gloo")
    rank, net = dist.get_rank(), Net()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pause("warm-up before the first step")
    last = BETWEEN * (len(PAUSES) + 3)
    for step, inputs in enumerate(DataLoader(Samples(slow=BATCH * BETWEEN * (len(PAUSES) + 1)), batch_size=BATCH)):
        number, rest = divmod(step, BETWEEN)
        if not rest and 0 < number <= len(PAUSES) and rank in PAUSES[number - 1][1]:
            PAUSES[number - 1][0](net)
        net.stands = step == last and rank == 1
        given = inputs[:2] if number == len(PAUSES) + 2 else inputs  # another shape: it is compiled again
        loss = model(given).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    os._exit(0)


if __name__ == "__main__":
    main()
