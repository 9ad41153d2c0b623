"""Parts of a life in words, for the terminal and the page alike."""

from __future__ import annotations

from datetime import UTC, datetime

from tachoscope_core.report.job_life import Advice, Attempt, CheckpointCosts, Cost, Life, Notice, Recovery, Suspect
from tachoscope_core.report.report import Report
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import duration, percent, size

_WHO = {
    "slurm": "says Slurm",
    "kubernetes": "says Kubernetes",
    "launcher": "says the launcher",
    "agent": "says the node agent",
    "records": "by the ranks' own records",
}
_LEDGER = {"agents": "as the node agents counted them", "records": "from the records"}
_HOURS_FROM_SECONDS = 36_000.0
"""Rank time from which on hours are easier to read than seconds."""
_LOOK_SECONDS = 0.3
"""From one look of `tachoscope run` at its processes to the next."""
RECOVERY_TITLES = ("attempt", "ended", "whose", "at", "detect", "reschedule", "rendezvous", "start", "restore", "redo", "total")
ADVICE_TITLES = ("case", "interval", "overhead", "lost at a failure")


LEGEND = {"steps": "new steps (compute, communication and waits together)", "lost_work": "lost_work (steps done again)"}
"""What spans of an attempt are called where their state alone would mislead."""
_STEPS_COLOR = "#7BC8A4"
"""Not that of the ledger's compute, which is only a part of the new steps."""


def summary(report: Report, life: Life) -> str:
    """Return attempts, ranks, steps and the length of the life."""
    attempts, ranks = len(life.attempts), report.ranks
    length = duration(report.window.end - report.window.start)
    if not attempts:
        return f"no training step was seen in {length}"
    return (
        f"{attempts} attempt{'' if attempts == 1 else 's'}, {ranks} rank{'' if ranks == 1 else 's'}, "
        f"{life.new_steps:,} steps in {length}"
    )


def allocated(life: Life) -> str:
    """Return what goodput is compared with, and who says so."""
    words = f"allocated {duration(life.allocated_seconds)} of rank time, {_WHO[life.denominator]}"
    if life.queued_seconds is not None:
        words += f"; queued {duration(life.queued_seconds)} of rank time before"
    if life.excluded_seconds:
        words += f"; {duration(life.excluded_seconds)} of planned maintenance left out"
    return f"{words}; seconds by state {_LEDGER[life.ledger]}"


def cost(cost_: Cost) -> str:
    """Return hours, and money where a price is known."""
    words = f"{hours(cost_.hours)} {cost_.unit}-hours"
    if cost_.device:
        words += f" of {cost_.device}"
    if cost_.money is None:
        return f"{words}; no price is known" if cost_.unit == "GPU" else words
    return f"{words}, {money(cost_.money, cost_)} ({cost_.price_per_hour:g} {cost_.currency} an hour: {cost_.source})"


def tells_cost(life: Life) -> bool:
    """Return whether the cost says more than the allocated time: without a price, rank-hours do not."""
    return life.cost is not None and (life.cost.money is not None or life.cost.unit == "GPU")


def span_states(life: Life) -> list[str]:
    """Return the states of the spans of all attempts, each once."""
    return list(dict.fromkeys(span.state for one in life.attempts for span in one.spans))


def span_color(state: str) -> str:
    """Return the colour of a span of an attempt: that of its state, or of new steps in all their states."""
    return _STEPS_COLOR if state == "steps" else color(state)


def money(value: float, cost_: Cost) -> str:
    """Return an amount in the price's currency."""
    return f"{value:,.2f} {cost_.currency}"


def hours(value: float) -> str:
    """Return a number of hours; of less than seconds that it is little."""
    if value < 1e-3:
        return "0" if value < 1e-9 else "< 0.001"
    return f"{value:,.1f}" if value >= 10 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def state_row(state: str, seconds: float, report: Report, life: Life) -> tuple[str, str, str]:
    """Return share, hours and money of a state; empty where it costs nothing or no price is known."""
    value = seconds / 3600
    price = life.cost.price_per_hour if life.cost is not None and state != "queued" else None
    unit = life.cost.unit if life.cost is not None else "rank"
    paid = money(value * price, life.cost) if price is not None and life.cost is not None else ""
    long_enough = report.ledgers[0].wall_seconds >= _HOURS_FROM_SECONDS
    much = f"{hours(value)} {unit}-h" if long_enough else duration(seconds)
    return percent(seconds / report.ledgers[0].wall_seconds), much, paid


