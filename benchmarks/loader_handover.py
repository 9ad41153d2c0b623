"""What handing a batch over from a loader's worker costs the training thread, by the bytes of the batch.

    python -m benchmarks.loader_handover

A loop takes batches that cost next to nothing to make, computes a while and reads each batch once: in the training process, and
from one worker. What a step takes longer with the worker is the hand-over: receiving, mapping the shared memory and faulting its
pages in. The line through these differences gives `handover_seconds` and `handover_bytes_per_second` of thresholds.yaml.
Loops with and without the worker alternate, and medians are compared; a machine that does other work gives larger numbers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import islice

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SIZES = (1_000, 100_000, 1_000_000, 4_000_000, 16_000_000, 40_000_000)
REST_SECONDS = 0.03
WARM_STEPS = 5


class Prepared(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Gives a tensor with a number, as images have labels.

    A worker must give a new tensor each time: one that was handed over before lies in shared memory and is handed over for nothing.
    """

    def __init__(self, size: int, *, new: bool) -> None:
        self.batch, self.new = torch.zeros(size // 4), new

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.batch.clone() if self.new else self.batch, torch.tensor(number)


def step_seconds(size: int, workers: int, steps: int) -> float:
    """Return the median seconds that a step spends to get its batch and to read it once."""
    found, batches = [], iter(DataLoader(Prepared(size, new=workers > 0), batch_size=None, num_workers=workers))
    for _ in range(steps + WARM_STEPS):
        end = time.perf_counter() + REST_SECONDS
        while time.perf_counter() < end:  # the worker has its batch ready then
            torch.rand(64, 64) @ torch.rand(64, 64)
        begin = time.perf_counter()
        for x, _number in islice(batches, 1):
            x.sum()
        found.append(time.perf_counter() - begin)
    return statistics.median(found[WARM_STEPS:])


def main() -> None:
    """Measure, and print the table and the line through it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loader_handover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60, help="of each loop")
    parser.add_argument("--rounds", type=int, default=3, help="how often the loops with and without the worker alternate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    costs = []
    print("| bytes of a batch | ms in the training process | ms from a worker | hand-over, ms |\n|---:|---:|---:|---:|")
    for size in SIZES:
        pairs = [tuple(step_seconds(size, workers, options.steps) for workers in (0, 1)) for _ in range(options.rounds)]
        alone, handed = (statistics.median(pair[place] for pair in pairs) for place in (0, 1))
        costs.append(handed - alone)
        print(f"| {size:,} | {alone * 1e3:.2f} | {handed * 1e3:.2f} | {costs[-1] * 1e3:.2f} |", flush=True)
    slope, constant = np.polyfit(SIZES, costs, 1, w=1 / (np.asarray(SIZES) + 1e6))
    print(f"\nhandover_seconds {constant:.4f}, handover_bytes_per_second {1 / slope:.2e}")


if __name__ == "__main__":
    main()
