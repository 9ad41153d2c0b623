"""Who ended a planted attempt, when it was over, and how the job came back."""

from pathlib import Path

import pytest

from life_making import T0, PlantedLife, judged, killed_three_times
from tachoscope_core.records import records


def test_each_recovery_names_the_first_to_go_and_its_parts_make_the_whole(tmp_path: Path) -> None:
    _, life = judged(killed_three_times(), tmp_path)

    assert len(life.recoveries) == 3
    for number, one in enumerate(life.recoveries):
        assert (one.kind, one.rank, one.host, one.lost_steps) == ("killed", 1, "node-0", 1)
        assert one.failed_at - T0 == pytest.approx(20.0 * number + 11.5)
        parts = (
            one.detect_seconds,
            one.reschedule_seconds,
            one.rendezvous_seconds,
            one.restore_seconds,
            one.initialise_seconds,
            one.redo_seconds,
        )
        assert parts == pytest.approx((0.5, 10.0, 0.5, 1.5, 2.0, 1.0))
        first_new_step = 1.0
        assert one.total_seconds == pytest.approx(sum(part for part in parts if part is not None) + first_new_step)
        assert one.checkpoint == f"/ckpt/{4 * number + 4}"
    assert life.checkpoints is not None
    assert (life.checkpoints.saves, life.checkpoints.last_step, life.checkpoints.restore_seconds) == (4, 16, pytest.approx(1.5))


@pytest.mark.parametrize("gone_before", [0.2, 8.0])
def test_an_interrupt_by_the_user_is_nobodys_failure_but_one_after_a_failure_is_no_excuse(
    tmp_path: Path, gone_before: float
) -> None:
    life = PlantedLife()
    life.launcher(0.0, 21.0, code=130)
    for rank in range(2):
        life.process(rank, [1.0] * 10, start=1.0, begin=2.0, host=f"node-{rank}")
        life.gone(rank, 20.5 - (gone_before if rank else 0.0), start=1.0, host=f"node-{rank}", code=-2)
    _, told = judged(life, tmp_path)

    by_user = gone_before < 1
    assert told.attempts[0].ended == ("interrupted" if by_user else "killed")
    assert [(one.kind, one.host) for one in told.recoveries] == [("interrupted", "") if by_user else ("killed", "node-1")]
    assert bool(told.suspects) is not by_user


def test_an_attempt_is_over_when_the_next_one_begins_though_its_end_was_seen_later(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 30.0)
    for rank, (gone, again) in enumerate([(10.5, 10.7), (10.9, 11.0)]):
        life.process(rank, [1.0] * 5, start=1.0, begin=5.0)
        life.gone(rank, gone, start=1.0)
        life.process(rank, [1.0] * 5, attempt=1, start=again, begin=15.0, left=21.0)
    _, told = judged(life, tmp_path)

    first, second = told.attempts
    assert second.start - first.end == pytest.approx(0.0, abs=1e-3)


def test_of_two_that_one_watcher_saw_gone_at_nearly_the_same_time_it_is_the_first_though_it_was_seen_alive_later(
    tmp_path: Path,
) -> None:
    life = PlantedLife()
    life.launcher(0.0, 30.0)
    for rank in range(2):
        life.process(rank, [1.0] * 5, start=1.0, begin=5.0)
        life.gone(rank, 10.501 if rank == 0 else 10.5, start=1.0, seen=10.4 if rank else 10.1)
        life.process(rank, [1.0] * 5, attempt=1, start=11.0, begin=15.0, left=21.0)
    _, told = judged(life, tmp_path)

    assert [(one.kind, one.rank) for one in told.recoveries] == [("killed", 1)]


def test_a_short_last_attempt_of_a_command_is_not_one_of_the_next_command_on_that_host(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 20.0)
    life.launcher(21.0, 40.0, attempt=2)
    for rank in range(2):
        life.process(rank, [1.0] * 5, start=1.0, begin=5.0)
        life.gone(rank, 10.5 + rank, start=1.0)
        life.process(rank, [1.0], attempt=1, start=17.0, begin=18.0, left=19.5)
        life.process(rank, [1.0] * 5, attempt=2, start=22.0, begin=25.0, left=32.0)
    _, told = judged(life, tmp_path)

    assert [attempt.ended for attempt in told.attempts] == ["killed", "completed", "completed"]


def test_an_attempt_that_was_killed_for_want_of_memory_says_so_with_whose_limit_it_was(tmp_path: Path) -> None:
    life = PlantedLife()
    life.launcher(0.0, 12.0, code=137)
    for rank in range(2):
        life.process(rank, [1.0] * 5, start=1.0, begin=5.0)
        life.gone(rank, 10.5 + rank, start=1.0)
    who = {"failed_rank": 0, "failed_writer": life.writer(0, 0, 1.0), "limit_of": "/job", "killed_time": T0 + 10.4}
    life.add(records.OutOfMemory, 10.5, writer="watch-node-0", **who)
    _, told = judged(life, tmp_path)

    assert (told.attempts[0].ended, told.attempts[0].reason) == ("killed", "rank 0 on node-0, out of memory (limit of /job)")
