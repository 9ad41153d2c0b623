"""DDP that survives the death of a rank: torchrun starts all ranks again, and they go on from the newest checkpoint.

    tachoscope run --job elastic -- torchrun --standalone --nproc-per-node 2 --max-restarts 3 \\
        examples/elastic_ddp.py --fault kill
    tachoscope goodput elastic

`--fault kill`: rank 1 kills itself after step 47. The report has two attempts, the 7 steps since the checkpoint of step 40 as
`lost_work`, and the parts of the recovery. `--fault hang`: it stops itself for 20 s and then goes on; with
$TACHOSCOPE_HANG_SECONDS=5 `tachoscope run` says so while it lasts, and the report has the seconds as `hung`.
Preemption comes from outside, as a TERM: put `timeout --foreground --signal TERM 15` before `tachoscope run`. The job saves
and leaves; the same command once more goes on from there, as another attempt of the same job.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

import tachoscope

RESTARTS = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
CONTINUE = "import os, signal, sys, time; time.sleep(20); os.kill(int(sys.argv[1]), signal.SIGCONT)"


class Batches(IterableDataset):
    """Batch number n is the same in every attempt, so that a resumed run sees the data it would have seen."""

    def __init__(self, first: int, last: int, rank: int) -> None:
        self.numbers, self.rank = range(first, last + 1), rank

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        for number in self.numbers:
            generator = torch.Generator().manual_seed(2 * number + self.rank)
            yield number, torch.randn(24, 160, 32, generator=generator), torch.randint(10, (24,), generator=generator)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(32, 96, batch_first=True), nn.Linear(96, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(inputs)[0].mean(1))


def join(folder: Path) -> int:
    """Form the group by a file of this attempt's own: gloo may wait for the address of a rank that was killed in the last one."""
    meeting = folder.absolute() / f"rendezvous-{os.environ['TORCHELASTIC_RUN_ID']}-{RESTARTS}"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    return rank


def fail(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    subprocess.Popen([sys.executable, "-c", CONTINUE, str(os.getpid())])
    os.kill(os.getpid(), signal.SIGSTOP)


def train(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    rank, step, net = join(folder), 0, Classifier()
    model, optimizer = DistributedDataParallel(net), torch.optim.AdamW(net.parameters())
    ballast = torch.zeros(options.ballast_mb << 18)  # makes checkpoints as large as those of a larger model
    log_file = (folder / f"log-{rank}.jsonl").open("a", buffering=1)

    def log(event: str) -> None:
        log_file.write(json.dumps({"event": event, "step": step, "time": time.time(), "pid": os.getpid()}) + "\n")

    if saved := sorted(folder.glob("step-*.pt")):
        log("restore")
        state = torch.load(saved[-1])
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        log("restored")
    log("begin")
    leave, batches = torch.zeros(1), DataLoader(Batches(step + 1, options.steps, rank), batch_size=None)
    for step, inputs, labels in batches:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log("step")
        if options.fault != "none" and step == options.fault_step and rank == 1 and not RESTARTS:
            fail(options.fault)
        leave.fill_(tachoscope.preempted())
        dist.all_reduce(leave)  # all ranks leave at the same step, or those that stay wait for the others for ever
        if rank == 0 and (step % options.save_every == 0 or leave):
            # Written beside, then renamed: a job that dies meanwhile leaves no half checkpoint under a checkpoint's name.
            state = {"step": step, "model": net.state_dict(), "optimizer": optimizer.state_dict(), "ballast": ballast}
            torch.save(state, folder / "step.tmp")
            (folder / "step.tmp").rename(folder / f"step-{step:06d}.pt")
            log("saved")
        if leave:
            break
    dist.barrier()
    if rank == 0:
        print(f"step {step}", "left after a notice" if leave else "done")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("elastic"), help="checkpoints, and a log of each rank")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--ballast-mb", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "kill", "hang"], default="none")
    parser.add_argument("--fault-step", type=int, default=47)
    train(parser.parse_args())
