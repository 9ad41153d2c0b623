"""The host: pauses of the training thread, saves, and memory that is short."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

import torch
from benchmarks.lab import cgroups
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.site import Hooks, Site, clock
from benchmarks.lab.spec import Planned


def _every(site: Site, planned: Planned, do: Callable[[Any], object]) -> Hooks:
    """Do something after each n-th step from `offset` on; with `apart` at other steps on each rank."""
    every = int(planned.parameters["every"])
    offset = int(planned.parameters.get("offset", 0))
    if planned.parameters.get("apart"):
        offset += site.rank * every // site.spec.world_size

    def updated(step: int, training: Any) -> None:
        if step >= planned.first_step and step % every == offset % every:
            with site.measured.time(planned.slug):
                do(training)

    return Hooks(updated=updated) if site.is_culprit(planned) else Hooks()


def _once_seconds(site: Site, planned: Planned) -> float:
    return site.target_seconds(planned) * int(planned.parameters["every"])


def collecting(site: Site, planned: Planned) -> Hooks:
    """Garbage is collected over many live objects."""
    gc.collect()
    begin = clock()
    gc.collect()
    usual = clock() - begin
    some = [[index] for index in range(100_000)]
    begin = clock()
    gc.collect()
    per_object = max(clock() - begin - usual, 1e-4) / len(some)
    wanted = max(0, round((_once_seconds(site, planned) - usual) / per_object))
    kept = [[index] for index in range(wanted)] if site.is_culprit(planned) else []
    hooks = _every(site, planned, lambda training: gc.collect())
    return Hooks(updated=hooks.updated, after=kept.clear)


def evaluating(site: Site, planned: Planned) -> Hooks:
    """The model is evaluated on some batches."""
    wanted = _once_seconds(site, planned)
    forward_seconds: list[float] = []

    def evaluate(training: Any) -> None:
        begin = clock()
        training.model.train(mode=bool(planned.parameters.get("in_training_mode")))
        with torch.no_grad():
            while clock() - begin < wanted - (forward_seconds[-1] / 2 if forward_seconds else 0):
                one = clock()
                training.model(training.inputs)
                forward_seconds.append(clock() - one)
        training.model.train()

    return _every(site, planned, evaluate)


def holding_the_interpreter(site: Site, planned: Planned) -> Hooks:
    """Another thread of the process holds the interpreter lock, as an extension does that forgot to release it.

    The truth: for how long it was held, less what the training thread computed meanwhile, by that thread's CPU clock.
    """
    if not site.is_culprit(planned):
        return Hooks()
    usleep = ctypes.PyDLL(None).usleep
    main = time.pthread_getcpuclockid(threading.get_ident())
    once, stop = _once_seconds(site, planned), threading.Event()
    pause = int(planned.parameters["every"]) * (site.seconds + site.target_seconds(planned)) - once

    def hold() -> None:
        while not stop.wait(pause):
            begin, cpu = clock(), time.clock_gettime(main)
            usleep(round(once * 1e6))
            site.measured.add(planned.slug, max(0.0, clock() - begin - (time.clock_gettime(main) - cpu)))

    thread = threading.Thread(target=hold, daemon=True)

    def after() -> None:
        stop.set()
        thread.join()

    return Hooks(before=thread.start, after=after)


def saving(site: Site, planned: Planned) -> Hooks:
    """A checkpoint is saved and made durable."""
    path = site.folder / f"state-{site.rank}.pt"

    def save(tensor: torch.Tensor) -> None:
        with path.open("wb") as file:
            torch.save({"state": tensor}, file)
            file.flush()
            os.fsync(file.fileno())

    trial = torch.ones(4 << 20)
    times = []
    for _ in range(3):
        begin = clock()
        save(trial)
        times.append(clock() - begin)
    count = round(trial.numel() * _once_seconds(site, planned) / sorted(times)[1])
    state = torch.ones(min(max(count, 4096), 128 << 20))
    return _every(site, planned, lambda training: save(state))


def sleeping(site: Site, planned: Planned) -> Hooks:
    """The training thread sleeps between two steps, after each n-th."""
    return _every(site, planned, lambda training: time.sleep(_once_seconds(site, planned)))


def stalling(site: Site, planned: Planned) -> Hooks:
    """The training thread waits within each step: between the loss and its backward, or between backward and the optimizer."""

    def stall(step: int) -> None:
        with site.measured.time(planned.slug):
            time.sleep(site.target_seconds(planned))

    return Hooks(forward=stall) if planned.parameters["before"] == "backward" else Hooks(backward=stall)


TABLE_BYTES, PAGE = 96 << 20, 4096
LIMIT_SLACK_BYTES = 24 << 20


def thrashing(site: Site, planned: Planned) -> Hooks:
    """The rank's memory is limited below what it works with: a table that it looks up in forward does not stay in memory.

    The table is a file that is mapped; the group's limit is what the process holds, and a part of the table. Looking up the
    rest costs page faults that read, and throws out pages that are needed next. The truth is the time of these look-ups, less
    that of looking up pages that are there.
    """
    if not site.is_culprit(planned):
        return Hooks()
    path = site.folder / f"table-{site.rank}.bin"
    with path.open("wb") as file:
        for _ in range(TABLE_BYTES >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    stack = ExitStack()
    descriptor = stack.enter_context(path.open("rb")).fileno()
    table = stack.enter_context(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
    table.madvise(mmap.MADV_RANDOM)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # what the page cache holds is charged to whoever brought it in
    group = cgroups.make("memory", f"{site.spec.id}-{site.rank}", {})
    cgroups.join(group)
    dice = Random(site.spec.seed)
    pages = TABLE_BYTES // PAGE

    def look_up(count: int) -> float:
        begin = clock()
        total = 0
        for _ in range(count):
            total += table[dice.randrange(pages) * PAGE]
        return clock() - begin

    held = _resident_anonymous_bytes()
    (group / "memory.limit_in_bytes").write_text(str(held + LIMIT_SLACK_BYTES))
    look_up(8000)
    page_seconds = look_up(1000) / 1000
    count = max(1, round(site.target_seconds(planned) / page_seconds))
    site.measured.notes["memory_limit_bytes"] = held + LIMIT_SLACK_BYTES

    def forward(step: int) -> None:
        site.measured.add(planned.slug, look_up(count))

    return Hooks(forward=forward, after=stack.close)


def _resident_anonymous_bytes() -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no RssAnon")


def _period(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    every = dice.choice([5, 8, 10] if ratio >= 0.2 else [10, 15, 20])
    return {"every": every, "offset": dice.randrange(every)}


def _seldom(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    """A collection takes at least as long as one over all that torch imported."""
    every = dice.choice([10, 15, 20])
    return {"every": every, "offset": dice.randrange(every), "apart": dice.random() < 0.5}


def _rank_or_all(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {**_period(dice, ratio, shape), "rank": dice.choice([0, 0, -1])}


def _some_rank(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    return {**_period(dice, ratio, shape), "rank": dice.randrange(2)}


def _period_and_mode(dice: Random, ratio: float, shape: dict[str, Any]) -> dict[str, Any]:
    """Some scripts forget `eval()`."""
    return {**_period(dice, ratio, shape), "in_training_mode": dice.random() < 0.5}


def _bare_loop(dice: Random, ratio: float) -> dict[str, Any]:
    return {"workers": 0, "source": "get_batch", "micro_batches": dice.choice([1, 4])}


CAUSES = (
    Cause("host_pause", "garbage", "ddp", collecting, _seldom),
    Cause("host_pause", "evaluation", "ddp", evaluating, _period_and_mode),
    Cause(
        "host_pause",
        "stall",
        "single",
        stalling,
        lambda dice, ratio, shape: {"before": dice.choice(["backward", "optimizer"])},
        shape=_bare_loop,
        world_size=1,
    ),
    Cause("host_pause", "interpreter_lock", "ddp", holding_the_interpreter, _some_rank, one_rank=True),
    Cause("checkpoint_stall", "save", "ddp", saving, _rank_or_all),
    Cause(
        "host_pause",
        "sleep",
        "ddp",
        sleeping,
        lambda dice, ratio, shape: {"every": dice.choice([1, 1, 4]), "offset": 0},
    ),
    Cause(
        "host_memory",
        "limit",
        "ddp",
        thrashing,
        lambda dice, ratio, shape: {"rank": dice.randrange(2)},
        needs=("two_cores", "memory_limit"),
        one_rank=True,
        shape=lambda dice, ratio: {"workers": 0},
    ),
)
