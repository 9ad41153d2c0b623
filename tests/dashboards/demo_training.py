"""The training of the recorded demo: DDP over gloo, whose accelerator is a pause of known length. Knows little of the probe.

All else is real: data shards that are read and may be damaged, gradients that are exchanged, checkpoints that are saved in the
foreground and in the background, evaluations, restarts from the newest checkpoint. Faults come while a file lies in `--faults`:
`late-<rank>` (each batch of that rank comes late), `slow-<rank>` (its accelerator takes longer), `flip-<rank>` (one of its
parameters has another value than on the others).
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

import tachoscope

FEATURES, WIDTH, CLASSES, BATCH = 256, 512, 10, 32
SHARDS, BATCHES = 6, 12
LATE_SECONDS, SLOWER = 0.3, 1.6
EVALUATE_EVERY, EVALUATION_BATCHES = 150, 12
KEPT = 2
NAME = "s3://demo-data/part-{:03d}"


def write_shards(folder: Path) -> None:
    """Write the data set: each shard is numbers and, at its end, their check sum."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(SHARDS):
        generator = torch.Generator().manual_seed(number)
        data = torch.randn(BATCHES * BATCH, FEATURES, generator=generator).numpy().tobytes()
        (folder / f"part-{number:03d}").write_bytes(data + zlib.crc32(data).to_bytes(4, "little"))


def read_shard(path: Path) -> torch.Tensor:
    """Return the samples of a shard. ValueError: it is damaged."""
    content = path.read_bytes()
    data = bytearray(content[:-4])
    if len(data) != BATCHES * BATCH * FEATURES * 4 or zlib.crc32(data) != int.from_bytes(content[-4:], "little"):
        raise ValueError(f"{path.name} is damaged")
    return torch.frombuffer(data, dtype=torch.float32).view(BATCHES, BATCH, FEATURES)


class Batches(IterableDataset):
    """Epochs without end, each over all shards that are not quarantined."""

    def __init__(self, folder: Path, late: Path) -> None:
        self.folder, self.late = folder, late

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            for name in tachoscope.without_quarantined([NAME.format(number) for number in range(SHARDS)]):
                try:
                    with tachoscope.shard(name):
                        samples = read_shard(self.folder / name.rpartition("/")[2])
                except ValueError:
                    continue
                for inputs in samples:
                    if self.late.exists():
                        time.sleep(LATE_SECONDS)
                    yield inputs, (inputs.sum(1) > 0).long()


class Accelerator(nn.Module):
    """Takes its time, as a device would, and leaves the host's processors alone."""

    def __init__(self, seconds: float, slow: Path) -> None:
        super().__init__()
        self.seconds, self.slow = seconds, slow

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds * (SLOWER if self.slow.exists() else 1.0))
        return values


class Checkpoints:
    """Saves in the foreground, by the first rank, and in the background, by all, by turns; keeps the newest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast = torch.randn(8 << 20)
        self.pending: Future[object] | None = None
        self.group = dist.new_group(backend="gloo")  # its collectives run beside those of the steps
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, net: nn.Module, *, in_background: bool) -> None:
        state = {"model": net.state_dict(), "ballast": self.ballast}
        if in_background:
            if self.pending is not None:
                self.pending.result()
            place = self.folder / f"background-{step:06d}"
            self.pending = dcp.async_save(state, checkpoint_id=place, process_group=self.group)
            return
        if dist.get_rank() != 0:
            return
        torch.save({**state, "step": step}, self.folder / "step.tmp")
        (self.folder / "step.tmp").rename(self.folder / f"step-{step:06d}.pt")
        for old in sorted(self.folder.glob("step-*.pt"))[:-KEPT]:
            old.unlink()

    def restore(self, net: nn.Module) -> int:
        """Return the step of the newest one, 0 without any."""
        saved = sorted(self.folder.glob("step-*.pt"))
        if not saved:
            return 0
        state = torch.load(saved[-1])
        net.load_state_dict(state["model"])
        return int(state["step"])


def join(folder: Path) -> int:
    """Form the group by a file of this attempt's own: gloo may wait for the address of a rank that was killed in the last one."""
    meeting = folder / f"rendezvous-{os.environ['TORCHELASTIC_RUN_ID']}-{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    return rank


def evaluate(model: nn.Module, inputs: torch.Tensor) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(EVALUATION_BATCHES):
            model(inputs)
    model.train()


def train(options: argparse.Namespace) -> None:
    folder: Path = options.folder.absolute()
    faults: Path = options.faults.absolute()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = join(folder)
    accelerator = Accelerator(options.device_seconds, faults / f"slow-{rank}")
    net = nn.Sequential(nn.Linear(FEATURES, WIDTH), accelerator, nn.ReLU(), nn.Linear(WIDTH, CLASSES))
    checkpoints = Checkpoints(folder / "checkpoints")
    step = checkpoints.restore(net)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    first, flip, right = net[0].weight, faults / f"flip-{rank}", None
    for inputs, labels in DataLoader(Batches(folder / "shards", faults / f"late-{rank}"), batch_size=None):
        step += 1
        if right is not None:  # what it would be without the fault, to the bit
            first.data.copy_(right)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        right = first.detach().add(first.grad, alpha=-0.01) if flip.exists() else None
        if right is not None:
            first.data.add_(1e-3)
        optimizer.step()
        if options.save_every and step % options.save_every == 0:
            checkpoints.save(step, net, in_background=step // options.save_every % 2 == 0)
        if step % EVALUATE_EVERY == 0:
            evaluate(model, inputs)
        if step == options.fail_at:
            raise TypeError("what only the code of a job raises")
        if step == options.steps:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="shards and checkpoints")
    parser.add_argument("--faults", type=Path, required=True, help="where files mean faults")
    parser.add_argument("--device-seconds", type=float, default=0.25)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0, help="0: without end")
    parser.add_argument("--fail-at", type=int, default=0)
    train(parser.parse_args())
