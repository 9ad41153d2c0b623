"""Streaming from webdataset shards, one of which is corrupt: it is quarantined, and the next epoch leaves it out.

    tachoscope run --job streaming -- torchrun --standalone --nproc-per-node 2 examples/streaming_shards.py \\
        --fault corrupt_shard
    tachoscope goodput streaming

Both ranks read each shard, in an order of their own. The second rank that fails on the corrupt one puts it on the quarantine
list; the loop asks for the list at the start of each epoch. The report marks the job for review and names the shard.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import tachoscope

SHARDS, SAMPLES, BATCH = 8, 200, 20


def write_shards(folder: Path, *, corrupt: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(SHARDS):
        with wds.TarWriter(str(folder / f"part-{number:03d}.tar")) as tar:
            for index in range(SAMPLES):
                sample = random.normal(size=1024).astype(np.float32)
                tar.write({"__key__": f"{number:03d}{index:04d}", "npy": sample, "cls": index % 10})
    if corrupt:  # as an upload leaves it that broke off
        broken = folder / "part-003.tar"
        os.truncate(broken, broken.stat().st_size // 2 + 100)


def batches(shards: list[str], seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    skip = wds.ignore_and_continue  # a shard that cannot be read further, and the half sample that it ended with
    every_rank_reads_all = lambda urls: urls  # noqa: E731
    data = wds.WebDataset(shards, handler=skip, nodesplitter=every_rank_reads_all, shardshuffle=SHARDS, seed=seed)
    data = data.decode().to_tuple("npy", "cls", handler=skip).batched(BATCH).repeat()
    return iter(DataLoader(data, batch_size=None))


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        write_shards(options.folder, corrupt=options.fault == "corrupt_shard")
    dist.barrier()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    every = sorted(str(path.absolute()) for path in options.folder.glob("*.tar"))
    for epoch in range(options.epochs):
        shards = tachoscope.without_quarantined(every)
        # All ranks do the same number of steps, whatever each could read.
        for inputs, labels in islice(batches(shards, seed=2 * epoch + rank), SHARDS * SAMPLES // BATCH):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}: {len(shards)} of {SHARDS} shards, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("streaming_shards"), help="where the shards are written")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--fault", choices=["none", "corrupt_shard"], default="none")
    train(parser.parse_args())
