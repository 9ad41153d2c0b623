"""A training of two ranks that saves in many ways, and in its second attempt begins by restoring from all of them.

Run by probe/checkpoints/test_checkpoints.py in a folder of its own: first with the argument `save`, then with `restore`. It imports
what both ranks need, then forks them: to import distributed checkpoints takes longer than all that the ranks do.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

import tachoscope


def steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        model(torch.rand(4, 4)).sum().backward()
        optimizer.step()


def until_a_manifest_of(name: bytes) -> None:
    """Wait for it: of checkpoints that wait for their checksums, the probe drops the oldest where there are more than eight."""
    spool = Path(os.environ["TACHOSCOPE_SPOOL"])
    manifests: list[bytes] = []
    while not any(name in line for line in manifests):
        time.sleep(0.05)
        lines = [line for path in spool.rglob("*") if path.is_file() for line in path.read_bytes().splitlines()]
        manifests = [line for line in lines if b'"CheckpointManifest"' in line]


def save_all(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    steps(model, optimizer, 2)
    dcp.save({"model": model.state_dict()}, checkpoint_id="dcp")
    future = dcp.async_save({"model": model.state_dict()}, checkpoint_id="dcp-async")
    steps(model, optimizer, 1)
    future.result()
    if rank:
        return
    torch.save(model.state_dict(), "path.pt")
    with open("object.pt", "wb") as file:
        torch.save(model.state_dict(), file)
    torch.save(model.state_dict(), "atomic.pt.tmp")
    os.replace("atomic.pt.tmp", "atomic.pt")
    save_file(model.state_dict(), "weights.safetensors")
    os.symlink("path.pt", "latest.pt")
    until_a_manifest_of(b"path.pt")
    thread = threading.Thread(target=torch.save, args=(model.state_dict(), "thread.pt"))
    thread.start()
    thread.join()
    for _ in range(30):  # each overwrites what the one before wrote, faster than a checksum is taken
        torch.save(model.state_dict(), "overwritten.pt")
    Path("own.bin").write_bytes(b"own")
    tachoscope.saved(reference="own.bin", seconds=0.25)
    run_directory = Path(os.environ["TACHOSCOPE_RUN_DIR"])
    assert not tachoscope.preempted()
    assert (run_directory / "asks").exists()
    (run_directory / "notice.json").write_text('{"source":"sigterm","time":1}')
    time.sleep(0.6)
    assert tachoscope.preempted()
    torch.save(model.state_dict(), "emergency.pt")


def restore_all(model: torch.nn.Module, rank: int) -> None:
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id="dcp")
    if rank:
        return
    torch.save(torch.rand(1000), "data.pt")
    torch.load("data.pt")  # data, no checkpoint
    torch.load("latest.pt")
    with open("object.pt", "rb") as file:
        torch.load(file)
    torch.load("atomic.pt")
    load_file("weights.safetensors")
    tachoscope.restored(step=3, reference="own.bin", seconds=0.25)


def main(rank: int, attempt: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{Path.cwd()}/rendezvous-{attempt}", rank=rank, world_size=2)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if attempt == "save":
        save_all(model, optimizer, rank)
    else:
        restore_all(model, rank)
        steps(model, optimizer, 2)
        if rank == 0:
            torch.load("data.pt")
            torch.load("path.pt")  # saved by another process: no restore in the midst of training
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(main, args=(sys.argv[1],), nprocs=2, start_method="fork")
