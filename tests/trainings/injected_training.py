"""A training written by somebody else, so to speak: other model, loader, launcher and placement of faults than the demo's.

python tests/trainings/injected_training.py FAULT STEPS FOLDER [--workers N] [--threads N] [--rank R] [--batch N] [--slow-seconds S]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Batches in files; `kept` in memory, so that reading one does not take as long as exchanging a tiny model."""

    def __init__(self, folder: Path, slow_seconds: float, kept: bool) -> None:
        self.files = sorted(folder.glob("*.pt"))
        self.slow_seconds = slow_seconds
        self.batches = [torch.load(file) for file in self.files] if kept else None

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.slow_seconds)
        return self.batches[index % len(self.files)] if self.batches else torch.load(self.files[index % len(self.files)])


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 10)
        self.extra: nn.Module | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        for _ in range(4):  # the same weights again: more computing, no more to exchange
            x = torch.relu(self.mix(x))
        scores = self.head(x.mean((2, 3)))
        return scores + self.extra(x.reshape(-1)[:1400]).sum() * 1e-9 if self.extra is not None else scores


def spin(seconds: float) -> None:
    end, x = time.perf_counter() + seconds, torch.rand(128, 128)
    while time.perf_counter() < end:
        x = (x @ x).clamp(-1, 1)


def main(rank: int, options: argparse.Namespace) -> None:
    if options.threads:
        torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", init_method=options.meeting, rank=rank, world_size=2)
    fault, guilty = options.fault, rank == options.rank
    folder = Path(options.folder)
    if rank == 0:
        for number in range(16):
            torch.save((torch.rand(options.batch, 3, 32, 32), torch.randint(0, 10, (options.batch,))), folder / f"{number}.pt")
    dist.barrier()
    slow = fault == "data_both" or (fault == "data_one" and guilty)
    images = Images(folder, options.slow_seconds if slow else 0.0, kept=fault == "tiny")
    loader = DataLoader(images, batch_size=None, num_workers=options.workers)
    net: nn.Module = nn.Linear(32, 10) if fault == "tiny" else Net(16)
    if fault == "large":  # about 8 MB of gradients
        net.extra = nn.Linear(1400, 1400)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state = {"model": net.state_dict(), "buffer": torch.rand(64 << 20)} if fault == "checkpoint" else {}
    for step, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad(set_to_none=True)
        if fault == "compute_one" and guilty:
            spin(options.slow_seconds)
        loss = nn.functional.cross_entropy(model(x[:, 0, 0] if fault == "tiny" else x), y)
        loss.backward()
        optimizer.step()
        if fault == "checkpoint" and guilty and step % 10 == 0:
            with open(folder / "checkpoint.bin", "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        if step == options.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("steps", type=int)
    parser.add_argument("folder")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--batch", type=int, default=40, help="images of a step: its computing")
    parser.add_argument("--slow-seconds", type=float, default=0.08, help="what a slow read or a slow computation takes longer")
    arguments = parser.parse_args()
    arguments.meeting = None if "RANK" in os.environ else f"file://{os.path.abspath(arguments.folder)}/rendezvous-{os.getpid()}"
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), arguments)
    else:
        mp.start_processes(main, (arguments,), nprocs=2, start_method="fork")  # PyTorch is imported once
