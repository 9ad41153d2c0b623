"""How fast a checkpoint is read back, beside the hash library's own rate, and what that costs a training beside it.

Rate: the process that the agent uses reads a checkpoint of four files, dropped from the page cache; before and after each round the
library hashes a buffer in memory of the same size. Cost: a real training process (forward, backward, SGD, one thread, pinned to
one core) runs in blocks, alone or beside something else in random turns; of the ratios of median steps to those of the block
alone in the same round the median is taken, with a 95 % bootstrap interval.

    python benchmarks/checkpoint_verification.py            # print
    python benchmarks/checkpoint_verification.py --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
from bootstrap import bootstrap
from sections import write_section

from tachoscope_core.checkpoints.checksums import ALGORITHM, open_file_checksum
from tachoscope_core.checkpoints.verification import Manifest
from tachoscope_core.records.records import ShardSum
from tachoscope_node.checkpoints.reader_process import ReadRequest
from tachoscope_node.checkpoints.verifier import in_a_process
from tachoscope_node.config.settings import Checkpoints

FILES = 4
SETTLE_SECONDS = 0.4
"""Beginning of a block that is left out: the reading process starts, or ends."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of the checkpoint")
    parser.add_argument("--rounds", type=int, default=9, help="times that it is read")
    parser.add_argument("--blocks", type=int, default=40, help="rounds of blocks of the training")
    parser.add_argument("--block-seconds", type=float, default=1.0)
    parser.add_argument("--folder", default=".", help="where the checkpoint lies: the storage to be measured")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train()
        return
    folder = Path(tempfile.mkdtemp(dir=options.folder)).resolve()
    try:
        order = make_checkpoint(folder, options.mib << 20)
        table = "\n".join(["| what | result |", "|---|---|", *rate(order, options.rounds), *cost(order, options)])
    finally:
        shutil.rmtree(folder)
    print(table)
    if options.write:
        write_section("checkpoint_verification", table)


