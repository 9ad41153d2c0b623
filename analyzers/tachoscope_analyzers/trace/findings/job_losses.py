"""The losses of all ranks side by side, over the steps that all of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.stats.arrays import Matrix, distinct
from tachoscope_analyzers.trace.device_time.ledger import HOST, STATES
from tachoscope_analyzers.trace.graph.replay import Counterfactual
from tachoscope_analyzers.trace.losses.by_rank import Loss
from tachoscope_analyzers.trace.losses.judged_rank import RankJudgement
from tachoscope_analyzers.trace.ranks.job import JobTraces

if TYPE_CHECKING:
    import pandas as pd

_NO_PATH = "a trace without device work does not show that the training thread waits for threads that communicate"


class JobLosses(msgspec.Struct, frozen=True):
    """K steps and R ranks.

    Attributes:
        numbers: shape (K,). ranks: R. step: mean length over the ranks, seconds, shape (K,).
        states: seconds by ledger state, each of shape (K, R); they sum to the rank's step. Waiting for late ranks is taken out of
            `communication` into `straggler_wait`, in the proportion that the collectives of all ranks show.
        seconds: by class, shape (K, R). loss: by class and rank, what the seconds are. what_if: replayed steps by class and rank.
        not_measured: the missing signal of each class that no rank's trace could show. decoding: see `RankJudgement`.
        host_only: ranks without device work, whose ledger is that of the host's main thread.
    """

    numbers: npt.NDArray[np.int64]
    ranks: list[int]
    step: Matrix
    states: dict[str, Matrix]
    seconds: dict[str, Matrix]
    loss: dict[str, dict[int, Loss]]
    what_if: dict[str, dict[int, Counterfactual]]
    not_measured: dict[str, str]
    decoding: bool
    host_only: frozenset[int]


def job_losses(job: JobTraces) -> JobLosses:
    """Return the losses of a job whose ranks were judged."""
    told = {
        rank: one.judgement for rank, one in job.summaries.items() if one.judgement is not None and len(one.judgement.losses.steps)
    }
    ranks = list(told)
    numbers, rows = _common([told[rank].losses.steps for rank in ranks])
    steps = [told[rank].losses.steps[rows[place]] for place, rank in enumerate(ranks)]
    states = {state: _matrix([table[f"{state}_ns"] / 1e9 for table in steps], len(numbers)) for state in STATES}
    states = _with_waits(states, job, ranks)
    seconds: dict[str, Matrix] = {}
    loss: dict[str, dict[int, Loss]] = {}
    for place, rank in enumerate(ranks):
        for one in told[rank].losses.losses:
            seconds.setdefault(one.slug, np.zeros((len(numbers), len(ranks))))[:, place] += one.seconds[rows[place]]
            loss.setdefault(one.slug, {})[rank] = one
    if "comm_exposed" in seconds:
        between_stages = states["communication"] * np.array([_point_to_point_ratio(job, rank) for rank in ranks])
        seconds["comm_exposed"] = states["communication"] - between_stages
        if between_stages.any():
            seconds["pipeline_bubble"], loss["pipeline_bubble"] = between_stages, _bubbles(loss["comm_exposed"])
    return JobLosses(
        numbers=numbers,
        ranks=ranks,
        step=_matrix([table["duration_ns"] / 1e9 for table in steps], len(numbers)).mean(axis=1) if ranks else np.zeros(0),
        states=states,
        seconds=seconds,
        loss=loss,
        what_if=_by_class(told),
        not_measured=_nowhere(told),
        decoding=any(one.decoding for one in told.values()),
        host_only=frozenset(rank for rank, one in told.items() if one.losses.steps["device"][0] == HOST),
    )


def by_step(collectives: pd.DataFrame, column: str, split: JobLosses) -> Matrix:
    """Return the sums of a column of `lateness.collective_table` by step, in seconds, shape (K,), each at most the step."""
    by_number = collectives.groupby("step")[column].sum() / 1e9
    sums = np.array([float(by_number.get(number, 0.0)) for number in split.numbers.tolist()])
    if not sums.any() and len(by_number):  # collectives whose step is not known count evenly
        sums = np.full(len(split.numbers), float(by_number.sum()) / len(split.numbers))
    return np.asarray(np.minimum(sums, split.step))


def _common(tables: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Return the step numbers that all ranks have, and where they stand in each rank's table.

    By position where they share none, or where numbers come twice (several recordings in one file).
    """
    if not tables:
        return np.zeros(0, dtype=np.int64), []
    each = [table["step"] for table in tables]
    numbers = each[0]
    for other in each[1:]:
        numbers = np.intersect1d(numbers, other)
    if len(each) == 1 or not len(numbers) or any(len(distinct(one)) < len(one) for one in each):
        count = min(map(len, each))
        return each[0][:count], [np.arange(count)] * len(each)
    return numbers, [np.flatnonzero(np.isin(one, numbers)) for one in each]


def _matrix(columns: list[Matrix], steps: int) -> Matrix:
    return np.stack(columns, axis=1) if columns else np.zeros((steps, 0))


def _with_waits(states: dict[str, Matrix], job: JobTraces, ranks: list[int]) -> dict[str, Matrix]:
    ratio = np.array([_ratio(job.exposed_wait_ns(rank), job.summaries[rank].exposed_ns) for rank in ranks])
    waiting = states["communication"] * ratio
    return states | {"communication": states["communication"] - waiting, "straggler_wait": waiting}


def _point_to_point_ratio(job: JobTraces, rank: int) -> float:
    """Return the share of a rank's exposed communication in sends and receives, where stages wait for each other."""
    groups = job.summaries[rank].by_group
    between_two = np.isin(groups["kind"], ["send", "recv"])
    return _ratio(groups["exposed_ns"][between_two].sum(), groups["exposed_ns"].sum())


def _bubbles(exposed: dict[int, Loss]) -> dict[int, Loss]:
    return {
        rank: msgspec.structs.replace(one, slug="pipeline_bubble", alternative="stage_imbalance") for rank, one in exposed.items()
    }


def _ratio(part: float, whole: float) -> float:
    return min(float(part) / float(whole), 1.0) if whole else 0.0


def _by_class(told: dict[int, RankJudgement]) -> dict[str, dict[int, Counterfactual]]:
    found: dict[str, dict[int, Counterfactual]] = {}
    for rank, one in told.items():
        host_only = one.losses.steps["device"][0] == HOST
        for slug, answer in one.what_if.items():
            # On CPU other threads exchange; that the main thread waits for them is in no event, so its path holds no exchange.
            unknown = host_only and slug == "comm_exposed"
            found.setdefault(slug, {})[rank] = msgspec.structs.replace(answer, refusal=_NO_PATH) if unknown else answer
    return found


def _nowhere(told: dict[int, RankJudgement]) -> dict[str, str]:
    """Return the classes that no rank could show, with the first rank's missing signal."""
    each = [one.losses.not_measured for one in told.values()]
    return {slug: signal for slug, signal in each[0].items() if all(slug in other for other in each)} if each else {}
