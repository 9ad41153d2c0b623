"""How many DataLoader workers a rank needs, and what its host's cores allow.

Worker processes make batches side by side, one each, while the step computes. n of them bring a step's input every making / n
seconds, and are enough where that is no longer than the step: n = making / step, rounded up; and one more, or a tenth, since not
all batches take the same time and they are handed out in order. These are the bounds of operational analysis (Denning and Buzen
1978, https://doi.org/10.1145/356733.356735): throughput is at most servers / service time, and a step cannot be shorter than the
core-seconds that it costs over the cores that there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tachoscope_analyzers.advice.words import count, named_ranks, number, percent, time
from tachoscope_analyzers.cores import Cores
from tachoscope_analyzers.thresholds import threshold


@dataclass(frozen=True, slots=True)
class Input:
    """What input costs, in seconds per step of one rank.

    Attributes:
        step: mean step. rest: that without waiting for input.
        making: of the input of a step in one process; where there are workers, the most that can be, workers x step.
        workers: worker processes of a rank now. ranks: late ones; empty: all are alike.
        computing: CPU seconds over seconds of making, None: not measured. cores: of the tightest host, None: not measured.
        bytes: read for a step, 0: not known.
    """

    step: float
    rest: float
    making: float
    workers: int
    ranks: tuple[int, ...] = ()
    computing: float | None = None
    cores: Cores | None = None
    bytes: float = 0.0


def needed(making_seconds: float, step_seconds: float) -> int:
    """Return how many worker processes hide the making of a step's input behind the step: making / step, rounded up, and spare.

    Raises:
        ValueError: a step takes no time.
    """
    if step_seconds <= 0:
        raise ValueError(f"a step takes {step_seconds} s: no number of workers keeps up with it")
    return math.ceil(making_seconds / step_seconds - 1e-9) + spare(making_seconds, step_seconds)


def spare(making_seconds: float, step_seconds: float) -> int:
    """Return the workers for batches that take longer than others: one, or a tenth where that is more."""
    return max(1, math.ceil(threshold("spare_workers_ratio") * making_seconds / step_seconds))


def shortest_step(step_seconds: float, cores: Cores) -> float:
    """Return the shortest step, in seconds, that the cores allow however the same work is arranged.

    A step costs step x used core-seconds, and used + idle cores need step x used / (used + idle) for them (the utilisation law).
    """
    return step_seconds * cores.busy_ratio


def expected_step(found: Input) -> float:
    """Return the seconds of a step with enough workers: that without waiting, or what the cores allow where it is clearly more.

    A loader that does not compute needs no cores; and where other processes hold them, the job may yet get its share.
    """
    if found.cores is None or not _computes(found) or _others(found.cores):
        return found.rest
    floor = shortest_step(found.step, found.cores)
    return min(floor, found.step) if floor > threshold("cores_bound_ratio") * found.rest else found.rest


def _computes(found: Input) -> bool:
    return found.computing is None or found.computing >= threshold("loader_busy_ratio")


def _others(cores: Cores) -> float:
    """Return the cores that other processes use, 0 where they are few or it is not known of how many."""
    others = cores.all - cores.used - cores.idle
    return others if others > threshold("others_cores_ratio") * cores.all else 0.0


def advice(found: Input) -> str:
    """Return how many workers to set and what it brings, or why more of them bring nothing; empty where the step is all waiting."""
    if found.rest <= 0 or found.making <= 0 or found.step <= found.rest:
        return ""
    goal = expected_step(found)
    if goal > found.rest and found.step < threshold("cores_bound_ratio") * goal:
        return _no_cores(found)
    workers = needed(found.making, goal)
    more = spare(found.making, goal)
    making = f"{found.workers} x {time(found.step)}" if found.workers else time(found.making)
    formula = f"ceil({making} / {time(goal)}) + {more} = {count(workers, 'worker')} a rank"
    return f"{_head(workers, found)}: {_making(found)}; {formula}{_cores(found)}. {_expected(found, goal)}{_reading(found)}"


def _head(workers: int, found: Input) -> str:
    where = f" on {named_ranks(found.ranks)}, if its shards and storage path are in order" if found.ranks else ""
    return f"DataLoader(num_workers={workers}{'' if found.workers else ', persistent_workers=True'}){where}"


def _making(found: Input) -> str:
    rest = f"the rest of the step {time(found.rest)}"
    if found.workers:
        bring = "bring" if found.workers > 1 else "brings"
        return f"{count(found.workers, 'worker')} now {bring} one step's input every {time(found.step)}, {rest}"
    return f"a step's input takes {time(found.making)} in one process, {rest}"


def _cores(found: Input) -> str:
    """Return the cores that are idle; for a loader that computes, the condition that they are where that was not seen."""
    if found.cores is None:
        return ", if as many cores are free" if _computes(found) else ""
    others = _others(found.cores)
    if others:
        return f", if cores are free: other processes use {number(others, 2)} of {found.cores.all}" if _computes(found) else ""
    whole = f" of {found.cores.all}" if found.cores.all >= found.cores.idle else ""
    return f"; {number(found.cores.idle, 2)}{whole} cores are idle"


def _expected(found: Input, goal: float) -> str:
    if goal > found.rest:
        return f"The cores allow steps of {time(goal)}, not {time(found.step)}; {time(found.rest)} if input is made cheaper"
    return f"Expected step: {time(goal)} instead of {time(found.step)}"


def _reading(found: Input) -> str:
    if not found.bytes:
        return ""
    rate = found.bytes / found.rest / 1e6
    return f", if storage gives {number(rate)} MB/s (now {number(found.bytes / found.step / 1e6)})" if rate >= 1 else ""


def _no_cores(found: Input) -> str:
    cores = found.cores or Cores(0.0, 0.0)
    return (
        f"more workers cannot help: the job keeps {number(cores.used, 2)} cores busy and {number(cores.idle, 2)} are idle. A "
        f"step's input takes {time(found.making)}: prepare it ahead, make it cheaper, or decode on the device. "
        f"Expected step without it: {time(found.rest)} instead of {time(found.step)}"
    )


def start_of_workers(waits_ratio: float, wait_seconds: float, step: float, rest: float) -> str:
    """Return what to do where workers keep up, but in few steps the wait is long: as when an epoch starts them anew.

    Args:
        waits_ratio: of the steps, that wait; wait_seconds: in each of them.
    """
    return (
        f"the wait is in {percent(waits_ratio)} of the steps, {time(wait_seconds)} each: otherwise the workers keep up. If these "
        "steps begin an epoch, keep the workers from one to the next: DataLoader(persistent_workers=True). "
        f"Expected step: {time(rest)} instead of {time(step)}"
    )
