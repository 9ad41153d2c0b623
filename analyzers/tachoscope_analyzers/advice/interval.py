"""How often to save: what the present interval costs, and which costs least.

A report on one attempt does not know how often the job fails. So the best interval is given for several times between failures,
which are assumed and said to be; the model is that of `cost_model` (Daly's, of which Young's sqrt(2 C M) is the first term).
"""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_analyzers.advice.advised import Advised
from tachoscope_analyzers.advice.number_text import percent, time
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost, best_interval, useful_ratio
from tachoscope_analyzers.data.package_data import shipped
from tachoscope_core.report.job_life import Advice


def assumed_between_failures() -> tuple[float, ...]:
    """Return the times between failures, in seconds, for which advice is given where a job's own are not known."""
    assumed = shipped("checkpoint_policy/advisor.yaml")
    return tuple(float(assumed[f"failures_{often}_seconds"]["value"]) for often in ("often", "daily", "weekly"))


def of_attempt(saving: SaveCost, interval_seconds: float, share: float, job: str, *, failed: bool) -> Advised:
    """Return what the present interval costs and the best for assumed times between failures.

    Args:
        interval_seconds: from one save to the next. share: of the time that training stands still for saves, 0 to 1.
        job: its name. failed: whether it is known to have failed before: then its own rate is to be had.
    """
    rows = "; every ".join(_row(saving, between) for between in assumed_between_failures())
    own = f"this job's own rate: tachoscope goodput {job}" if failed else "rates assumed"
    now = f"training stands still for {time(saving.blocking)} every {time(interval_seconds)}, {percent(share)} of the time"
    other = "" if saving.background else ". Or save in the background"
    text = f"{now}. Best, with the loss by saves and work done again, for a failure every {rows} ({own}){other}"
    best = best_interval(saving, float(shipped("checkpoint_policy/advisor.yaml")["failures_daily_seconds"]["value"]))
    if best <= interval_seconds or best <= saving.blocking:
        return Advised(text)  # rarer saves than advised cost less than these
    settings = {"checkpoint_interval_seconds": round(best, 1)}
    return Advised(text, settings, saving.step * best / (best - saving.blocking) if saving.step else None)


def _row(saving: SaveCost, between: float) -> str:
    best = best_interval(saving, between)
    return f"{time(between)}: {time(best)}, {percent(1 - useful_ratio(saving, best, between))}"


def of_life(advice: Sequence[Advice]) -> str:
    """Return what to do by the advice on a job's whole life; empty where saves or their interval were not measured."""
    by_case = {one.what.partition(" (")[0]: one for one in advice}
    now, best = by_case.get("now"), by_case.get("optimum") or by_case.get("asynchronous")
    if now is None or best is None or now.interval_seconds is None or best.interval_seconds is None:
        return ""
    free = by_case.get("asynchronous at best")
    background = f"; in the background at best {percent(free.overhead)}" if free else ""
    lost = f"{percent(now.overhead)} of the time is lost to saves and work done again"
    if now.overhead - best.overhead < float(shipped("checkpoint_policy/advisor.yaml")["worth_ratio"]["value"]):
        return f"the interval of {time(now.interval_seconds)} is right ({lost}): make the save itself cheaper{background}"
    return (
        f"save every {time(best.interval_seconds)}, not every {time(now.interval_seconds)}: {lost} now, "
        f"{percent(best.overhead)} then{_sureness(best)}{background}"
    )


def _sureness(best: Advice) -> str:
    """Return what the advisor says of its failure rate: `rough` after few failures, `at least` after none."""
    _, bracket, said = best.what.partition(" (")
    return f" ({said.rstrip(')')}, few failures were seen)" if bracket else ""
