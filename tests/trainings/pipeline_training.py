"""A home-grown pipeline over gloo with explicit sends and receives, watched as any script is.

python tests/trainings/pipeline_training.py PORT STEPS [--micro-batches M] [--schedule fill|1f1b] [--layers 4,4] [--replicas D]
    [--late RANK] [--asynchronous]

Ranks are numbered stage by stage. Each layer rests in its forward, as if a device computed it: so stages overlap on few cores.
Prints the mean seconds of a step, and those that a rank's layers took.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, BATCH = 64, 16
LAYER_SECONDS = 0.002


class Layer(nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.seconds = seconds
        self.rested = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begin = time.perf_counter()
        time.sleep(self.seconds)
        self.rested += time.perf_counter() - begin
        return torch.relu(self.linear(x))


class Stage:
    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.stage, self.replica = divmod(rank, options.replicas)
        layers = [int(number) for number in options.layers.split(",")]
        self.last = self.stage == len(layers) - 1
        self.previous = rank - options.replicas if self.stage else None
        self.next = None if self.last else rank + options.replicas
        seconds = LAYER_SECONDS * (2 if rank == options.late else 1)
        self.net = nn.Sequential(*[Layer(seconds) for _ in range(layers[self.stage])])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.batches = iter(DataLoader(TensorDataset(torch.rand(options.steps, BATCH, WIDTH)), batch_size=None))
        self.batch: torch.Tensor | None = None
        self.asynchronous = options.asynchronous
        self.sent: list[tuple[dist.Work, torch.Tensor]] = []
        self.queue: list[tuple[torch.Tensor | None, torch.Tensor]] = []

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        if self.asynchronous:
            self.sent.append((dist.isend(tensor, peer), tensor))
        else:
            dist.send(tensor, peer)

    def receive(self, peer: int) -> torch.Tensor:
        tensor = torch.empty(BATCH, WIDTH)
        if self.asynchronous:
            dist.irecv(tensor, peer).wait()
        else:
            dist.recv(tensor, peer)
        return tensor

    def forward(self) -> None:
        given = None if self.previous is None else self.receive(self.previous).requires_grad_()
        out = self.net(self.batch if given is None else given)
        if self.next is not None:
            self.send(out.detach(), self.next)
        self.queue.append((given, out))

    def backward(self) -> None:
        given, out = self.queue.pop(0)
        if self.next is None:
            (out.square().mean()).backward()
        else:
            out.backward(self.receive(self.next))
        if given is not None and self.previous is not None:
            self.send(given.grad, self.previous)


def one_step(stage: Stage, options: argparse.Namespace, group: dist.ProcessGroup | None) -> None:
    stage.optimizer.zero_grad()
    stage.batch = None if stage.stage else next(stage.batches)[0]
    stages = len(options.layers.split(","))
    ahead = options.micro_batches if options.schedule == "fill" else min(options.micro_batches, stages - stage.stage)
    for _ in range(ahead):
        stage.forward()
    for number in range(options.micro_batches):
        stage.backward()
        if ahead + number < options.micro_batches:
            stage.forward()
    while stage.sent:
        stage.sent.pop()[0].wait()
    if group is not None:
        for parameter in stage.net.parameters():
            dist.all_reduce(parameter.grad, group=group)
    stage.optimizer.step()


def main(rank: int, options: argparse.Namespace) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(options.port)}
    torch.set_num_threads(1)
    stages = len(options.layers.split(","))
    dist.init_process_group("gloo", rank=rank, world_size=stages * options.replicas)
    groups = [dist.new_group([stage * options.replicas + d for d in range(options.replicas)]) for stage in range(stages)]
    stage = Stage(rank, options)
    for step in range(options.steps):
        if step == 10:
            begin, rested = time.perf_counter(), sum(layer.rested for layer in stage.net)
        one_step(stage, options, groups[stage.stage] if options.replicas > 1 else None)
    count = options.steps - 10
    seconds, rested = time.perf_counter() - begin, sum(layer.rested for layer in stage.net) - rested
    print(f"rank {rank} step {seconds / count:.6f} layers {rested / count:.6f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--schedule", choices=("fill", "1f1b"), default="fill")
    parser.add_argument("--layers", default="4,4")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--asynchronous", action="store_true")
    given = parser.parse_args()
    mp.spawn(main, (given,), nprocs=len(given.layers.split(",")) * given.replicas)