def make_checkpoint(folder: Path, size: int) -> ReadRequest:
    """Write the files to the storage and return the order to read them back."""
    shards = []
    for number in range(FILES):
        file = folder / f"__{number}_0.bin"
        with file.open("wb") as written:
            for _ in range(size // FILES >> 20):
                written.write(os.urandom(1 << 20))
            written.flush()
            os.fsync(written.fileno())
        with FileIO(str(file)) as opened:
            found = open_file_checksum(opened)
        assert found is not None
        shards.append(ShardSum(path=file.name, bytes=found.bytes, checksum=found.checksum))
    manifests = {0: Manifest(time.time(), shards)}
    return ReadRequest(str(folder), str(folder), manifests, [], whole=True, uid=os.geteuid())


def size_of(order: ReadRequest) -> int:
    return sum(shard.bytes for shard in order.manifests[0].shards)


def rate(order: ReadRequest, rounds: int) -> list[str]:
    """Return rows: the library's rate, ours, and that of the storage alone; all in one run, in turns."""
    size = size_of(order)
    buffer = os.urandom(1 << 20) * (size >> 20)
    own, ours, storage = [], [], []
    own.append(hash_rate(buffer))
    for number in range(rounds):
        print(f"reading back {number + 1} of {rounds}", file=sys.stderr)
        ours.append(read_back(order))
        storage.append(storage_rate(order))
        own.append(hash_rate(buffer))
    beside = [now / statistics.mean(own[number : number + 2]) for number, now in enumerate(ours)]
    low, high = bootstrap(beside)
    return [
        f"| {ALGORITHM} of a buffer in memory | {spread(own)} |",
        f"| the storage alone, read in one thread, nothing hashed | {spread(storage)} |",
        f"| reading a checkpoint of {size >> 20} MiB back from the storage | {spread(ours)} |",
        f"| the same over the library's rate just before and after | {statistics.median(beside):.1%} ({low:.1%} to {high:.1%}) |",
    ]


def spread(rates: list[float]) -> str:
    return f"{statistics.median(rates) / 1e6:,.0f} MB/s ({min(rates) / 1e6:,.0f} to {max(rates) / 1e6:,.0f}, {len(rates)} times)"


def hash_rate(buffer: bytes) -> float:
    began = time.perf_counter()
    hashlib.new(ALGORITHM, buffer)
    return len(buffer) / (time.perf_counter() - began)


def read_back(order: ReadRequest) -> float:
    found = in_a_process(order, threading.Event())
    assert found is not None
    assert found.result == "sound", found.fault
    return found.bytes / found.seconds


def storage_rate(order: ReadRequest) -> float:
    buffer = memoryview(bytearray(1 << 20))
    began = time.perf_counter()
    for shard in order.manifests[0].shards:
        with open(Path(order.place) / shard.path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.readinto(buffer):
                pass
    return size_of(order) / (time.perf_counter() - began)


def cost(order: ReadRequest, options: argparse.Namespace) -> list[str]:
    """Return rows: how much longer a training's step is while the checkpoint is read back, and while only the hash runs."""
    once = order.manifests[0]  # many times over: a checkpoint of the real size does not end within a block
    order = msgspec.structs.replace(order, manifests={0: Manifest(once.time, list(once.shards) * 40)})
    limit = Checkpoints().bytes_per_second
    arms = {
        "nothing else (again, as a control)": None,
        f"reading back at the agent's default of {limit >> 20} MiB/s": partial(
            read_until, msgspec.structs.replace(order, bytes_per_second=limit)
        ),
        "reading back without a limit": partial(read_until, order),
        f"only {ALGORITHM} of a buffer in memory, on another core at the lowest priority": hash_until,
    }
    trainer = subprocess.Popen(
        [sys.executable, __file__, "--train"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    trainer.stdout.readline()
    ratios: dict[str, list[float]] = {name: [] for name in arms}
    bare = []
    for number in range(options.blocks):
        print(f"round {number + 1} of {options.blocks}", file=sys.stderr)
        order_of_arms = random.Random(number).sample(["", *arms], len(arms) + 1)
        steps = {name: block(trainer, arms.get(name), options.block_seconds) for name in order_of_arms}
        bare.append(steps[""])
        for name in arms:
            ratios[name].append(steps[name] / steps[""] - 1.0)
    trainer.stdin.close()
    trainer.wait(timeout=30)
    what = f"a training step of {statistics.median(bare) * 1e3:.1f} ms, {options.blocks} blocks of {options.block_seconds:g} s"
    return [f"| {what}, beside {name} | {change(taken)} |" for name, taken in ratios.items()]


def change(ratios: list[float]) -> str:
    low, high = bootstrap(ratios)
    return f"{statistics.median(ratios):+.2%} ({low:+.2%} to {high:+.2%})"


def block(trainer: subprocess.Popen[str], beside: Callable[[threading.Event], None] | None, seconds: float) -> float:
    """Return the median step of a block in which something runs beside the training, or nothing."""
    assert trainer.stdin is not None
    assert trainer.stdout is not None
    stop = threading.Event()
    other = threading.Thread(target=beside, args=(stop,)) if beside is not None else None
    if other is not None:
        other.start()
    time.sleep(SETTLE_SECONDS)
    trainer.stdin.write(f"{seconds}\n")
    trainer.stdin.flush()
    taken: list[float] = json.loads(trainer.stdout.readline())
    stop.set()
    if other is not None:
        other.join()
    return statistics.median(taken)


def read_until(order: ReadRequest, stop: threading.Event) -> None:
    while not stop.is_set():
        in_a_process(order, stop)


def hash_until(stop: threading.Event) -> None:
    code = (
        "import hashlib, os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); "
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); data, total = os.urandom(1 << 20), hashlib.sha256()\n"
        "while True: total.update(data)"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    stop.wait()
    process.kill()
    process.wait()


def train() -> None:
    """Train on one core; for each line on stdin, seconds, write how long the steps of so many seconds took."""
    import torch

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    step = make_loop(torch)
    for _ in range(50):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        until, taken = time.perf_counter() + float(line), []
        while time.perf_counter() < until:
            taken.append(step())
        print(json.dumps(taken), flush=True)


def make_loop(torch: Any) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    data = torch.utils.data.TensorDataset(torch.randn(1024, 512), torch.randint(0, 256, (1024,)))
    loader = torch.utils.data.DataLoader(data, batch_size=64)

    def forever() -> Any:
        while True:
            yield from loader

    batches = forever()

    def step() -> float:
        began = time.perf_counter()
        inputs, labels = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        return time.perf_counter() - began

    return step


if __name__ == "__main__":
    main()
