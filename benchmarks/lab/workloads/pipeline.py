"""A pipeline of two stages over gloo: forwards of all micro-batches, then backwards (GPipe), with explicit sends and receives
that are posted ahead, as real pipelines do.

A stage is a chain of layers that are alike, so that moving one from stage to stage moves a known part of the work.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from benchmarks.lab.site import Site, clock
from benchmarks.lab.workloads import data_parallel
from torch import nn
from torch.utils.data import DataLoader, Dataset

import tachoscope

ROWS = 1536
"""Of a step; the micro-batches share them."""
TRIAL_STEPS = 8


class Numbers(Dataset):
    """Random batches: the first stage takes the inputs, the last the labels."""

    def __init__(self, batches: int, micro_batches: int, width: int) -> None:
        self.batches, self.shape = batches, (micro_batches, ROWS // micro_batches, width)

    def __len__(self) -> int:
        return self.batches

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.shape, generator=generator), torch.randn(self.shape, generator=generator)


class Layer(nn.Module):
    """One of many that are alike. It adds to its input: through a deep stack without that only denormal numbers would come."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + torch.relu(self.mix(inputs))


def stage(layers: int, width: int) -> nn.Module:
    """Return a stage with so many layers."""
    return nn.Sequential(*(Layer(width) for _ in range(layers)))


class Stage:
    """One stage of the pipeline, and how long it computed in the present step."""

    def __init__(self, site: Site) -> None:
        shape = site.spec.shape
        self.rank, self.width, self.micro_batches = site.rank, int(shape["width"]), int(shape["micro_batches"])
        self.net = stage(int(shape["layers"][site.rank]), self.width)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.computed = 0.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        begin = clock()
        outputs: torch.Tensor = self.net(inputs)
        self.computed += clock() - begin
        return outputs

    def backward(self, outputs: torch.Tensor, gradient: torch.Tensor | None) -> None:
        begin = clock()
        outputs.backward(gradient)
        self.computed += clock() - begin

    def expect(self, peer: int) -> tuple[list[torch.Tensor], list[dist.Work]]:
        """Post the receives of all micro-batches, so that they cross the network while others are computed."""
        buffers = [torch.empty(ROWS // self.micro_batches, self.width) for _ in range(self.micro_batches)]
        return buffers, [dist.irecv(buffer, peer) for buffer in buffers]

    def first(self, inputs: torch.Tensor) -> None:
        """The first stage's step."""
        gradients, coming = self.expect(1)
        sent, going = [], []
        for micro in range(self.micro_batches):
            sent.append(self.forward(inputs[micro]))
            going.append(dist.isend(sent[-1].detach(), 1))
        for outputs, gradient, work in zip(sent, gradients, coming, strict=True):
            work.wait()
            self.backward(outputs, gradient)
        for work in going:
            work.wait()

    def last(self, labels: torch.Tensor) -> None:
        """The last stage's step."""
        received, coming = self.expect(0)
        losses, going = [], []
        for inputs, label, work in zip(received, labels, coming, strict=True):
            work.wait()
            losses.append(nn.functional.mse_loss(self.forward(inputs.requires_grad_()), label) / self.micro_batches)
        for inputs, loss in zip(received, losses, strict=True):
            self.backward(loss, None)
            assert inputs.grad is not None
            going.append(dist.isend(inputs.grad, 0))
        for work in going:
            work.wait()

    def step(self, inputs: torch.Tensor, labels: torch.Tensor) -> float:
        """Do a step; return the seconds that this stage computed."""
        self.computed = 0.0
        self.optimizer.zero_grad()
        if self.rank == 0:
            self.first(inputs)
        else:
            self.last(labels)
        self.optimizer.step()
        return self.computed


def _batches(site: Site, count: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    shape = site.spec.shape
    return iter(DataLoader(Numbers(count, int(shape["micro_batches"]), int(shape["width"])), batch_size=None))


def train(site: Site) -> None:
    """Train one stage. The clean step is what an even pipeline without a bubble would take: the mean computing of the stages."""
    os.environ["TACHOSCOPE_LAYOUT"] = "pp=2"
    data_parallel.join(site)
    live, times = Stage(site), []
    for inputs, labels in _batches(site, TRIAL_STEPS):
        times.append(live.step(inputs, labels))
    own = statistics.median(times[2:])
    site.measured.clean_step_seconds = data_parallel.agree(site, own)
    try:
        with tachoscope.watch(job=site.job):
            batches = _batches(site, site.spec.steps)
            for step in range(site.spec.steps):
                begin = clock()
                inputs, labels = next(batches)
                wait, cpu = clock() - begin, time.thread_time()
                computed = live.step(inputs, labels)
                site.measured.wall.append(clock() - begin)
                site.measured.wait.append(wait)
                site.measured.cpu.append(time.thread_time() - cpu)
                site.measured.step = step
                site.measured.add("computed", computed)
                site.progress[site.rank] = step + 1
            data_parallel.leave(site)
    finally:
        site.measured.write(site.folder / f"rank-{site.rank}.json")
