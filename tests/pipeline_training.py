"""A home-grown pipeline over gloo with explicit sends and receives, watched as any script is.

python tests/pipeline_training.py PORT STEPS [--ranks N] [--micro-batches M] [--schedule fill|1f1b] [--layers 8,8] [--replicas D]
    [--late RANK] [--asynchronous] [--out FILE]

Ranks are numbered stage by stage. Prints the mean seconds of a step, and with `--late` those that the rank computed longer.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WIDTH, BATCH = 256, 64


class Stage:
    def __init__(self, rank: int, options: argparse.Namespace) -> None:
        self.stage, self.replica = divmod(rank, options.replicas)
        layers = [int(number) for number in options.layers.split(",")]
        self.last = self.stage == len(layers) - 1
        self.previous = rank - options.replicas if self.stage else None
        self.next = None if self.last else rank + options.replicas
        self.net = nn.Sequential(*[part for _ in range(layers[self.stage]) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.asynchronous = options.asynchronous
        self.late = rank == options.late
        self.late_seconds = 0.0
        self.queue: list[tuple[torch.Tensor | None, torch.Tensor]] = []

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        if self.asynchronous:
            dist.isend(tensor, peer).wait()
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
        if self.late:
            begin = time.perf_counter()
            with torch.no_grad():
                self.net(torch.rand(4 * BATCH, WIDTH))
            self.late_seconds += time.perf_counter() - begin
        out = self.net(torch.rand(BATCH, WIDTH) if given is None else given)
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
    stages = len(options.layers.split(","))
    ahead = options.micro_batches if options.schedule == "fill" else min(options.micro_batches, stages - stage.stage)
    for _ in range(ahead):
        stage.forward()
    for number in range(options.micro_batches):
        stage.backward()
        if ahead + number < options.micro_batches:
            stage.forward()
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
            begin, stage.late_seconds = time.perf_counter(), 0.0
        one_step(stage, options, groups[stage.stage] if options.replicas > 1 else None)
    count = options.steps - 10
    print(f"rank {rank} step {(time.perf_counter() - begin) / count:.5f} late {stage.late_seconds / count:.5f}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--schedule", choices=("fill", "1f1b"), default="fill")
    parser.add_argument("--layers", default="8,8")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--asynchronous", action="store_true")
    given = parser.parse_args()
    mp.spawn(main, (given,), nprocs=len(given.layers.split(",")) * given.replicas)
