"""How many DataLoader workers a rank needs, and what its host's cores allow.

Worker processes make batches side by side, one each, while the step computes. n of them bring a step's input every making / n
seconds, and are enough where that is no longer than the step: n = making / step, rounded up; and one more, or a tenth, since not
all batches take the same time and they are handed out in order. These are the bounds of operational analysis (Denning and Buzen
1978, https://doi.org/10.1145/356733.356735): throughput is at most servers / service time, and a step cannot be shorter than the
core-seconds that it costs over the cores that there are. What handing batches over costs, see `handover`, remains in each step; how
many workers there may be, see `worker_limits`. No number is advised that would not make the step clearly shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tachoscope_analyzers.advice.advised import NONE, Advised
from tachoscope_analyzers.advice.number_text import count, named_ranks, number, percent, time
from tachoscope_analyzers.advice.worker_limits import Limit
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.cores import Cores

_WIDE_RATIO = 1.15
"""Where the longest step that may be is more than this times the shortest, both are told, and no program gets one number."""


@dataclass(frozen=True, slots=True)
class Input:
    """What input costs, in seconds per step of one rank.

    Attributes:
        step: mean step. rest: that without waiting for input.
        making: of the input of a step in one process; where there are workers, the most that can be, workers x step.
        workers: worker processes of a rank now. ranks: late ones; empty: all are alike.
        computing: CPU seconds over seconds of making, None: not measured. cores: of the tightest host, None: not measured.
        bytes: read for a step, 0: not known.
        handover: what the training thread spends to take a step's batches from workers.
        limit: of the number of workers, None: none is known. splits: whether worker processes divide the samples among them, as
            they do of a map-style data set; None: not known.
    """

    step: float
    rest: float
    making: float
    workers: int
    ranks: tuple[int, ...] = ()
    computing: float | None = None
    cores: Cores | None = None
    bytes: float = 0.0
    handover: float = 0.0
    limit: Limit | None = None
    splits: bool | None = None

    @property
    def made(self) -> float:
        """Seconds of one worker for a step's input: it copies it into shared memory, which takes as long as taking it."""
        return self.making if self.workers else self.making + self.handover

    @property
    def slow_handover(self) -> float:
        """The hand-over on a machine on which it takes long: of a job without workers it was not measured."""
        return self.handover if self.workers else threshold("handover_spread") * self.handover


def needed_workers(making_seconds: float, step_seconds: float) -> int:
    """Return how many worker processes hide the making of a step's input behind the step: making / step, rounded up, and spare.

    Raises:
        ValueError: a step takes no time.
    """
    if step_seconds <= 0:
        raise ValueError(f"a step takes {step_seconds} s: no number of workers keeps up with it")
    return keeping_up(making_seconds, step_seconds) + spare_workers(making_seconds, step_seconds)


def keeping_up(making_seconds: float, step_seconds: float) -> int:
    """Return how many worker processes bring a step's input as fast as the steps go, if all batches take the same time."""
    return math.ceil(making_seconds / step_seconds - 1e-9)


def spare_workers(making_seconds: float, step_seconds: float) -> int:
    """Return the workers for batches that take longer than others: one, or a tenth where that is more."""
    return max(1, math.ceil(threshold("spare_workers_ratio") * making_seconds / step_seconds))


def shortest_step(step_seconds: float, cores: Cores) -> float:
    """Return the shortest step, in seconds, that the cores allow however the same work is arranged.

    A step costs step x used core-seconds, and used + idle cores need step x used / (used + idle) for them (the utilisation law).
    """
    return step_seconds * cores.busy_ratio


def expected_step(found: Input) -> float:
    """Return the seconds of a step with enough workers: that without waiting, with taking the batches from them; or what the cores
    allow where it is clearly more.

    A loader that does not compute needs no cores; and where other processes hold them, the job may yet get its share.
    """
    rest = found.rest + found.handover
    if found.cores is None or not _computes(found) or _others(found.cores):
        return rest
    floor = shortest_step(found.step, found.cores)
    return min(floor, found.step) if floor > threshold("cores_bound_ratio") * rest else rest


