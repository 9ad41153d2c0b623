"""How often to save: what the present interval costs, which would cost least, and what to do where machines or storage change.

Times are what the job's records show; the model is that of `cost_model`. Advice from few failures says so.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tachoscope_analyzers.checkpoint_policy.cost_model import (
    DALY,
    VAIDYA,
    YOUNG,
    SaveCost,
    best_interval,
    daly_interval,
    lost_at_failure,
    useful_ratio,
    young_interval,
)
from tachoscope_analyzers.checkpoint_policy.preemptible import DAY, policy
from tachoscope_analyzers.data.package_data import shipped
from tachoscope_analyzers.stats.duration_text import in_words
from tachoscope_analyzers.stats.failure_rate import FailureRate, failure_rate
from tachoscope_core.report.job_life import Advice, CheckpointCosts

FEW = 5
"""Failures below which the limits of their rate are more than four times apart."""


def advise(
    costs: CheckpointCosts,
    *,
    failures: int,
    life_seconds: float,
    restart_seconds: float | None,
    shortest_seconds: float = 0.0,
    preemption_grace_seconds: float | None = None,
    preemptions: int = 0,
    hosts: int = 1,
) -> list[Advice]:
    """Return what saving costs and should cost, the present state first; only that where a save's cost was not measured.

    Cases: `now`; `optimum` if saves are synchronous, `asynchronous` if they are not, with `(rough)` after few failures and
    `(at least)` after none; for synchronous saves also the
    bound `asynchronous at best`, where it is worth a thought; `24 h preemptible`; `storage 2.0 times slower` where saves became
    slower.

    Args:
        failures: that came without notice in `life_seconds`, the time that the job was allocated.
        restart_seconds: of one failure, until the first step, restore included and steps done again not; None: not measured.
        shortest_seconds: of one step: no shorter interval is advised.
        preemption_grace_seconds: from a notice to the end of the machine; None: not known.
        preemptions: stops with notice, not among the failures. hosts: of the job, 1 or more.
    """
    if not life_seconds > 0:
        return []
    rate = failure_rate(failures, life_seconds)
    restart = costs.restore_seconds if restart_seconds is None else restart_seconds
    background = costs.background_seconds if costs.asynchronous else 0.0
    saving = SaveCost(costs.blocking_seconds, background, restart or 0.0, shortest_seconds)
    unknown = _restart_words(restart_seconds, costs.restore_seconds)
    advice = [_now(costs, saving, rate, unknown)]
    if not costs.saves or saving.blocking <= 0:
        return advice
    advice.append(_best(saving, rate, asynchronous=costs.asynchronous, unknown=unknown))
    if not costs.asynchronous:
        bound = _asynchronous_at_best(saving, rate)
        advice += [bound] if advice[-1].overhead - bound.overhead >= _assumed("worth_ratio") else []
    notice = preemption_grace_seconds
    advice.append(policy(saving, rate, notices=preemptions, hosts=hosts, notice_seconds=notice, caveat=unknown))
    if costs.slowdown is not None and costs.slowdown > _assumed("slowdown_ratio"):
        advice.append(_slower(costs, saving, rate, costs.slowdown))
    return advice


def _now(costs: CheckpointCosts, saving: SaveCost, rate: FailureRate, unknown: str) -> Advice:
    """Return what the present interval costs; without one, what failures at random moments of such a life undo on average."""
    interval = costs.interval_seconds
    if interval is None:
        whole = rate.life_seconds / (rate.failures + 1)
        made = f"{'one' if costs.saves else 'no'} checkpoint was seen in {in_words(rate.life_seconds)}"
        share = rate.failures / (rate.failures + 1)
        return Advice(
            what="now",
            interval_seconds=None,
            overhead=share,
            lost_at_failure_seconds=whole,
            basis=f"{made}, so no interval is known: a failure loses all work since the start, {in_words(whole)} on average",
        )
    return Advice(
        what="now",
        interval_seconds=interval,
        overhead=1 - useful_ratio(saving, interval, rate.cautious_seconds),
        lost_at_failure_seconds=lost_at_failure(saving, interval, rate.cautious_seconds),
        basis=f"medians of {costs.saves} saves: {_save_words(saving)}; {_rate_words(rate)}{unknown}",
    )


def _best(saving: SaveCost, rate: FailureRate, *, asynchronous: bool, unknown: str) -> Advice:
    between = rate.cautious_seconds
    interval = best_interval(saving, between)
    floor = " It is as short as a whole save allows." if interval <= saving.shortest else ""
    floor = " It is one step, since no save fits within one." if saving.shortest < interval <= saving.step else floor
    model = (
        f"exact optimum of Daly's complete model ({DALY}) for the blocking part alone: the background does not move it "
        f"({VAIDYA}), though a failure undoes so much more, and a save can only begin when the one before it is complete.{floor}"
        if asynchronous
        else f"exact optimum of Daly's complete model ({DALY}); {_approximations(saving.blocking, between, interval)}{floor}"
    )
    return Advice(
        what=f"{'asynchronous' if asynchronous else 'optimum'}{_certainty(rate)}",
        interval_seconds=interval,
        overhead=1 - useful_ratio(saving, interval, between),
        lost_at_failure_seconds=lost_at_failure(saving, interval, between),
        basis=f"{model} Here {_save_words(saving)}; {_rate_words(rate)}; {_span(saving, rate)}{unknown}",
    )


def _certainty(rate: FailureRate) -> str:
    return " (at least)" if rate.mean_seconds is None else " (rough)" if rate.failures < FEW else ""


def _asynchronous_at_best(saving: SaveCost, rate: FailureRate) -> Advice:
    """Return the cost of saves that do not block at all and write in the background for as long as they block now."""
    free = replace(saving, blocking=0.0, background=saving.blocking)
    interval = best_interval(free, rate.cautious_seconds)
    return Advice(
        what="asynchronous at best",
        interval_seconds=interval,
        overhead=1 - useful_ratio(free, interval, rate.cautious_seconds),
        lost_at_failure_seconds=lost_at_failure(free, interval, rate.cautious_seconds),
        basis=(
            f"a bound, not a forecast: saves in the background that take {in_words(saving.blocking)} and do not block at all, "
            "one after the other. Copying the state to host memory does block: the first such saves show what is left"
        ),
    )


def _slower(costs: CheckpointCosts, saving: SaveCost, rate: FailureRate, slowdown: float) -> Advice:
    """Return by how much to lengthen the interval, and the risk that this adds.

    The median save stands between the first quarter and the last, so the first are taken as 2 / (1 + slowdown) of it. Of a save in
    the background only that part waits for the storage.
    """
    between = rate.cautious_seconds
    first = 2 / (1 + slowdown)
    before, after = (_with_storage(saving, factor, asynchronous=costs.asynchronous) for factor in (first, first * slowdown))
    old, new = best_interval(before, between), best_interval(after, between)
    more = max(lost_at_failure(after, new, between) - lost_at_failure(before, old, between), 0.0)
    longer = (
        f"lengthen the interval to {new / old:.2f} times, from {in_words(old)} to {in_words(new)} (the optimum grows with the root "
        f"of the blocking time, {math.sqrt(after.blocking / before.blocking):.2f})"
        if new > old
        else f"the interval can stay at {in_words(new)}: what blocks did not change"
    )
    stay, move = (1 - useful_ratio(after, interval, between) for interval in (max(old, after.shortest), new))
    return Advice(
        what=f"storage {slowdown:.1f} times slower",
        interval_seconds=new,
        overhead=move,
        lost_at_failure_seconds=lost_at_failure(after, new, between),
        basis=(
            f"a save took about {in_words(before.shortest)} in the first quarter and takes {in_words(after.shortest)} in the last: "
            f"{longer}. A failure then undoes {in_words(more)} more than before, {in_words(more * DAY / between)} a day at this "
            f"rate; all in all {move:.2%} of the time is lost, with the interval of before {stay:.2%}"
        ),
    )


def _with_storage(saving: SaveCost, factor: float, *, asynchronous: bool) -> SaveCost:
    if asynchronous:
        return replace(saving, background=saving.background * factor)
    return replace(saving, blocking=saving.blocking * factor, background=0.0)


def _approximations(blocking: float, between: float, exact: float) -> str:
    """Return what the well-known formulas give, and where the first term is not enough."""
    young = young_interval(blocking, between)
    off = abs(young / exact - 1)
    coarse = f", {off:.0%} off: a save is not short against the time between failures" if off > _assumed("coarse_ratio") else ""
    series = in_words(daly_interval(blocking, between))
    return f"Young's sqrt(2 C M) ({YOUNG}) gives {in_words(young)}{coarse}, Daly's series {series}."


def _rate_words(rate: FailureRate) -> str:
    life = in_words(rate.life_seconds)
    if rate.mean_seconds is None:
        return f"no failure in {life}: at least {in_words(rate.low_seconds)} between two (95 % confidence), a bound and no estimate"
    count = "one failure" if rate.failures == 1 else f"{rate.failures} failures"
    few = f" (only {count}: rough)" if rate.failures < FEW else ""
    limits = f"90 % interval {in_words(rate.low_seconds)} to {in_words(rate.high_seconds)}"
    return f"{count} in {life}: {in_words(rate.mean_seconds)} between two{few}, {limits}"


def _span(saving: SaveCost, rate: FailureRate) -> str:
    """Return between which intervals the optimum lies, as the time between failures is known no better."""
    low = in_words(best_interval(saving, rate.low_seconds))
    if math.isinf(rate.high_seconds):
        return f"the optimum is {low} or longer"
    return f"the optimum lies between {low} and {in_words(best_interval(saving, rate.high_seconds))}"


def _save_words(saving: SaveCost) -> str:
    more = f" and takes {in_words(saving.background)} more in the background" if saving.background else ""
    return f"a save blocks {in_words(saving.blocking)}{more}"


def _restart_words(restart_seconds: float | None, restore_seconds: float | None) -> str:
    if restart_seconds is not None:
        return ""
    counted = "only reading the checkpoint is counted" if restore_seconds is not None else "not counted"
    return f"; restarting was not measured: {counted}"


def _assumed(name: str) -> float:
    return float(shipped("checkpoint_policy/advisor.yaml")[name]["value"])
