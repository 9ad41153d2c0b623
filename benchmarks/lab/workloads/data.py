"""Samples that a `DataLoader` or a function of the training script reads, through whatever a fault puts in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from benchmarks.lab.site import Load
from torch.utils.data import DataLoader, Dataset

FILES = 32


def write_files(folder: Path, floats: int) -> None:
    """Write the files of a data set, of normal numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(FILES):
        generator = torch.Generator().manual_seed(index)
        (folder / f"{index:03d}.f32").write_bytes(torch.randn(floats, generator=generator).numpy().tobytes())


class Samples(Dataset):
    """Samples from files. Sample n is of batch n // batch; `length` says how many times the usual length those of a batch are."""

    def __init__(
        self,
        folder: Path,
        shape: tuple[int, ...],
        batch: int,
        batches: int,
        loads: Sequence[Load] = (),
        length: Callable[[int], float] | None = None,
    ) -> None:
        self.files = sorted(folder.glob("*.f32"))
        self.shape, self.batch, self.batches = shape, batch, batches
        self.loads, self.length = loads, length

    def __len__(self) -> int:
        return self.batch * self.batches

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        number = index // self.batch
        for load in self.loads:
            load(number)
        data = bytearray(self.files[index % len(self.files)].read_bytes())
        sample = torch.frombuffer(data, dtype=torch.float32).view(self.shape)
        if self.length is not None:
            rows = max(8, round(self.length(number) * self.shape[0]))
            sample = sample.repeat(rows // self.shape[0] + 1, *(1 for _ in self.shape[1:]))[:rows]
        return sample, index % 10


def loader(samples: Samples, workers: int) -> DataLoader:
    """Return a loader with so many worker processes; without any it loads in the training process."""
    return DataLoader(samples, batch_size=samples.batch, num_workers=workers)


def get_batch(samples: Samples, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch as scripts make it that have no `DataLoader`."""
    pairs = [samples[index] for index in range(number * samples.batch, (number + 1) * samples.batch)]
    return torch.stack([inputs for inputs, _ in pairs]), torch.tensor([label for _, label in pairs])


def bare_batches(samples: Samples) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield one batch after the other, made in the training thread."""
    for number in range(samples.batches):
        yield get_batch(samples, number)
