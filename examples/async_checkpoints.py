"""The same training with its checkpoints saved first while it waits (`dcp.save`), then in the background (`dcp.async_save`).

    tachoscope run --job blocking -- python examples/async_checkpoints.py --fault checkpoint_stall
    tachoscope run --job background -- python examples/async_checkpoints.py
    tachoscope goodput blocking
    tachoscope goodput background

Both save 138 MB after each 10th step. The first report finds `checkpoint_stall`: training stands still while files are written.
In the second, a checkpoint blocks only while the state is copied (staged), and the seconds of writing are background seconds.
"""

from __future__ import annotations

import argparse
import shutil
from concurrent.futures import Future
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build() -> nn.Module:
    # The embedding is what makes the checkpoint large; a batch uses few of its rows.
    return nn.Sequential(nn.EmbeddingBag(65536, 512), nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 10))


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randint(65536, (128 * options.steps, 64)), torch.randint(10, (128 * options.steps,)))
    pending: Future[object] | None = None
    for step, (words, labels) in enumerate(DataLoader(data, batch_size=128), start=1):
        loss = nn.functional.cross_entropy(model(words), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            folder = options.folder / f"step-{step:06d}"
            if options.fault == "checkpoint_stall":
                dcp.save(model.state_dict(), checkpoint_id=folder, no_dist=True)
                continue
            if pending is not None:
                pending.result()  # one at a time: a second copy of the state in memory is enough
            pending = dcp.async_save(model.state_dict(), checkpoint_id=folder, no_dist=True)
    if pending is not None:
        pending.result()
    for old in sorted(options.folder.glob("step-*"))[:-1]:
        shutil.rmtree(old)
    print(f"{options.steps} steps")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("async_checkpoints"), help="where the checkpoints go")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fault", choices=["none", "checkpoint_stall"], default="none")
    train(parser.parse_args())
