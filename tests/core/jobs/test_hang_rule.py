"""The one rule of who judges hangs: from when on, with which excuses, and which rank is named."""

import pytest

from tachoscope_core.jobs.hang_rule import (
    KNOWN_STEPS,
    LEAST_SECONDS,
    PATIENCE,
    QUICK_SECONDS,
    Pace,
    RankState,
    is_hang,
    limit_seconds,
    limits_of,
    stuck_rank,
)


def ranks(
    *phases: str,
    silent: tuple[int, ...] = (),
    stopped: tuple[int, ...] = (),
    still: tuple[int, ...] = (),
    blocked: tuple[int, ...] = (),
    closed: tuple[int, ...] = (),
    steps: dict[int, int] | None = None,
) -> list[RankState]:
    return [
        RankState(
            rank,
            f"writer-{rank}",
            (steps or {}).get(rank, 5),
            phase,
            stopped=rank in stopped,
            silent=rank in silent,
            still=rank in still,
            blocked="its loader worker is stopped" if rank in blocked else "",
            waits_for_itself=rank in closed,
        )
        for rank, phase in enumerate(phases)
    ]


HANGS = {
    "ranks wait for one that computes": (ranks("backward", "forward"), 1),
    "ranks wait for one that loads": (ranks("collective", "data_wait", "collective"), 1),
    "all wait for each other": (ranks("backward", "collective"), None),
    "one is silent": (ranks("forward", "forward", silent=(0,)), 0),
    "one is silent while another saves": (ranks("checkpoint", "collective", silent=(1,)), 1),
    "one is stopped while all save": (ranks("checkpoint", "checkpoint", stopped=(1,)), 1),
    "one loads and its worker is stopped": (ranks("backward", "data_wait", "backward", blocked=(1,)), 1),
    "a job of one rank whose worker is stopped": (ranks("data_wait", blocked=(0,)), 0),
    "one finished fewer steps": (ranks("backward", "forward", "backward", steps={2: 4}), 2),
}
PAUSES = {
    "all save": ranks("checkpoint", "checkpoint"),
    "all wait for one that saves": ranks("checkpoint", "collective"),
    "one is silent in its save": ranks("checkpoint", "collective", silent=(0,)),
    "all evaluate": ranks("evaluation", "evaluation"),
    "between two epochs": ranks("other", "gc", ""),
    "all compile": ranks("compile", "compile"),
    "all wait for one that compiles": ranks("compile", "backward"),
    "all compute": ranks("forward", "forward"),
    "all load": ranks("data_wait", "optimizer"),
}


@pytest.mark.parametrize("case", HANGS)
def test_a_job_hangs_once_it_is_beyond_the_limit_and_not_before(case: str) -> None:
    states, culprit = HANGS[case]

    assert not is_hang(states, LEAST_SECONDS, limits_of(0.1, LEAST_SECONDS))
    assert is_hang(states, LEAST_SECONDS + 0.1, limits_of(0.1, LEAST_SECONDS))
    assert not is_hang(states, LEAST_SECONDS + 0.1, limits_of(LEAST_SECONDS, LEAST_SECONDS)), "a step may take ten usual ones"
    stuck, why = stuck_rank(states)
    assert (stuck and stuck[0]) == culprit
    assert why


def test_a_rank_that_waits_is_not_named_where_others_are_not_seen() -> None:
    alone, behind = ranks("backward"), ranks("collective", "collective", steps={1: 4})
    for seen in (alone, behind):
        assert stuck_rank(seen)[0] is not None
        assert stuck_rank(seen, all_seen=False)[0] is None
    assert stuck_rank(ranks("backward", "forward"), all_seen=False)[0] == (1, "writer-1")
    assert stuck_rank(ranks("backward", stopped=(0,)), all_seen=False)[0] == (0, "writer-0")


@pytest.mark.parametrize("case", PAUSES)
def test_what_may_take_its_time_is_not_a_hang(case: str) -> None:
    assert not is_hang(PAUSES[case], PATIENCE * LEAST_SECONDS, limits_of(1.0, LEAST_SECONDS))


@pytest.mark.parametrize("case", ["all compute", "all load"])
def test_a_step_in_which_nobody_waits_hangs_when_patience_ends(case: str) -> None:
    assert is_hang(PAUSES[case], PATIENCE * LEAST_SECONDS + 1.0, limits_of(1.0, LEAST_SECONDS))


def test_a_rank_that_is_lost_while_it_saves_does_not_excuse_the_others_for_ever() -> None:
    assert is_hang(PAUSES["one is silent in its save"], PATIENCE * LEAST_SECONDS + 1.0, limits_of(1.0, LEAST_SECONDS))
    assert not is_hang(PAUSES["all wait for one that saves"], 10 * PATIENCE * LEAST_SECONDS, limits_of(1.0, LEAST_SECONDS))


def test_the_limit_is_ten_usual_steps_and_never_less_than_the_least() -> None:
    assert [limit_seconds(usual, 30.0) for usual in (0.0, 1.0, 3.0, 60.0)] == [30.0, 30.0, 30.0, 600.0]


