"""What the probe's own wrappers and handlers of a step take, warm and after a sweep that empties the processor's caches.

The functions of torch that are wrapped do nothing here, so that the noise of a training is not in the difference. Steps with and
without the probe alternate in one process.

    python benchmarks/probe_cold_caches.py
    TACHOSCOPE_NATIVE=0 python benchmarks/probe_cold_caches.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--sweep", type=int, nargs="*", default=[0, 64], help="MiB read before and within each step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TACHOSCOPE_RUN_DIR": folder, "OMP_NUM_THREADS": "1"}
        step = steps()
        for size in options.sweep:
            on, off = measure(step, options.steps, size)
            print(f"sweep {size} MiB: with the probe {on:.1f} µs, without {off:.1f}, added {on - off:.1f}")


def measure(step: Any, count: int, size: int) -> tuple[float, float]:
    """Return the median microseconds of a step with and without the probe."""
    import numpy

    buffer = numpy.ones(max(1, size << 20) // 8)
    sweep = buffer.sum if size else int
    taken: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(count):
        for on in (True, False):
            sweep()
            taken[on].append(step(sweep, on=on))
    return statistics.median(taken[True]) / 1e3, statistics.median(taken[False]) / 1e3


def steps() -> Any:
    """Return a function that does one step around a sweep, and returns its nanoseconds without that."""
    import torch
    from torch.optim import optimizer as torch_optimizer
    from torch.utils.data import dataloader

    batch = (torch.zeros(16, 64), torch.zeros(16))
    plain_next, plain_backward = lambda iterator: batch, lambda *args, **kwargs: None
    dataloader._BaseDataLoaderIter.__next__ = plain_next
    torch.autograd.backward = plain_backward
    seen, unseen = (type(name, (torch.nn.Module,), {"forward": lambda self, x: x})() for name in ("Seen", "Unseen"))
    seen.weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD(seen.parameters(), lr=0.1)
    iterator = iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(40, 4)), batch_size=16))
    from tachoscope import start

    assert start.start("benchmark")
    next_batch, backward = dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward
    tables = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    hooks = [hook for table in tables for hook in table.values()]
    with_probe, without = (next_batch, seen, backward, hooks), (plain_next, unseen, plain_backward, [])
    clock = time.perf_counter_ns

    def step(sweep: Any, *, on: bool) -> int:
        fetch, model, gradients, around = with_probe if on else without
        begin = clock()
        fetch(iterator)
        model(1)
        computing = clock()
        sweep()
        computed = clock()
        gradients(1)
        for hook in around:
            hook(optimizer, (optimizer,), {})
        return clock() - computed + computing - begin

    for _ in range(200):  # past the first steps, which are written at once
        step(int, on=True)
    return step


if __name__ == "__main__":
    main()
