"""What became of a job under the schedule, by the notes of its ranks and its injector, beside what tachoscope says of it."""

from __future__ import annotations

import json
import re
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.recovery.job_folder import EVERY, NAME, Run, Step

from tachoscope.spool.ship import ship_left_behind
from tachoscope_core.storage.store import Store

EFFECTIVE = ("compute", "communication", "host_wait", "straggler_wait", "data_wait")
"""States of goodput in which a step is; a step of this training mostly sleeps."""
MOST_ERROR = 0.02
"""Of goodput, as a share of the truth."""
_FACTOR = re.compile(r"checkpoint interval ([\d.]+) times")


class Recovery(msgspec.Struct, frozen=True):
    """What followed a fault.

    Attributes:
        again: steps that were done again. limit: steps between the checkpoints then, and of the corrupt one as many more.
        seconds: from the fault to the next step that was new; 0: no restart followed.
    """

    fault: str
    again: int = 0
    limit: int = EVERY
    seconds: float = 0.0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. `goodput`: effective seconds as tachoscope counts them; None: it does not know the job."""

    steps: int
    wall: float
    effective: float
    goodput: float | None
    recoveries: list[Recovery]
    wrong: list[str]


def result(run: Run) -> Result:
    """Return the figures of a run that has ended; what a lost node had recorded is shipped first, as when it comes back."""
    ship_left_behind(Path(run.environment["TACHOSCOPE_SPOOL"]), Store(run.environment["TACHOSCOPE_STORE"]))
    firsts: dict[int, Step] = {}
    for step in sorted((step for rank in range(2) for step in run.noted(rank)), key=lambda step: step.ended):
        firsts.setdefault(step.number, step)
    last = max((step.ended for step in firsts.values()), default=run.began)
    return Result(
        steps=len(firsts),
        wall=last - run.began,
        effective=_effective(run, firsts),
        goodput=_goodput(run),
        recoveries=_recoveries(run, firsts),
        wrong=_wrong(run),
    )


def _effective(run: Run, firsts: dict[int, Step]) -> float:
    """Return the seconds of steps that no earlier attempt had done, as the mean of the ranks: what goodput counts.

    A step in which a process was stopped is not effective.
    """
    stopped = [one.time for one in run.planted if one.name == "hang"]
    new = [step for rank in range(2) for step in run.noted(rank) if firsts[step.number].ended >= step.began]
    return sum(one.ended - one.began for one in new if not any(one.began <= time <= one.ended for time in stopped)) / 2


def _recoveries(run: Run, firsts: dict[int, Step]) -> list[Recovery]:
    processes = [list(steps) for _, steps in groupby(run.noted(0), key=lambda step: step.pid)]
    found = {place: Recovery(one.name) for place, one in enumerate(run.planted)}
    highest = 0
    for before, after in pairwise(processes):
        began = after[0].began
        place = max((place for place, one in enumerate(run.planted) if one.time < began), default=-1)
        highest = max([highest, *(step.number for step in firsts.values() if step.ended < began)])
        fault = run.planted[place].name if place >= 0 else "none"
        known = found.get(place, Recovery(fault))
        new = firsts[highest + 1].ended - run.planted[place].time if place >= 0 and highest + 1 in firsts else 0.0
        limit = _interval(run, before) + (EVERY if fault == "corrupt checkpoint" else 0)
        found[place] = Recovery(fault, known.again + highest - after[0].number + 1, max(limit, known.limit), new)
    return [found[place] for place in sorted(found)]


def _interval(run: Run, steps: list[Step]) -> int:
    """Return how many steps lay between the last two checkpoints of an attempt, and at least the job's own interval."""
    saved = [number for number, time in run.saved() if steps[0].began <= time <= steps[-1].ended + 5.0]
    return max([EVERY, *(later - earlier for earlier, later in list(pairwise(saved))[-1:])])


def _wrong(run: Run) -> list[str]:
    """Return what was done and should not have been."""
    wrong = [f"resumed from the corrupt {name}" for name in run.resumed() if name == run.corrupt]
    status = (json.loads(run.call("status", NAME, "--format", "json") or "{}").get("training_jobs") or [{}])[0]
    restarts = sum(one["decision"] == "restart" for one in status.get("attempts", []))
    ending = [one for one in run.planted if one.name not in {"straggler", "slow storage"}]
    wrong += [f"{restarts} restarts for {len(ending)} faults that end an attempt"] if restarts > len(ending) else []
    slow = [one.time for one in run.planted if one.name == "slow storage"]
    for action in status.get("actions", []):
        factor = _FACTOR.search(action["text"])
        if factor and float(factor[1]) > 1 and not (slow and action["time"] > slow[0]):
            wrong.append(action["text"])
        if action["what"] == "quarantine_shards" and Path(run.bad_shard).name not in action["text"]:
            wrong.append(action["text"])
    return wrong


def _goodput(run: Run) -> float | None:
    """Return the effective seconds by goodput: those of a rank in steps that were not done again."""
    ledgers = json.loads(run.call("goodput", NAME, "--format", "json") or "{}").get("ledgers")
    if not ledgers:
        return None
    states: dict[str, Any] = ledgers[0]["states"]
    return float(sum(states.get(name, 0.0) for name in EFFECTIVE)) / 2


def by_fault(found: Result) -> list[str]:
    """Return a table with a row for each fault."""
    lines = ["| fault | steps again | of at most | s until a new step |", "|---|---|---|---|"]
    return lines + [f"| {one.fault} | {one.again} | {one.limit} | {one.seconds:.1f} |" for one in found.recoveries]


def shortcomings(found: Result, steps: int) -> list[str]:
    """Return what is not as it must be."""
    lines = [] if found.steps == steps else [f"{found.steps} of {steps} steps"]
    lines += [f"{one.fault}: {one.again} steps again" for one in found.recoveries if one.again > one.limit]
    error = error_of(found)
    lines += (
        []
        if error is not None and abs(error) <= MOST_ERROR
        else [f"goodput differs by {error:.1%}" if error is not None else "none"]
    )
    return lines + found.wrong


def error_of(found: Result) -> float | None:
    return found.goodput / found.effective - 1 if found.goodput is not None and found.effective else None
