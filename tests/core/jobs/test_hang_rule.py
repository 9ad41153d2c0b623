"""The one rule of who judges hangs: from when on, with which excuses, and which rank is named."""

import pytest

from tachoscope_core.jobs.hang_rule import LEAST_SECONDS, PATIENCE, RankState, is_hang, limit_seconds, stuck_rank


def ranks(
    *phases: str, silent: tuple[int, ...] = (), stopped: tuple[int, ...] = (), steps: dict[int, int] | None = None
) -> list[RankState]:
    return [
        RankState(rank, f"writer-{rank}", (steps or {}).get(rank, 5), phase, stopped=rank in stopped, silent=rank in silent)
        for rank, phase in enumerate(phases)
    ]


HANGS = {
    "ranks wait for one that computes": (ranks("backward", "forward"), 1),
    "ranks wait for one that loads": (ranks("collective", "data_wait", "collective"), 1),
    "all wait for each other": (ranks("backward", "collective"), None),
    "one is silent": (ranks("forward", "forward", silent=(0,)), 0),
    "one is silent while another saves": (ranks("checkpoint", "collective", silent=(1,)), 1),
    "one is stopped while all save": (ranks("checkpoint", "checkpoint", stopped=(1,)), 1),
    "one finished fewer steps": (ranks("backward", "forward", "backward", steps={2: 4}), 2),
}
PAUSES = {
    "all save": ranks("checkpoint", "checkpoint"),
    "all wait for one that saves": ranks("checkpoint", "collective"),
    "one is silent in its save": ranks("checkpoint", "collective", silent=(0,)),
    "all evaluate": ranks("evaluation", "evaluation"),
    "between two epochs": ranks("other", "gc", ""),
    "all compile": ranks("forward", "forward"),
    "all load": ranks("data_wait", "optimizer"),
}


@pytest.mark.parametrize("case", HANGS)
def test_a_job_hangs_once_it_is_beyond_the_limit_and_not_before(case: str) -> None:
    states, culprit = HANGS[case]

    assert not is_hang(states, LEAST_SECONDS, 0.1, LEAST_SECONDS)
    assert is_hang(states, LEAST_SECONDS + 0.1, 0.1, LEAST_SECONDS)
    assert not is_hang(states, LEAST_SECONDS + 0.1, LEAST_SECONDS, LEAST_SECONDS), "a step may take ten usual ones"
    stuck, why = stuck_rank(states)
    assert (stuck and stuck[0]) == culprit
    assert why


@pytest.mark.parametrize("case", PAUSES)
def test_what_may_take_its_time_is_not_a_hang(case: str) -> None:
    assert not is_hang(PAUSES[case], PATIENCE * LEAST_SECONDS, 1.0, LEAST_SECONDS)


@pytest.mark.parametrize("case", ["all compile", "all load"])
def test_a_step_in_which_nobody_waits_hangs_when_patience_ends(case: str) -> None:
    assert is_hang(PAUSES[case], PATIENCE * LEAST_SECONDS + 1.0, 1.0, LEAST_SECONDS)


def test_a_rank_that_is_lost_while_it_saves_does_not_excuse_the_others_for_ever() -> None:
    assert is_hang(PAUSES["one is silent in its save"], PATIENCE * LEAST_SECONDS + 1.0, 1.0, LEAST_SECONDS)
    assert not is_hang(PAUSES["all wait for one that saves"], 10 * PATIENCE * LEAST_SECONDS, 1.0, LEAST_SECONDS)


def test_the_limit_is_ten_usual_steps_and_never_less_than_the_least() -> None:
    assert [limit_seconds(usual, 30.0) for usual in (0.0, 1.0, 3.0, 60.0)] == [30.0, 30.0, 30.0, 600.0]
