"""A DDP training on CPU with one planted fault, that measures the fault itself and records profiler traces of some of its steps.

FAULT SECONDS STEPS FIRST_PROFILED PROFILED FOLDER. It knows nothing of tachoscope. Marks are written as `benchmarks.loops` reads
them.
"""

import io
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent.parent / "loops"))
import planted  # noqa: E402

FAULT, SECONDS = sys.argv[1], float(sys.argv[2])
STEPS, FIRST, PROFILED = (int(word) for word in sys.argv[3:6])
FOLDER = Path(sys.argv[6])
RANK = planted.RANK
EVERY = 5
WIDTH, ROWS = 512, 192
MESSAGE = torch.zeros(int(SECONDS * 1e9 / 10) if FAULT == "communication" else 1)


class Batches(Dataset):
    """Batches that a loader makes in the training process."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> torch.Tensor:
        if FAULT == "slow_loader" or (FAULT == "slow_loader_rank_1" and RANK == 1):
            fault()
        return torch.randn(ROWS, WIDTH)


def fault() -> None:
    planted.begin()
    time.sleep(SECONDS)
    planted.end()


def get_batch() -> torch.Tensor:
    if FAULT == "slow_input" or (FAULT == "slow_input_rank_1" and RANK == 1):
        fault()
    return torch.randn(ROWS, WIDTH)


class SlowDisk(io.FileIO):
    """A file whose first write takes as long as the fault."""

    slept = False

    def write(self, data: object) -> int:
        if not self.slept:
            self.slept = True
            time.sleep(SECONDS * EVERY)
        return super().write(data)


def save(model: torch.nn.Module) -> None:
    planted.begin()
    with SlowDisk(FOLDER / "checkpoint.pt", "wb") as file:
        torch.save({"model": model.state_dict()}, file)
    planted.end()


def main() -> None:
    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    loader = iter(DataLoader(Batches(), batch_size=None)) if "loader" in FAULT else None
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=FIRST - 1, warmup=1, active=PROFILED, repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(FOLDER / f"rank-{RANK}.json")),
    )
    if PROFILED:
        profiler.start()
    for number in range(STEPS):
        batch = next(loader) if loader is not None else get_batch()
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        if FAULT == "stall" or (FAULT == "stall_rank_1" and RANK == 1):
            fault()
        loss.backward()
        if FAULT == "communication":
            planted.begin()
            dist.all_reduce(MESSAGE)
            planted.end()
        optimizer.step()
        if FAULT == "checkpoint" and number % EVERY == 0 and RANK == 0:
            save(model)
        planted.step()
        if PROFILED:
            profiler.step()
    if PROFILED:
        profiler.stop()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