def step_with(found: Input, workers: int) -> float:
    """Return the seconds of a step with so many workers, one or more: they bring its input every made / workers seconds."""
    return max(expected_step(found), found.made / workers)


def longest_step(found: Input, workers: int) -> float:
    """Return the seconds of a step with so many workers where handing over is slow, and busy cores slow each other."""
    expected = step_with(found, workers)
    if _cores_bound(found):
        return expected / threshold("shared_cores_speed")
    return max(expected, found.rest + found.slow_handover)


def _cores_bound(found: Input) -> bool:
    return expected_step(found) > found.rest + found.handover


def _computes(found: Input) -> bool:
    return found.computing is None or found.computing >= threshold("loader_busy_ratio")


def _sure_of_cores(found: Input) -> bool:
    """Return whether the workers have cores to run on: they need none, or were seen idle."""
    return not _computes(found) or (found.cores is not None and not _others(found.cores))


def _others(cores: Cores) -> float:
    """Return the cores that other processes use, 0 where they are few or it is not known of how many."""
    others = cores.all - cores.used - cores.idle
    return others if others > threshold("others_cores_ratio") * cores.all else 0.0


def advice(found: Input) -> Advised:
    """Return how many workers to set and what it brings, or why more of them bring nothing; none where the step is all waiting."""
    if found.rest <= 0 or found.making <= 0 or found.step <= found.rest:
        return NONE
    goal = expected_step(found)
    enough = needed_workers(found.made, goal)
    number_ = enough if found.limit is None else min(enough, found.limit.most)
    worthwhile = threshold("worthwhile_step_ratio") * found.step
    if goal > worthwhile:
        return _no_cores(found) if _cores_bound(found) else _handover(found)
    if number_ <= found.workers or step_with(found, number_) > worthwhile:
        return _limited(found)
    expected, longest = step_with(found, number_), longest_step(found, number_)
    if longest > worthwhile:
        return _no_cores(found) if _cores_bound(found) else _handover(found)
    bound = f", at most {found.limit.most}: {found.limit.why}" if found.limit and number_ < enough else ""
    cores = _cores(found) if not bound or not _sure_of_cores(found) else ""
    text = f"{_head(number_, found)}: {_making(found)}; {_formula(found, goal)}{bound}{cores}{_condition(found)}. "
    settings = {"num_workers": number_} | ({} if found.workers else {"persistent_workers": True})
    return Advised(
        f"{text}{_expected(found, goal, expected, longest)}{_reading(found)}",
        settings if found.splits is not None and not found.ranks else {},
        expected if _sure_of_cores(found) and longest <= _WIDE_RATIO * expected else None,
    )


def _head(workers: int, found: Input) -> str:
    where = f" on {named_ranks(found.ranks)}, if its shards and storage path are in order" if found.ranks else ""
    return f"DataLoader(num_workers={workers}{'' if found.workers else ', persistent_workers=True'}){where}"


def _formula(found: Input, goal: float) -> str:
    if found.workers:
        making = f"{found.workers} x {time(found.step)}"
    else:
        making = f"({time(found.making)} + {time(found.handover)})" if found.handover else time(found.making)
    workers = needed_workers(found.made, goal)
    return f"ceil({making} / {time(goal)}) + {spare_workers(found.made, goal)} = {count(workers, 'worker')} a rank"


def _condition(found: Input) -> str:
    return " (not for an IterableDataset without get_worker_info())" if found.splits is None and not found.ranks else ""


def _making(found: Input) -> str:
    rest = f"the rest of the step {time(found.rest)}"
    rest += f", hand-over {time(found.handover)}" if found.handover else ""
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