def state_heads(report: Report, life: Life) -> tuple[str, ...]:
    """Return the titles of what `state_row` gives; without the cost where no state has one."""
    priced = any(state_row(state, seconds, report, life)[-1] for state, seconds in report.ledgers[0].states.items())
    return ("share", "rank time", "cost") if priced else ("share", "rank time")


def attempt(one: Attempt) -> str:
    """Return which steps an attempt did and how it ended."""
    steps = f"steps {one.first_step:,} to {one.last_step:,}" if one.last_step else "no step"
    again = f", {one.redone:,} again" if one.redone else ""
    return f"{steps}{again}; {one.ended}" + (f": {one.reason}" if one.reason else "")


def recovery(one: Recovery) -> tuple[str, ...]:
    """Return the cells below `RECOVERY_TITLES`; `-`: not measured, or it never came."""
    everybody = {"preempted": "all", "interrupted": "the user"}.get(one.kind, "not known")
    whose = everybody if one.rank is None else f"rank {one.rank}" + (f", {one.host}" if one.host else "")
    parts = (
        one.rendezvous_seconds,
        one.initialise_seconds,
        one.restore_seconds,
        one.redo_seconds,
        one.total_seconds,
    )
    looked = (_looked(part) for part in (one.detect_seconds, one.reschedule_seconds))
    exact = ("-" if part is None else duration(part) for part in parts)
    return (str(one.attempt), one.kind, whose, clock(one.failed_at), *looked, *exact)


def _looked(part: float | None) -> str:
    """Return a length that follows from looks at the processes: no shorter one can be told."""
    if part is None:
        return "-"
    return duration(part) if part >= _LOOK_SECONDS else f"< {_LOOK_SECONDS:g} s"


def notice_outcome(one: Notice) -> str:
    """Return what came of a notice."""
    saved = "no emergency checkpoint" if one.saved_seconds is None else f"emergency checkpoint after {duration(one.saved_seconds)}"
    ended = "still running" if one.ended_seconds is None else f"gone after {duration(one.ended_seconds)}"
    verdict = {None: "", True: ", in time", False: ", not in time"}[one.in_time]
    return f"notice by {one.source} on {one.host} at {clock(one.time)}: {saved}, {ended}{verdict}"


def checkpoints(costs: CheckpointCosts) -> list[str]:
    """Return what saving and restoring cost, and which checkpoint can be trusted."""
    lines = []
    if costs.saves:
        every = f", one every {duration(costs.interval_seconds)}" if costs.interval_seconds is not None else ""
        behind = f" and {duration(costs.background_seconds)} behind it" if costs.background_seconds else ""
        much = f"; {size(costs.bytes)}" if costs.bytes else ""
        rate = f" at {size(costs.bytes_per_second)}/s" if costs.bytes_per_second is not None else ""
        lines.append(
            f"{costs.saves} saved{every}; training stands still for {duration(costs.blocking_seconds)}{behind}{much}{rate}"
        )
    if costs.restore_seconds is not None:
        lines.append(f"reading one takes {duration(costs.restore_seconds)}")
    if costs.slowdown is not None and costs.slowdown > 1:
        lines.append(f"the last quarter took {costs.slowdown:.2f} times as long as the first")
    if costs.last_reference:
        lines.append(f"newest: {costs.last_reference} (step {costs.last_step:,})")
    if costs.saves:
        sound = f"{costs.verified_reference} (step {costs.verified_step:,})" if costs.verified_reference else "none: not measured"
        lines.append(f"newest that was verified: {sound}")
    # A fault names the file, and with it the checkpoint.
    return lines + [f"NOT SOUND: {fault if name in fault else f'{name}: {fault}'}" for name, fault in costs.faults.items()]


def advice(one: Advice) -> tuple[str, str, str, str]:
    """Return the cells below `ADVICE_TITLES`."""
    interval = duration(one.interval_seconds) if one.interval_seconds is not None else "-"
    return one.what, interval, percent(one.overhead), duration(one.lost_at_failure_seconds)


def suspect(one: Suspect) -> str:
    """Return what speaks against a host or shard."""
    many = f"{one.failures} failure{'' if one.failures == 1 else 's'}, {one.expected:.1f} expected"
    listed = ", in quarantine" if one.quarantined else ""
    return f"{one.kind} {one.name}: {many}, confidence {one.confidence:.2f}{listed}" + (f"; {one.action}" if one.action else "")


def clock(unix: float) -> str:
    """Return Unix seconds as a time of day in UTC."""
    return datetime.fromtimestamp(unix, UTC).strftime("%m-%d %H:%M:%S")
