"""What the probe costs a training step, beside traceml-ai on the same loops.

One real training loop (DataLoader, forward, backward, SGD, one thread), about 30 ms and about 1 ms a step. In one process short
blocks of steps with the tool on and off alternate; for each pair of neighbouring blocks the difference of their median steps is
taken, and of these the median, with a 95 % bootstrap interval. Off means: the functions that were wrapped are the original
ones, no hook is set, and the sampler thread wakes but does nothing (traceml-ai: no `trace_step`, its wrappers pass through).

    python benchmarks/probe_overhead.py            # print
    python benchmarks/probe_overhead.py --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bootstrap import bootstrap
from sections import write_section

HERE = Path(__file__).parent
TOOLS = ("tachoscope", "traceml-ai")
BLOCK_STEPS = 5
SETTLE_STEPS = 1
"""First steps of a block that are left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each tool and loop, on and off together")
    parser.add_argument("--loops", type=float, nargs="*", default=[30.0, 1.0], help="milliseconds of a step")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where the loops compute")
    parser.add_argument("--tools", nargs="*", default=list(TOOLS), choices=TOOLS)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    parser.add_argument("--child", nargs=2, metavar=("TOOL", "MILLISECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child[0], float(options.child[1]), options.steps, options.device)))
        return
    rows = [run_child(tool, loop, options.steps, options.device) for loop in options.loops for tool in options.tools]
    table = "\n".join(
        ["| loop | tool | steps | step without | added to the median step | 95 % interval |", "|---|---|---|---|---|---|"]
        + [
            f"| {row['loop_ms']:g} ms | {row['tool']} | {row['steps']:,} | {row['off_ms']:.2f} ms | "
            f"{row['added_us']:+.1f} µs | {row['low_us']:+.1f} to {row['high_us']:+.1f} µs |"
            for row in rows
        ]
    )
    print(table)
    if options.write:
        write_section("probe_overhead", table)


def run_child(tool: str, loop_ms: float, steps: int, device: str) -> dict[str, Any]:
    print(f"{tool}, {loop_ms:g} ms a step: {steps} steps, about {steps * loop_ms / 1e3:.0f} s", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder, aggregator(tool, folder):
        done = subprocess.run(
            [sys.executable, __file__, "--steps", str(steps), "--device", device, "--child", tool, str(loop_ms)],
            env=os.environ | {"OMP_NUM_THREADS": "1", "TACHOSCOPE_RUN_DIR": folder, "TRACEML_LOGS_DIR": folder},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextlib.contextmanager
def aggregator(tool: str, folder: str) -> Iterator[None]:
    """Run traceml-ai's server beside its arm: without one its tracing is a no-op."""
    if tool != "traceml-ai":
        yield
        return
    command = [str(Path(sys.executable).with_name("traceml")), "serve", "--mode", "summary", "--logs-dir", folder]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(5.0)
        yield
    finally:
        server.terminate()
        server.wait(timeout=30)


def measure(tool: str, loop_ms: float, steps: int, device: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    switch = {"tachoscope": tachoscope_switch, "traceml-ai": traceml_switch}[tool]
    turn, step_context = switch()
    train_step = make_loop(torch, loop_ms, step_context, device)
    block = BLOCK_STEPS
    turn(True)
    for _ in range(50):
        train_step(True)
    medians: list[tuple[float, float]] = []
    for number in range(steps // (2 * block)):
        order = (True, False) if number % 2 else (False, True)
        pair = {}
        for on in order:
            turn(on)
            pair[on] = statistics.median([train_step(on) for _ in range(block + SETTLE_STEPS)][SETTLE_STEPS:])
        medians.append((pair[True], pair[False]))
    differences = [on - off for on, off in medians]
    low, high = bootstrap(differences)
    return {
        "tool": tool,
        "loop_ms": loop_ms,
        "steps": len(medians) * 2 * block,
        "off_ms": statistics.median(off for _, off in medians) * 1e3,
        "added_us": statistics.median(differences) * 1e6,
        "low_us": low * 1e6,
        "high_us": high * 1e6,
    }


def make_loop(torch: Any, loop_ms: float, step_context: Callable[[Any], Any], device: str) -> Callable[[bool], float]:
    """Return a function that does one training step and returns its wall seconds; on a device, until that has done it."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 8, (4096,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    width = 192 if device == "cpu" else 4096
    matrix = torch.randn(width, width, device=device) / width
    synchronize = torch.cuda.synchronize if device == "cuda" else id

    def forever() -> Iterator[Any]:
        while True:
            yield from loader

    batches = forever()
    repeats = 0

    def step(on: bool) -> float:
        begin = time.perf_counter()
        inputs, labels = (tensor.to(device) for tensor in next(batches))
        with step_context(model) if on else contextlib.nullcontext():
            optimizer.zero_grad()
            scores = model(inputs)
            value = matrix
            for _ in range(repeats):
                value = torch.mm(value, matrix)
            torch.nn.functional.cross_entropy(scores, labels).backward()
            optimizer.step()
        synchronize(None)
        return time.perf_counter() - begin

    def calibrate() -> int:
        synchronize(None)
        begin = time.perf_counter()
        for _ in range(200):
            torch.mm(matrix, matrix)
        synchronize(None)
        each = (time.perf_counter() - begin) / 200
        bare = statistics.median(step(False) for _ in range(200))
        return max(0, round((loop_ms / 1e3 - bare) / each))

    repeats = calibrate()
    return step


def tachoscope_switch() -> tuple[Callable[[bool], None], Callable[[Any], Any]]:
    """Return a function that puts the wrappers and hooks in place or takes them out."""
    import torch
    from torch.optim import optimizer as torch_optimizer
    from torch.utils.data import dataloader

    from tachoscope import start as auto
    from tachoscope.sampling.sampler import Sampler

    owners = [
        (dataloader._BaseDataLoaderIter, "__next__"),
        (dataloader.DataLoader, "__iter__"),
        (torch.autograd, "backward"),
        (torch.nn.Module, "train"),
        (torch, "save"),
        *([(torch.Tensor, "to"), (torch.Tensor, "cuda")] if torch.version.cuda else []),
        (os, "fsync"),
        (os, "fdatasync"),
    ]
    originals = [getattr(owner, name) for owner, name in owners]
    assert auto.start("benchmark")
    wrappers = [getattr(owner, name) for owner, name in owners]
    assert all(wrapper is not original for wrapper, original in zip(wrappers, originals, strict=True))
    hooks = [
        (table, dict(table))
        for table in (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    ]
    probe = auto.PROBE
    active = [True]
    tick, flush = Sampler._tick, auto.Probe.flush
    Sampler._tick = lambda self: tick(self) if active[0] else None  # type: ignore[method-assign]
    auto.Probe.flush = lambda self: flush(self) if active[0] else None  # type: ignore[method-assign]

    def turn(on: bool) -> None:
        for (owner, name), function in zip(owners, wrappers if on else originals, strict=True):
            setattr(owner, name, function)
        for table, content in hooks:
            table.clear()
            table.update(content if on else {})
        active[0] = on
        gc.callbacks[:] = [probe.on_gc] if on else []
        if on and probe.thread_ident:
            probe.timeline.restart()

    return turn, lambda _: contextlib.nullcontext()


def traceml_switch() -> tuple[Callable[[bool], None], Callable[[Any], Any]]:
    with contextlib.redirect_stdout(sys.stderr):
        import traceml_ai

        traceml_ai.init(mode="auto", ui_mode="summary", on_missing_aggregator="raise")
    return lambda _: None, traceml_ai.trace_step


if __name__ == "__main__":
    main()
