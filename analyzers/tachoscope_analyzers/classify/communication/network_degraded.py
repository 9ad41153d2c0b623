"""The network against its own baseline: does moving the same bytes take longer than it did before, for all ranks?

What is compared with the baseline is the transfer, which the rank that waited least still waited: how long the others wait for a
late one has no part in it. Bus bandwidth is that of nccl-tests: bytes by seconds, times what each link of a ring carries of them,
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.classify.communication.slow_link import last_steps
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.ledger.losses import attribute
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps, aligned
from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.change_points import change_points
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Evidence

_RING_SHARES = {"all_reduce": 2.0, "broadcast": 0.0, "broadcast_object_list": 0.0, "reduce": 0.0}
"""How often each byte goes through (n - 1)/n of a ring; 0: all bytes go through each link once. Others once."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the transfer of a step takes where the network is well.

    Attributes:
        slow: the steps in which it took longer, shape (K,). seconds: mean of the transfer at the baseline, and `slow_seconds` in
            those steps. surely: part of the slow steps and baseline steps of which the slow one took longer, 0.5 if alike.
        since: what the baseline is of.
    """

    slow: Mask
    seconds: float
    slow_seconds: float
    surely: float
    since: str


def bus_factor(collective: str, ranks: int) -> float:
    """Return the bytes that each link of a ring of n ranks carries for a byte of the message, by nccl-tests."""
    times = _RING_SHARES.get(collective, 1.0)
    return 1.0 if times == 0.0 or ranks < 2 else times * (ranks - 1) / ranks


def bus_bytes(job: JobRecords, steps: Steps) -> float | None:
    """Return the bytes that each link carries per step for collectives, mean over the ranks; None: not recorded."""
    rows = [row for row in job.collectives if row.writer in steps.writers and row.peer < 0]
    last = last_steps(rows)
    moved = sum(row.bytes * bus_factor(row.collective, row.group_size or steps.world_size) / last[row.writer] for row in rows)
    exchanged = [beats.most("gradient_bytes") for beats in job.beats_of(steps.writers)]
    moved += sum(exchanged) * bus_factor("all_reduce", steps.world_size)
    return moved / len(steps.writers) if moved else None


def bandwidth_evidence(job: JobRecords, steps: Steps, seconds: float) -> list[Evidence]:
    """Return the bus bandwidth at that many seconds of transfer per step, if the bytes are known."""
    moved = bus_bytes(job, steps)
    if moved is None or seconds <= 0:
        return []
    return [
        measured(
            "bus bandwidth",
            moved / seconds,
            "bytes per second",
            f"{moved:.3g} bytes per step and link; not below its real value where exchange overlaps with computing",
        )
    ]


def degraded(job: JobRecords, steps: Steps, transfer: Matrix) -> tuple[Candidate | None, bool]:
    """Return what the step loses to a network that is slower than its baseline, and whether there was a baseline to compare with.

    The baseline is that of other steps of the attempt, from which the transfer shifted for good or for long, or else that of an
    earlier attempt with as many ranks and bytes. A shift that computing shares is not a doing of the network, nor is one that only
    the late rank has: when it stops being late it waits as long as the others, who waited for it before.

    Args:
        transfer: seconds that moving data took in each step, shape (K,).
    """
    within = shifted(transfer, steps.numbers)
    earlier = _earlier(job, steps, transfer)
    found = max((one for one in (within, earlier) if one is not None and one.slow.any()), key=_excess, default=None)
    if found is None or not _alone(steps, transfer, found):
        return None, earlier is not None
    seconds = np.where(found.slow, transfer - found.seconds, 0.0)
    evidence = [
        Evidence(
            signal=f"transfer, {_spell(steps, found.slow)}; threshold: {found.since}",
            value=found.slow_seconds,
            threshold=found.seconds * (1 + threshold("network_shift_ratio")),
            comparison=">=",
            unit="seconds per step",
            source="step records",
        ),
        Evidence(
            signal="odds that a step there takes longer to move its data than one of the baseline",
            value=found.surely,
            threshold=threshold("network_shift_odds"),
            comparison=">=",
            unit="ratio",
            source="step records",
        ),
        *bandwidth_evidence(job, steps, found.slow_seconds),
        *(
            msgspec.structs.replace(row, signal="bus bandwidth of the baseline")
            for row in bandwidth_evidence(job, steps, found.seconds)
        ),
    ]
    margin = 1 - found.seconds / found.slow_seconds
    return Candidate("network_degraded", seconds, "all", evidence, found.surely, ("comm_exposed", margin)), True


def shifted(seconds: Matrix, numbers: npt.NDArray[np.int64]) -> Baseline | None:
    """Return where a series is shifted upwards for long, against its own lowest level that lasts; None: it is not.

    Args:
        seconds: of each step, shape (K,). numbers: of the steps, shape (K,).
    """
    ends = [*change_points(seconds), len(seconds)]
    pieces = [np.arange(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    lasting = max(threshold("network_slow_steps"), len(seconds) / 10)
    long = [piece for piece in pieces if len(piece) >= lasting]
    if not long:
        return None
    medians = [float(np.median(seconds[piece])) for piece in long]
    base = long[int(np.argmin(medians))]
    slow = np.zeros(len(seconds), dtype=bool)
    for piece in pieces:
        if _above(seconds[piece], seconds[base]):
            slow[piece] = True
    if slow.sum() < lasting:
        return None
    return _baseline(seconds, slow, seconds[base], f"steps {numbers[base[0]]} to {numbers[base[-1]]}")


def _baseline(seconds: Matrix, slow: Mask, base: Matrix, since: str) -> Baseline:
    return Baseline(slow, float(base.mean()), float(seconds[slow].mean()), _odds(seconds[slow], base), since)


def _excess(found: Baseline) -> float:
    return float(found.slow.sum() * (found.slow_seconds - found.seconds))


def _above(values: Matrix, base: Matrix) -> bool:
    level = (1 + threshold("network_shift_ratio")) * float(np.median(base))
    return bool(np.median(values) >= level and _odds(values, base) >= threshold("network_shift_odds"))


def _odds(values: Matrix, base: Matrix) -> float:
    """Return the probability that one of `values` exceeds one of `base`, ties as half (Mann-Whitney effect size)."""
    ordered = np.sort(base)
    below = np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")
    return float(below.mean() / (2 * len(base)))


def _alone(steps: Steps, transfer: Matrix, found: Baseline) -> bool:
    """Return whether the transfer grew on all ranks, and computing or the wait for a core, which transfers need too, less."""
    well = ~found.slow
    if not well.any():
        return True  # the baseline is another attempt's
    grown = float(transfer[found.slow].mean() - transfer[well].mean())
    without_core = np.median(steps.own["cpu_wait"], axis=1)
    computing = np.median(steps.own["compute"], axis=1)
    more = sum(max(float(np.median(one[found.slow]) - np.median(one[well])), 0.0) for one in (without_core, computing))
    longest = np.median(steps.waiting.max(axis=1)[found.slow]) - np.median(steps.waiting.max(axis=1)[well])
    return more < grown / 2 and float(longest) >= grown / 2


def _earlier(job: JobRecords, steps: Steps, transfer: Matrix) -> Baseline | None:
    """Return the best earlier attempt with the same bytes and ranks as a baseline; None: there is none."""
    moved = bus_bytes(job, steps)
    if moved is None or not steps.transfer_measured:
        return None
    best: tuple[int, Matrix] | None = None
    attempts = np.unique(job.steps.column("attempt"))
    for attempt in attempts[attempts < steps.attempt].tolist():
        before = replace(job, steps=job.steps.in_attempt(attempt))
        try:
            past = aligned(before)
        except TachoscopeError:
            continue
        if past.ranks != steps.ranks or not past.transfer_measured or len(past.numbers) < threshold("network_slow_steps"):
            continue
        before_moved = bus_bytes(before, past)
        if before_moved is None or abs(before_moved / moved - 1) > threshold("network_same_bytes_ratio"):
            continue
        seconds = attribute(past).transfer
        if best is None or np.median(seconds) < np.median(best[1]):
            best = attempt, seconds
    if best is None:
        return None
    attempt, base = best
    slow = np.full(len(transfer), fill_value=_above(transfer, base) and len(transfer) >= threshold("network_slow_steps"))
    return _baseline(transfer, slow, base, f"attempt {attempt}") if slow.any() else Baseline(slow, 0.0, 0.0, 0.5, "")


def _spell(steps: Steps, slow: Mask) -> str:
    """Return the ranges of slow steps, such as `steps 3 to 7, 12 to 20`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], slow.astype(np.int8), [0]])))
    spells = [f"{steps.numbers[first]} to {steps.numbers[last - 1]}" for first, last in zip(edges[::2], edges[1::2], strict=True)]
    return "steps " + ", ".join(spells)
