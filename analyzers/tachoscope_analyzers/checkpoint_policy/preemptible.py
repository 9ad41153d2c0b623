"""A policy for a job on machines that live at most a day and may be taken away before, with a short notice."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, lost_at_failure, useful_ratio
from tachoscope_analyzers.data.package_data import shipped
from tachoscope_analyzers.stats.duration_text import in_words
from tachoscope_analyzers.stats.failure_rate import FailureRate
from tachoscope_core.report.job_life import Advice

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Preemption:
    """How a job's machines are taken away.

    Attributes:
        between_seconds: mean time between two notices of the job, those at the end of a machine's life not counted.
        notice_seconds: from the notice to the end. life_seconds: after which a machine ends in any case; that is known beforehand.
    """

    between_seconds: float
    notice_seconds: float
    life_seconds: float


def policy(
    saving: SaveCost, rate: FailureRate, *, notices: int, hosts: int, notice_seconds: float | None, caveat: str = ""
) -> Advice:
    """Return the interval, the loss and the goodput to expect on machines that live at most 24 hours.

    Args:
        rate: of failures without notice. notices: preemptions with notice in the same life; 0: the documented rate is assumed.
        hosts: machines of the job, any of which ends it. notice_seconds: None: the shortest of the large clouds is assumed.
        caveat: what was not measured, for the basis.
    """
    assumed = {name: float(entry["value"]) for name, entry in shipped("checkpoint_policy/advisor.yaml").items()}
    between = rate.life_seconds / notices if notices else DAY / (assumed["preemptions_per_day"] * hosts)
    given = assumed["notice_seconds"] if notice_seconds is None else notice_seconds
    preemption = Preemption(between, given, assumed["machine_life_seconds"])
    fits = saving.shortest <= assumed["notice_usable_ratio"] * given
    losing, interval, goodput = expected(saving, rate.cautious_seconds, preemption, fits=fits)
    lost = lost_at_failure(saving, interval, losing)
    rated = (
        f"as {notices} were seen" if notices else f"assumed: {assumed['preemptions_per_day']:.0%} a day for each host, {hosts} here"
    )
    notice = (
        f"a save takes {in_words(saving.shortest)}, a notice {in_words(given)} ({'assumed' if notice_seconds is None else 'given'})"
    )
    emergency = (
        f"save once more at the notice: {notice}, so a preemption undoes no work"
        if fits
        else f"{notice}: too short to rely on a save at the notice, only the last regular one counts"
    )
    return Advice(
        what="24 h preemptible",
        interval_seconds=interval,
        overhead=1 - goodput,
        lost_at_failure_seconds=lost,
        basis=(
            f"save every {in_words(interval)} and just before a machine is {in_words(preemption.life_seconds)} old; {emergency}. "
            f"Preempted every {in_words(between)} ({rated}); failures without notice every {in_words(rate.cautious_seconds)}"
            f"{'' if rate.failures else ' (at least: none was seen)'}. "
            f"Expected goodput {goodput:.1%}, lost {in_words((1 - goodput) * DAY)} a day. "
            f"All machines are taken to start together{caveat}"
        ),
    )


def expected(saving: SaveCost, between_failures: float, preemption: Preemption, *, fits: bool) -> tuple[float, float, float]:
    """Return the mean seconds between stops that undo work, the best interval for them, and the share of time that is useful.

    Stops that were saved for cost a whole save and a restart each, and undo nothing. They come at the end of a machine's life
    and, if an emergency save fits, at each notice. A machine stops at the lesser of an exponential time and its life: after
    M (1 - e^(-life/M)) on average; it reaches its life with probability e^(-life/M).

    Args:
        between_failures: mean seconds between failures without notice.
    """
    between, life = preemption.between_seconds, preemption.life_seconds
    losing = between_failures if fits else 1 / (1 / between_failures + 1 / between)
    saved_every = -between * math.expm1(-life / between)
    if not fits:  # only the ends of lives; no more than e^700, which a float can hold
        saved_every = between * math.expm1(min(life / between, 700.0))
    interval = min(best_interval(saving, losing), life)
    stopped = saving.shortest + saving.restart
    return losing, interval, useful_ratio(saving, interval, losing) * saved_every / (saved_every + stopped)
