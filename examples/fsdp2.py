"""FSDP2 (`fully_shard`) with a distributed checkpoint: each rank saves its own shards, and a later run reads them back.

    tachoscope run --job fsdp2 -- torchrun --standalone --nproc-per-node 2 examples/fsdp2.py --fault checkpoint_stall
    tachoscope goodput fsdp2

`--fault checkpoint_stall`: it saves after each step instead of each 20th. The report finds `checkpoint_stall`, and its advice says
how often saving is worth it. `--fault compute_straggler`: rank 1 computes longer in each step, and the other waits for it.
Run twice: the second run goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1024


def build() -> nn.Module:
    """Shard each block, then what is left: a block's whole weights are there only while it computes."""
    torch.manual_seed(0)  # the same beginning on each rank
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*blocks, nn.Linear(WIDTH, 10))
    for block in blocks:
        fully_shard(block)
    return fully_shard(model)


def load(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Read the newest checkpoint into model and optimizer; return its step, 0 without one."""
    complete = [path.parent for path in sorted(folder.glob("step-*/.metadata"))]  # it is written last
    if not complete:
        return 0
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=complete[-1])
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return int(complete[-1].name.removeprefix("step-"))


def compute(seconds: float) -> None:
    matrix, end = torch.randn(64, 64), time.monotonic() + seconds
    while time.monotonic() < end:
        matrix = torch.tanh(matrix @ matrix)


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    save_every = 1 if options.fault == "checkpoint_stall" else 20
    data = TensorDataset(torch.randn(64 * options.steps, WIDTH), torch.randint(10, (64 * options.steps,)))
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    first = load(options.folder, model, optimizer) + 1
    for step, (inputs, labels) in enumerate(DataLoader(data, batch_size=64), start=first):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        if options.fault == "compute_straggler" and dist.get_rank() == 1:
            compute(0.08)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % save_every == 0:
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=options.folder / f"step-{step:06d}")
            if dist.get_rank() == 0:  # keep the newest two
                for old in sorted(options.folder.glob("step-*"))[:-2]:
                    shutil.rmtree(old)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"steps {first} to {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("fsdp2"), help="where the checkpoints go")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--fault", choices=["none", "checkpoint_stall", "compute_straggler"], default="none")
    train(parser.parse_args())
