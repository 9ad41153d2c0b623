"""The loops of `lines`: each makes its input, or loses its time, in another way."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

MODEL = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=1e-5)


def tokenize(count: int) -> dict[str, int]:
    """Count words in pure Python, with the interpreter's lock."""
    words: dict[str, int] = {}
    for number in range(count):
        word = chr(97 + number % 26) + str(number % 977)
        words[word] = words.get(word, 0) + 1
    return words


def stack() -> torch.Tensor:
    """Make a batch in many short native calls, which give the lock away."""
    return torch.stack([torch.rand(64) for _ in range(100)])


def tokenizer() -> Iterator[torch.Tensor]:
    """Mostly pure Python, and some native calls."""
    while True:
        tokenize(20_000)
        yield stack()


def numpy() -> Iterator[torch.Tensor]:
    """Native calls that keep the lock."""
    rows = np.random.default_rng(0).random((2000, 64))
    while True:
        order = np.argsort(rows, axis=0)
        yield torch.as_tensor(np.take_along_axis(rows, order, axis=0)[:100].astype("float32"))


class Documents(torch.utils.data.IterableDataset[torch.Tensor]):
    """A dataset that is a generator."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            tokenize(1000)
            yield torch.rand(64)


class Items(Dataset[torch.Tensor]):
    """A dataset with slow items."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        tokenize(1000)
        return torch.rand(64)


def sleep() -> Iterator[torch.Tensor]:
    """Waits for something else."""
    while True:
        time.sleep(0.02)
        yield stack()


def file() -> Iterator[torch.Tensor]:
    """Reads from a file, uncached as far as the system allows."""
    path = Path(f"/tmp/lines-{os.getpid()}.bin")  # removed below
    path.write_bytes(os.urandom(8_000_000))
    try:
        while True:
            with path.open("rb") as data:
                os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                text = data.read()
            yield torch.frombuffer(bytearray(text[:25_600]), dtype=torch.uint8).float().reshape(-1, 64)
    finally:
        path.unlink()


def from_queue() -> Iterator[torch.Tensor]:
    """Waits for a thread that makes the batches."""
    batches: queue.Queue[torch.Tensor] = queue.Queue(maxsize=1)

    def produce() -> None:
        while True:
            time.sleep(0.03)
            batches.put(stack())

    threading.Thread(target=produce, daemon=True).start()
    while True:
        yield batches.get()


def validate() -> None:
    """Call the model without gradients."""
    with torch.no_grad():
        for _ in range(40):
            MODEL(torch.rand(2048, 64))


def evaluation() -> Iterator[torch.Tensor]:
    """Evaluates before each step."""
    while True:
        validate()
        yield torch.rand(100, 64)


def train(batches: Any, seconds: float) -> None:
    """Train for so long."""
    end = time.monotonic() + seconds
    for step, batch in enumerate(batches):
        loss = MODEL(batch).square().mean()
        loss.backward()
        OPTIMIZER.step()
        OPTIMIZER.zero_grad()
        if step == 10:
            Path(os.environ["LINES_READY"]).write_text(str(os.getpid()))
        if time.monotonic() > end:
            return


if __name__ == "__main__":
    loops: dict[str, Any] = {
        "tokenizer": tokenizer,
        "numpy": numpy,
        "generator": lambda: DataLoader(Documents(), batch_size=16),
        "workers": lambda: DataLoader(Items(), batch_size=32, num_workers=1),
        "sleep": sleep,
        "file": file,
        "queue": from_queue,
        "evaluation": evaluation,
    }
    train(loops[sys.argv[1]](), float(sys.argv[2]))
