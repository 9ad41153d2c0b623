"""A training of two ranks on CPU with one planted fault, which measures itself. It knows nothing of tachoscope.

Its words: FAULT SECONDS STEPS PROFILED FOLDER. SECONDS: of the fault, per step. STEPS: 0, until there is a file `stop` in FOLDER.
PROFILED: so many steps in the middle are recorded by its own profiler into FOLDER. `planted` of benchmarks/loops writes the marks.
"""

import io
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parent.parent / "loops"))
import planted

FAULT, SECONDS = sys.argv[1], float(sys.argv[2])
STEPS, PROFILED = (int(word) for word in sys.argv[3:5])
FOLDER = Path(sys.argv[5])
RANK = planted.RANK
EVERY = 5
ASKED_EVERY = 20
WIDTH, ROWS, LAYERS = 512, 192, 8
MESSAGE = torch.zeros(int(SECONDS * 200e6) if FAULT == "communication" else 1)
"""Some 0.8 GB a second go through the loopback device."""


class Batches(Dataset):
    """Batches that a loader makes in the training process."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> torch.Tensor:
        if FAULT == "slow_loader" or (FAULT == "slow_loader_rank_1" and RANK == 1):
            fault()
        return torch.randn(ROWS, WIDTH)


def fault() -> None:
    """Stand still, and write down for how long."""
    planted.begin()
    time.sleep(SECONDS)
    planted.end()


def get_batch() -> torch.Tensor:
    """Return a batch, without a data loader."""
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


def goes_on(number: int) -> bool:
    """Return whether there is one more step; all ranks do the same ones."""
    if STEPS:
        return number < STEPS
    if number % ASKED_EVERY:
        return True
    over = torch.tensor([float((FOLDER / "stop").exists())])
    dist.broadcast(over, 0)
    return not over.item()


def save(model: torch.nn.Module) -> None:
    """Write a checkpoint to a slow disk."""
    planted.begin()
    with SlowDisk(FOLDER / "checkpoint.pt", "wb") as file:
        torch.save({"model": model.state_dict()}, file)
    planted.end()


def main() -> None:
    """Train."""
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    if FAULT != "communication":  # there nothing but the planted message is exchanged
        model = DistributedDataParallel(model, bucket_cap_mb=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    loader = iter(DataLoader(Batches(), batch_size=None)) if "loader" in FAULT else None
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=STEPS // 2, warmup=1, active=max(PROFILED, 1), repeat=1),
        on_trace_ready=lambda done: done.export_chrome_trace(str(FOLDER / f"rank-{RANK}.json")),
    )
    if PROFILED:
        profiler.start()
    number = -1
    while goes_on(number := number + 1):
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
