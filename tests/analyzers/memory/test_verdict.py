"""What grew before a kill, and what grows before one, on samples whose truth is planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from making import envelope
from tachoscope_analyzers.memory.verdict import MemoryJudgement, judge
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.records import records
from tachoscope_core.report.memory import MemoryGrowth
from tachoscope_core.report.report import Source

MIB = 1 << 20
T0 = 1.7e9
LIMIT = 1000 * MIB
Level = Callable[[float], float]


def flat(mib: float) -> Level:
    return lambda second: mib


NOTHING, LITTLE, USUAL = flat(0), flat(20), flat(200)


def job(
    seconds: int = 120,
    *,
    process: tuple[Level, ...] = (USUAL,),
    workers: Level | None = None,
    shared: Level = NOTHING,
    others: Level = LITTLE,
    growth: dict[str, float] | None = None,
    limit: int = LIMIT,
    kill: dict[str, Any] | None = None,
) -> JobRecords:
    """Return samples of ranks in one group, in MiB by second, and a kill at the end; rank 0 has the workers and what is shared."""
    rows = []
    for second in range(seconds):
        of_workers = workers(second) if workers is not None else 0.0
        anonymous = sum(level(second) for level in process) + of_workers + others(second)
        group = records.ControlGroupMemory(
            path="/job", limit_bytes=limit, anonymous_bytes=round(anonymous * MIB), shared_bytes=round(shared(second) * MIB)
        )
        for rank, level in enumerate(process):
            rows.append(
                records.MemorySampled(
                    **envelope(rank, second, time=T0 + second),
                    step=second * 10,
                    process=records.ProcessMemory(
                        pid=100 + rank,
                        anonymous_bytes=round(level(second) * MIB),
                        shared_bytes=round(shared(second) * MIB) * (rank == 0),
                    ),
                    workers=[records.ProcessMemory(pid=300, anonymous_bytes=round(of_workers * MIB))]
                    if of_workers and not rank
                    else [],
                    group=group,
                    available_bytes=8000 * MIB,
                    total_bytes=16000 * MIB,
                    growth=growth if growth and second == seconds // 2 and rank == 0 else {},
                )
            )
    kills = []
    if kill is not None:
        launcher = envelope(-1, 999, time=T0 + seconds, writer="launcher")
        fields = {"limit_of": "/job", "limit_bytes": limit, "killed_time": T0 + seconds, "sources": ["kernel_log"]} | kill
        kills = [records.OutOfMemory(**launcher, **fields)]
    return JobRecords("planted", Source(path="here"), memory=rows, out_of_memory=kills)


def of_rank(rank: int, mib: float, **more: Any) -> dict[str, Any]:
    memory = records.ProcessMemory(pid=100 + rank, anonymous_bytes=round(mib * MIB))
    return {"failed_rank": rank, "failed_writer": envelope(rank)["writer"], "failed_pid": 100 + rank, "memory": memory} | more


def grown(job: JobRecords) -> MemoryGrowth:
    judged = judge(job, 0, 5)
    assert judged.report is not None
    assert judged.report.growth is not None
    return judged.report.growth


def found(judged: MemoryJudgement) -> tuple[str, str, Any]:
    (one,) = judged.candidates
    assert one.slug == "out_of_memory"
    assert not np.any(one.seconds)
    return one.cause, one.level or "", one.ranks


def test_a_list_that_grows_in_one_of_two_ranks_is_its_process_since_the_step_and_with_the_rate_that_were_planted() -> None:
    records_of = job(process=(USUAL, lambda second: 200 + max(second - 60, 0) * 5), kill=of_rank(1, 505))
    growth = grown(records_of)

    assert (growth.part, growth.ranks) == ("process", [1])
    assert growth.since_step == pytest.approx(600, abs=30)
    assert growth.bytes_per_second == pytest.approx(5 * MIB, rel=0.1)
    assert growth.bytes_per_step == pytest.approx(0.5 * MIB, rel=0.1)
    assert found(judge(records_of, 0, 5)) == ("", "critical", [1])


def test_a_worker_that_grows_is_the_loader_of_its_rank_whatever_it_shares_with_it() -> None:
    growth = grown(job(workers=lambda second: 180 + 4 * second, kill=of_rank(0, 660, victim="loader_worker", failed_pid=300)))

    assert (growth.part, growth.ranks) == ("loader_workers", [0])


def test_pages_that_workers_copy_of_their_rank_count_as_theirs_though_no_process_holds_more() -> None:
    """Three processes map the same 300 MiB at first, and at last each has its own."""
    rows = []
    for row in job(process=(flat(300),), workers=flat(300), others=flat(20)).memory:
        assert row.group is not None
        copied = round(320 * MIB + min(row.step / 1000, 1.0) * 300 * MIB)
        rows.append(msgspec.structs.replace(row, group=msgspec.structs.replace(row.group, anonymous_bytes=copied)))
    kill = job(kill=of_rank(0, 300)).out_of_memory
    growth = grown(JobRecords("planted", Source(path="here"), memory=rows, out_of_memory=kill))

    assert (growth.part, growth.ranks) == ("loader_workers", [0])
    assert growth.bytes == pytest.approx(280 * MIB, rel=0.05)


def test_shared_memory_and_a_neighbour_are_told_apart_from_the_rank_that_is_killed_for_them() -> None:
    shared = grown(job(shared=lambda second: 5 * second, kill=of_rank(0, 200)))
    neighbour = grown(job(others=lambda second: 20 + 6 * second, kill=of_rank(0, 200)))

    assert (shared.part, shared.ranks) == ("shared_memory", [0])
    assert (neighbour.part, neighbour.ranks) == ("other_processes", [])


def test_a_jump_right_before_the_kill_is_seen_by_what_the_kernel_says_that_the_process_held() -> None:
    growth = grown(job(process=(flat(200), flat(210)), kill=of_rank(1, 790)))

    assert (growth.part, growth.ranks) == ("process", [1])
    assert growth.since_step == pytest.approx(1190, abs=20)
    assert growth.bytes == pytest.approx(580 * MIB, rel=0.01)


def test_what_a_rank_took_since_its_last_sample_is_not_taken_for_a_neighbours() -> None:
    """Another rank saw the group grow, and was killed for it neither."""
    planted = job(process=(flat(200), flat(210)), others=lambda second: 20 + 400 * (second > 110), kill=of_rank(1, 620))
    kept = [row for row in planted.memory if row.rank == 0 or row.time <= T0 + 110]
    growth = grown(JobRecords("planted", Source(path="here"), memory=kept, out_of_memory=planted.out_of_memory))

    assert (growth.part, growth.ranks) == ("process", [1])


def test_the_lines_that_were_followed_are_told_the_most_first() -> None:
    growth = grown(
        job(process=(lambda second: 200 + 5 * second,), growth={"train.py:9": 1e6, "train.py:41": 9e6}, kill=of_rank(0, 800))
    )

    assert [(one.line, one.bytes) for one in growth.lines] == [("train.py:41", 9_000_000), ("train.py:9", 1_000_000)]


def test_what_was_freed_by_a_kill_that_the_job_survives_grew_all_the_same() -> None:
    fallen = job(others=lambda second: 20 + 6 * second if second < 100 else 20, kill={"victim": "other", "killed_time": T0 + 100.2})
    growth = grown(fallen)

    assert (growth.part, growth.bytes) == ("other_processes", pytest.approx(594 * MIB, rel=0.02))


def test_the_kill_of_a_process_beside_the_job_is_a_warning_of_no_rank() -> None:
    judged = judge(job(others=lambda second: 20 + 6 * second, kill={"victim": "other", "failed_pid": 7}), 0, 5)

    assert found(judged) == ("other", "warning", "all")


def test_a_leak_is_told_before_it_kills_with_the_time_that_is_left_and_a_cache_is_not() -> None:
    leak = job(process=(lambda second: 200 + 4 * second,))
    judged = judge(leak, 0, 5)
    growth = grown(leak)

    assert found(judged) == ("soon", "warning", [0])
    assert growth.full_seconds == pytest.approx((1000 - 20 - 200 - 4 * 119) / 4, rel=0.1)
    assert judge(job(process=(lambda second: 200 + min(4 * second, 240),)), 0, 5).candidates == []


def test_of_a_rank_whose_samples_stopped_and_of_a_group_that_was_not_read_nothing_is_told() -> None:
    leak = job(process=(lambda second: 200 + 4 * second,))
    assert judge(leak, 0, 5, T0 + 119).candidates
    assert judge(leak, 0, 5, T0 + 119 + 200).candidates == []
    unread = [msgspec.structs.replace(row, group=None, limit_known=False) for row in leak.memory]
    judged = judge(JobRecords("planted", Source(path="here"), memory=unread), 0, 5)
    assert judged.candidates == []
    assert judged.report is not None
    assert judged.report.used is None


def test_without_samples_nothing_is_known_and_of_another_attempt_nothing_is_said() -> None:
    assert judge(JobRecords("planted", Source(path="here")), 0, 5).report is None
    later = [msgspec.structs.replace(row, attempt=1) for row in job().memory]
    assert judge(JobRecords("planted", Source(path="here"), memory=later), 0, 5).report is None