def known(*pauses: float, usual: float = 1.0) -> Pace:
    """Return the pace of a job that did many steps, and then some that took longer."""
    pace = Pace()
    for step, seconds in enumerate([*[usual] * 50, *pauses], start=1):
        for _ in range(2):
            pace.add(step, seconds)
    return pace


QUICK = {
    "a rank that stands still in forward": (ranks("backward", "forward", still=(1,)), True),
    "a rank that is stopped": (ranks("backward", "data_wait", stopped=(1,)), True),
    "a silent rank that stands still": (ranks("backward", "", silent=(1,), still=(1,)), True),
    "all wait for each other, and all stand still": (ranks("collective", "backward", still=(0, 1)), True),
    "a rank that computes": (ranks("backward", "forward"), False),
    "a silent rank that computes": (ranks("backward", "forward", silent=(1,)), False),
    "a rank that waits for data": (ranks("backward", "data_wait", still=(1,)), False),
    "a rank between two steps": (ranks("backward", "other", still=(1,)), False),
    "one of two stands still": (ranks("backward", "forward", "forward", still=(1,)), False),
    "a rank whose loader worker is stopped": (ranks("backward", "data_wait", blocked=(1,)), True),
    "a job of one rank whose loader worker is stopped": (ranks("data_wait", blocked=(0,)), True),
    "a rank that loads and does nothing": (ranks("backward", "data_wait", still=(0, 1)), False),
    "a rank that loads and waits for itself": (ranks("backward", "data_wait", closed=(1,)), True),
    "a rank between two steps that waits for itself": (ranks("backward", "other", closed=(1,)), True),
    "one of two between two steps waits for itself": (ranks("backward", "other", "other", closed=(1,), still=(2,)), False),
    "one waits for itself while another saves": (ranks("checkpoint", "other", closed=(1,)), False),
    "all wait for themselves between two steps": (ranks("other", "other", closed=(0, 1)), False),
    "all wait for each other, and one moves": (ranks("collective", "backward", still=(0,)), False),
    "a rank that saves": (ranks("backward", "checkpoint", still=(0, 1)), False),
    "a silent rank while another saves": (ranks("checkpoint", "forward", silent=(1,), still=(1,)), False),
    "a job of one rank": (ranks("backward", still=(0,)), False),
}


@pytest.mark.parametrize("case", QUICK)
def test_in_a_known_job_that_is_seen_whole_what_stands_still_hangs_after_ten_seconds_and_nothing_else(case: str) -> None:
    states, quick = QUICK[case]
    seen, part = (limits_of(0.5, LEAST_SECONDS, known(usual=0.7), all_seen=all_seen) for all_seen in (True, False))

    assert not is_hang(states, QUICK_SECONDS, seen)
    assert is_hang(states, QUICK_SECONDS + 0.1, seen) == quick
    assert not is_hang(states, LEAST_SECONDS, part), "who sees a part of a job does not know what the others do"
    assert not is_hang(states, LEAST_SECONDS, limits_of(0.5, LEAST_SECONDS, Pace(), all_seen=True)), (
        "a job that just began is not known"
    )


def test_the_quick_limit_is_twice_the_longest_pause_and_the_whole_one_twice_a_pause_that_came_twice() -> None:
    def both(*pauses: float) -> tuple[float, float]:
        found = limits_of(0.5, LEAST_SECONDS, known(*pauses), all_seen=True)
        return found.quick, found.full

    assert both() == (10.0, 30.0)
    assert both(8.0) == (16.0, 30.0)
    assert both(100.0) == (30.0, 30.0), "it may have been a hang that passed"
    assert both(100.0, 40.0) == (80.0, 80.0)
    assert both(9000.0, 9000.0) == (PATIENCE * LEAST_SECONDS,) * 2, "no job may stand for as long as it likes"


def test_a_pause_counts_once_for_all_its_ranks_and_not_where_one_of_them_saves() -> None:
    pace = known()
    for step in (100, 101):
        pace.add(step, 60.0)  # it waits for the other
        pace.add(step, 60.0, excused_seconds=59.0)
        pace.add(step + 100, 60.0, excused_seconds=59.0)
        pace.add(step + 100, 60.0)
    pace.add(300, 20.0)
    pace.add(300, 20.0)

    assert (pace.pause(0), pace.pause(1)) == (20.0, 1.0)


def test_a_job_of_which_only_some_steps_are_seen_is_known_as_soon_as_any_and_a_restart_begins_its_numbers_anew() -> None:
    pace = Pace()
    for step in (*range(1, 1000, 10), 2, 12, 22):
        pace.add(step, 0.1)

    assert pace.steps == 990 + 20 and pace.seconds == pytest.approx(101.0, abs=1.0)


def test_the_first_steps_are_no_measure_and_a_job_is_known_by_steps_and_by_time() -> None:
    pace = Pace()
    pace.add(1, 500.0)
    pace.add(2, 500.0)
    assert (pace.steps, pace.pause(0)) == (0, 0.0)
    for step in range(3, 3 + KNOWN_STEPS):
        assert not pace.is_known
        pace.add(step, 0.01)
    assert not pace.is_known
    pace.add(100, 31.0)
    assert pace.is_known
