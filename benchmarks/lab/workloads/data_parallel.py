"""Data-parallel training with DDP over gloo, or alone: the workload of most faults.

First some steps without probe and fault say what a clean step takes; then the job is watched, and the faults are there.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.lab import exchange_times, faults
from benchmarks.lab.site import Hooks, Site, clock, run_delay_seconds
from benchmarks.lab.workloads import data, models
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tachoscope

CLEAN_STEPS, SETTLE_STEPS = 14, 4


@dataclass(frozen=True, slots=True)
class Training:
    """What a fault may touch of the live training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    inputs: torch.Tensor


def join(site: Site) -> None:
    """Form the group by a file of this attempt's own."""
    if site.spec.world_size > 1:
        meeting = site.folder / f"rendezvous-{site.attempt}"
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=site.rank, world_size=site.spec.world_size)


def leave(site: Site) -> None:
    """Wait for the others and leave the group."""
    if site.spec.world_size > 1:
        dist.barrier()
        dist.destroy_process_group()


def agree(site: Site, value: float) -> float:
    """Return the mean of a number over the ranks."""
    if site.spec.world_size == 1:
        return value
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor)
    return float(tensor) / site.spec.world_size


def built(site: Site, hooks: list[Hooks]) -> Training:
    """Return the model, wrapped and with its optimizer."""
    shape = site.spec.shape
    torch.manual_seed(site.spec.seed)
    net: nn.Module = models.MODELS[shape["model"]]()
    ballast = sum(hook.ballast_bytes for hook in hooks) + int(shape.get("ballast_bytes", 0))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    if ballast:
        net = models.WithBallast(net, ballast)
    if site.spec.world_size > 1:
        net = DistributedDataParallel(net)
        if any(hook.timed_exchange for hook in hooks):
            exchange_times.note(net, site.measured)
    return Training(net, optimizer, torch.empty(0))


def batches_of(site: Site, count: int, hooks: list[Hooks]) -> Iterator[Any]:
    """Return the iterator over so many batches of this rank."""
    shape = site.spec.shape
    size = models.sample_shape(shape["model"], shape["scale"])
    length = next((hook.length for hook in hooks if hook.length is not None), None)
    loads = [hook.load for hook in hooks if hook.load is not None]
    samples = data.Samples(site.folder / "data", size, models.BATCH, count, loads, length)
    return iter(data.bare_batches(samples) if shape.get("source") == "get_batch" else data.loader(samples, shape["workers"]))


def one_step(site: Site, training: Training, labels: torch.Tensor, step: int, hooks: list[Hooks]) -> None:
    """Forward, backward and the optimizer, with the faults between them; in several micro-batches where the shape says so."""
    if device := site.spec.shape.get("device_seconds", 0.0):
        time.sleep(device)  # more ranks than cores cannot all compute at once: most of a step is waited for, as for a device
    parts = int(site.spec.shape.get("micro_batches", 1))
    training.optimizer.zero_grad()
    for number, (inputs, wanted) in enumerate(zip(training.inputs.chunk(parts), labels.chunk(parts), strict=True)):
        loss = nn.functional.cross_entropy(training.model(inputs), wanted) / parts
        for hook in hooks:
            if hook.forward is not None and not number:
                hook.forward(step)
        loss.backward()
    for hook in hooks:
        if hook.backward is not None:
            hook.backward(step)
    training.optimizer.step()


def calibrate(site: Site) -> None:
    """Run some clean steps that nobody watches, and keep their medians."""
    training = built(site, [])
    rows = []
    for step, (inputs, labels) in enumerate(_waited(batches_of(site, CLEAN_STEPS, []))):
        begin, delay, cpu = clock(), run_delay_seconds(), time.thread_time()
        one_step(site, Training(training.model, training.optimizer, inputs[0]), labels, step, [])
        rows.append((clock() - begin + inputs[1], inputs[1], run_delay_seconds() - delay, time.thread_time() - cpu))
    wall, wait, delay, cpu = (statistics.median(column) for column in zip(*rows[SETTLE_STEPS:], strict=True))
    site.measured.clean_step_seconds = agree(site, wall)
    site.measured.clean_wait_seconds = agree(site, wait)
    site.measured.clean_delay_seconds = agree(site, delay)
    site.measured.clean_cpu_seconds = agree(site, cpu)


def _waited(batches: Iterator[Any]) -> Iterator[tuple[tuple[torch.Tensor, float], torch.Tensor]]:
    """Yield each batch, with the seconds that it was waited for beside its inputs."""
    while True:
        begin = clock()
        try:
            inputs, labels = next(batches)
        except StopIteration:
            return
        yield (inputs, clock() - begin), labels


def train(site: Site) -> None:
    """Train one rank, with its faults, and leave what was measured in the run's folder."""
    if site.spec.shape.get("pinned"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[site.rank % len(cores)]})
    join(site)
    restored = site.folder / "clean.json"
    if site.attempt:  # a restart is to be as quick as a restart is
        site.measured.clean_step_seconds = float(restored.read_text())
    else:
        calibrate(site)
        if site.rank == 0:
            restored.write_text(str(site.measured.clean_step_seconds))
    hooks = faults.armed(site)
    training = built(site, hooks)
    if site.spec.world_size > 1:
        dist.barrier()
    try:
        with tachoscope.watch(job=site.job):
            _watched(site, training, hooks)
            leave(site)
    finally:
        for hook in hooks:
            if hook.after is not None:
                hook.after()
        site.measured.write(site.folder / f"rank-{site.rank}.json")


def _watched(site: Site, training: Training, hooks: list[Hooks]) -> None:
    measured, saves = site.measured, int(site.spec.shape.get("save_every", 0))
    first = restore(site, training) if saves else 0
    for hook in hooks:
        if hook.before is not None:
            hook.before()
    step = first
    for (inputs, wait), labels in _waited(batches_of(site, site.spec.steps - first, hooks)):
        begin, cpu, measured.step = clock(), time.thread_time(), step
        live = Training(training.model, training.optimizer, inputs)
        one_step(site, live, labels, step, hooks)
        measured.cpu.append(time.thread_time() - cpu)
        for hook in hooks:
            if hook.updated is not None:
                hook.updated(step, live)
        measured.wall.append(clock() - begin + wait)
        measured.wait.append(wait)
        step += 1
        measured.step = step  # what loads the next batch in this process belongs to the next step
        site.progress[site.rank] = step
        if saves and site.rank == 0 and step % saves == 0:
            save(site, training, step)


def save(site: Site, training: Training, step: int) -> None:
    """Save a checkpoint beside, then rename it."""
    torch.save({"step": step, "model": training.model.state_dict()}, site.folder / "step.tmp")
    (site.folder / "step.tmp").rename(site.folder / "step.pt")


def restore(site: Site, training: Training) -> int:
    """Read the newest checkpoint, if there is one, and return its step."""
    if not (site.folder / "step.pt").exists():
        return 0
    state = torch.load(site.folder / "step.pt")
    training.model.load_state_dict(state["model"])
    return int(state["step"])
