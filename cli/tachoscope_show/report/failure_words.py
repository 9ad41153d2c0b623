"""Why attempts failed, in words: for the terminal, the page and the last lines of `tachoscope run` alike."""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_core.report.failures import Failure
from tachoscope_core.report.report import Report
from tachoscope_show.text.units import duration

TITLE = "why attempts failed"
COLUMNS = ("attempt", "first failure", "where", "what followed")
_MOST_SAID = 4
_MOST_CHARACTERS = 300


def ends_failed(report: Report) -> bool:
    """Return whether the last attempt that the report is about failed, and is not one that others went on from."""
    if not report.failures:
        return False
    last = report.life.attempts[-1].attempt if report.life and report.life.attempts else 0
    return report.failures[-1].attempt >= last


def cells(found: Sequence[Failure]) -> list[tuple[str, ...]]:
    """Return a row for each failure, the texts of `COLUMNS`."""
    return [
        (
            str(one.attempt),
            f"{who(one)} {how(one)}{_when(one)}",
            where(one),
            "; ".join([*followed(one), *filter(None, [stop(one)])]),
        )
        for one in found
    ]


def lines(one: Failure) -> list[str]:
    """Return a failure in sentences: the root first, then what followed, then whether another attempt is worth it."""
    place = f", at {where(one)}" if where(one) else ""
    found = [f"first failure: {who(one)} {how(one)}{place}{_when(one)}", *followed(one)]
    return [*found, stop(one)] if stop(one) else found


def who(one: Failure) -> str:
    """Return rank and host."""
    if one.rank is None:
        return one.host or "a rank that is not known"
    return f"rank {one.rank}" + (f" on {one.host}" if one.host else "")


def how(one: Failure) -> str:
    """Return what happened to the rank, with the beginning of what it said."""
    said = _first_line(one.message)
    if one.exception:
        return f"failed with {one.exception}" + (f": {said}" if said else "")
    if one.cause == "killed":
        return f"was {said or 'killed'}"
    if one.cause == "exited":
        return f"ended with {said}"
    if one.cause == "hang":
        return f"stood still: {said}"
    if one.cause == "host_lost":
        return "was not heard of any more, nor was its host"
    return f"was killed, {said or 'out of memory'}"


def where(one: Failure) -> str:
    """Return the line of the user's code, with its function; empty: not known."""
    named = one.function and one.function != "<module>"
    return f"{one.location} ({one.function})" if one.location and named else one.location


def followed(one: Failure) -> list[str]:
    """Return what other ranks failed with: the same by themselves, and what followed from the root."""
    found = [f"the same error on {_ranks(one.same_error)}"] if one.same_error else []
    said_after = one.said_after[:_MOST_SAID]
    found += [f"then rank {said.rank}{_later(said.seconds_after)}{_said(said.message)}" for said in said_after]
    more = one.cascade[_MOST_SAID:]
    return [*found, f"and then {_ranks(more)}"] if more else found


def stop(one: Failure) -> str:
    """Return why no other attempt should be made; empty: one is worth it."""
    if one.policy != "stop":
        return ""
    return (
        f"attempt {one.repeats_attempt} had the same first failure, and no new step was done since: another attempt will most "
        "likely fail the same way (policy: stop)"
    )


def _when(one: Failure) -> str:
    return f", in step {one.step:,}" if one.step is not None else ", before its first step ended"


def _later(seconds: float) -> str:
    if seconds >= 0.0005:
        return f" ({duration(seconds)} later)"
    return f" ({duration(-seconds)} before, while it waited)" if seconds <= -0.0005 else ""


def _said(message: str) -> str:
    line = _first_line(message)
    return f": {line}" if line else ""


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + "…"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > 8:
        return f"{len(ranks)} ranks ({ranks[0]}, {ranks[1]} … {ranks[-1]})"
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