def _expected(found: Input, goal: float, expected: float, longest: float) -> str:
    if not _sure_of_cores(found):
        return f"At best {time(expected)} a step instead of {time(found.step)}"
    between = time(expected) if longest <= _WIDE_RATIO * expected else f"{time(expected)} to {time(longest)}"
    if _cores_bound(found) and expected <= goal:
        return f"The cores allow steps of {between}, not {time(found.step)}; {time(found.rest)} if input is made cheaper"
    return f"Expected step: {between} instead of {time(found.step)}"


def _reading(found: Input) -> str:
    if not found.bytes:
        return ""
    rate = found.bytes / found.rest / 1e6
    return f", if storage gives {number(rate)} MB/s (now {number(found.bytes / found.step / 1e6)})" if rate >= 1 else ""


def _no_cores(found: Input) -> Advised:
    cores = found.cores or Cores(0.0, 0.0)
    return Advised(
        f"more workers cannot help: the job keeps {number(cores.used, 2)} cores busy and {number(cores.idle, 2)} are idle. A "
        f"step's input takes {time(found.making)}: prepare it ahead, make it cheaper, or decode on the device. "
        f"Expected step without it: {time(found.rest)} instead of {time(found.step)}",
        expected=found.rest,
    )


def _handover(found: Input) -> Advised:
    """Return what to do where a batch is made in hardly more time than a worker needs to hand it over."""
    if found.workers:
        what = f"{count(found.workers, 'worker')} bring a step's input every {time(found.step)}"
    else:
        what = f"making a step's input takes {time(found.making)}"
    return Advised(
        f"no workers for so small batches: {what}, and handing it over from a worker takes about {_slow(found)}. Make a "
        "batch in one go (`__getitems__`, or index a tensor that is in memory), or use larger batches. It helped if a step takes "
        f"less than {time(found.step)}"
    )


def _slow(found: Input) -> str:
    if found.slow_handover == found.handover:
        return time(found.handover)
    return f"{time(found.handover)}, on some machines {time(found.slow_handover)}"


def _limited(found: Input) -> Advised:
    """Return what to try where the limit leaves no room for workers that would help."""
    limit = found.limit or Limit(0, "")
    at_most = f"at most {count(limit.most, 'worker')}" if limit.most else "no worker"
    if found.splits is False:
        what = "Let `__iter__` yield only every n-th sample, by get_worker_info(); then add workers"
    elif _computes(found):
        what = "Make the input cheaper, prepare it ahead, or try fewer compute threads and one worker"
    else:
        what = "Ask for the samples of a batch at once (`__getitems__`, threads), or read them ahead"
    takes = f"{'at most ' if found.workers else ''}{time(found.making)}"
    return Advised(
        f"{at_most} a rank: {limit.why}. {what}. A step's input takes {takes}, "
        f"the rest of the step {time(found.rest)}. It helped if a step takes less than {time(found.step)}"
    )


def start_of_workers(waits_ratio: float, wait_seconds: float, step: float, rest: float) -> Advised:
    """Return what to do where workers keep up, but each epoch starts new ones.

    Args:
        waits_ratio: of the steps, that wait; wait_seconds: in each of them.
    """
    return Advised(
        f"the wait is in {percent(waits_ratio)} of the steps, {time(wait_seconds)} each, as often as an epoch begins: keep the "
        f"workers from one to the next: DataLoader(persistent_workers=True). Expected step: {time(rest)} instead of {time(step)}",
        {"persistent_workers": True},
        rest,
    )


def long_waits(waits_ratio: float, wait_seconds: float, step: float, *, persistent: bool | None) -> Advised:
    """Return what to look at where workers keep up, but a few waits are long for a reason that the records do not show.

    Args:
        persistent: whether the workers are kept from one epoch to the next, None: not known.
    """
    start = "" if persistent else "If these steps begin an epoch: DataLoader(persistent_workers=True). "
    return Advised(
        f"the wait is in {percent(waits_ratio)} of the steps, {time(wait_seconds)} each: otherwise the workers keep up. {start}If "
        f"a few batches take longer than others: a larger prefetch_factor. It helped if a step takes less than {time(step)}"
    )
