"""Tensor parallel training of a small MLP: each layer's columns and rows are split over two ranks, data over the others.

torchrun --standalone --nproc-per-node 4 examples/tensor_parallel.py --steps 60
tachoscope run --job tensor -- torchrun --standalone --nproc-per-node 4 examples/tensor_parallel.py

With `tachoscope.describe(layout=...)` the report tells what tensor and data groups cost apart; without tachoscope it trains alike.
"""

from __future__ import annotations

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TENSOR_RANKS = 2


class _Sum(torch.autograd.Function):
    """The sum over the tensor group; its gradient is each part's as it is."""

    @staticmethod
    def forward(_, part, group):
        whole = part.clone()
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(_, gradient):
        return gradient, None


class _Copy(torch.autograd.Function):
    """The same input on all ranks of the tensor group; its gradient is the sum of theirs."""

    @staticmethod
    def forward(context, whole, group):
        context.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class TensorParallelMlp(nn.Module):
    """Half of the hidden columns on each rank of the group."""

    def __init__(self, width, hidden, group):
        super().__init__()
        self.up = nn.Linear(width, hidden // TENSOR_RANKS)
        self.down = nn.Linear(hidden // TENSOR_RANKS, width, bias=False)
        self.group = group

    def forward(self, inputs):
        hidden = torch.relu(self.up(_Copy.apply(inputs, self.group)))
        return inputs + _Sum.apply(self.down(hidden), self.group)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=256)
    chosen = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data_ranks = ranks // TENSOR_RANKS
    with contextlib.suppress(ImportError):
        import tachoscope

        tachoscope.describe(layout={"dp": data_ranks, "tp": TENSOR_RANKS})
    mine, _ = dist.new_subgroups(TENSOR_RANKS)
    columns = [[first + TENSOR_RANKS * number for number in range(data_ranks)] for first in range(TENSOR_RANKS)]
    groups = [dist.new_group(column) for column in columns]
    replicas = groups[rank % TENSOR_RANKS]

    torch.manual_seed(rank % TENSOR_RANKS)
    model = nn.Sequential(*(TensorParallelMlp(chosen.width, 4 * chosen.width, mine) for _ in range(2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(rank // TENSOR_RANKS)  # the ranks of a tensor group see the same data
    data = TensorDataset(torch.randn(chosen.steps * chosen.batch, chosen.width))
    for step, (inputs,) in enumerate(DataLoader(data, batch_size=chosen.batch), start=1):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=replicas)
            parameter.grad /= data_ranks
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
