"""The ledger: every second of every rank in exactly one state."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.records import profiled_steps
from tachoscope_analyzers.records.steps import Steps
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_core.metrics.catalogue import TRAINING_STATES, UNEXPLAINED
from tachoscope_core.report.report import Ledger

STATE_OF_CAUSE = {
    "data_wait": "data_wait",
    "host_to_device": "host_to_device",
    "compute": "compute",
    "cpu_wait": "host_wait",
    "gc": "host_wait",
    "paused": "host_wait",
    "launch": "host_wait",
    "checkpoint": "checkpoint",
    "evaluation": "evaluation",
    "compile": "compile",
    "other": UNEXPLAINED,
}


def ledgers(steps: Steps, waits: dict[str, Matrix] | None = None, hung: Matrix | None = None) -> list[Ledger]:
    """Return the ledger over all ranks, then one for each rank, in rank-seconds over the judged steps.

    The wall time is that of the clock from the first step's begin to the last one's end, so seconds that no record covers show up
    as unexplained. Pauses of the job between steps are not part of it. Raises LedgerError if the states do not sum to it.

    Args:
        waits: the waiting of each rank by state, shape (K, R), where stages of a pipeline wait for each other; None: all ranks do
            the same, so that what the one that waited least still waited is communication, and the rest waiting for a late rank.
        hung: seconds of each rank in which the job hung, shape (K, R), that `steps` do not hold.
    """
    states = by_step(steps, waits, hung)
    by_rank = [_of_rank(steps, column, states) for column in range(len(steps.ranks))]
    total = Ledger(
        unit="rank",
        wall_seconds=sum(ledger.wall_seconds for ledger in by_rank),
        states={
            state: sum(ledger.states.get(state, 0.0) for ledger in by_rank)
            for state in TRAINING_STATES
            if any(state in ledger.states for ledger in by_rank)
        },
    )
    return [total, *by_rank]


def by_step(steps: Steps, waits: dict[str, Matrix] | None = None, hung: Matrix | None = None) -> dict[str, Matrix]:
    """Return the seconds of each step and rank by state, shape (K, R), without those that no record covers; see `ledgers`."""
    states: dict[str, Matrix] = {"hung": hung} if hung is not None else {}
    for cause, seconds in steps.own.items():
        state = STATE_OF_CAUSE[cause]
        states[state] = states[state] + seconds if state in states else seconds
    if waits is not None:
        states |= waits
    elif len(steps.ranks) == steps.world_size:
        transfer = np.minimum(steps.waiting.min(axis=1, keepdims=True), steps.waiting)
        states["communication"] = transfer
        states["straggler_wait"] = steps.waiting - transfer
    else:  # without the other ranks' records waiting and transfer cannot be told apart
        states["communication"] = steps.waiting
    return states


def _of_rank(steps: Steps, column: int, by_state: dict[str, Matrix]) -> Ledger:
    states = {state: float(seconds[:, column].sum()) for state, seconds in by_state.items()}
    states[UNEXPLAINED] += float(steps.lost_seconds[column])
    if steps.device == "cpu":
        left_out = profiled_steps.seconds(steps.numbers, steps.profiled, steps.begins, steps.ends) + steps.gap_seconds.sum(axis=0)
        wall = float(steps.ends[-1, column] - steps.begins[0, column] - left_out[column])
    else:  # by the device's clock: the ends are the host's, which is ahead of it now more and now less
        wall = float(steps.wall[:, column].sum() + steps.lost_seconds[column])
    return Ledger(
        unit="rank",
        rank=steps.ranks[column],
        wall_seconds=wall,
        states={state: states[state] for state in TRAINING_STATES if states.get(state, 0.0) > 0},
    )
