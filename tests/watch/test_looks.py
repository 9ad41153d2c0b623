"""What a watch keeps from one cycle to the next saves it work, and changes nothing of what it says."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tachoscope_core.records import records
from tachoscope_core.storage import recent_segments
from tachoscope_core.storage import store as store_module
from tachoscope_core.storage.store import Store
from tachoscope_watch import cycle as cycles
from tachoscope_watch import judge_job
from tachoscope_watch.cycle import AT_REST_CYCLES, JobLooks
from tachoscope_watch.live_jobs import NodeReader
from tachoscope_watch.news import EVERY_SECONDS, turn
from tachoscope_watch.view import JobView
from watched_jobs import Phases, PlantedJob, counted, even, slow_input, standing, well


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what came of each look at a job, as looks are made."""
    seen: list[str] = []
    judge = cycles.judge_job

    def noting(store: Store, job: str, *rest: Any, **more: Any) -> cycles.Look | None:
        look = judge(store, job, *rest, **more)
        seen.append(f"{job}: " + ("nothing" if look is None else "unchanged" if look.unchanged else "judged"))
        return look

    monkeypatch.setattr(cycles, "judge_job", noting)
    return seen


def views(looks: JobLooks, folder: Path, pool: Executor, now: float | None = None) -> Mapping[str, JobView]:
    now = time.time() if now is None else now
    found = looks.cycle(now, pool, NodeReader(Store(str(folder))).live_jobs(now))
    return {view.job: view for view in found if isinstance(view, JobView)}


def test_a_job_is_judged_again_when_news_came_and_its_nodes_are_heard_all_the_same(
    tmp_path: Path, pool: Executor, judged: list[str]
) -> None:
    job = well(tmp_path, "job", phases=slow_input(2))
    looks = JobLooks(str(tmp_path))
    first = views(looks, tmp_path, pool)["job"]
    node = job.nodes["node-0"]
    node.jobs["job"].ranks[0].phase = "checkpoint"
    job.tell()
    second = views(looks, tmp_path, pool)["job"]

    assert judged == ["job: judged", "job: unchanged"]
    assert second.workers[0].phase == "checkpoint" != first.workers[0].phase
    assert (second.report, second.checkpoints, second.attempts) == (first.report, first.checkpoints, first.attempts)
    assert second.report is not None and second.report.findings[0].class_ == "input_straggler"

    a_minute(job)  # in which no rank is late
    views(looks, tmp_path, pool, job.now)
    assert judged[-1] == "job: judged"


def test_what_a_watch_says_is_what_one_says_that_was_just_started(tmp_path: Path, pool: Executor) -> None:
    well(tmp_path, "job", phases=slow_input(2))
    looks = JobLooks(str(tmp_path))
    views(looks, tmp_path, pool)
    kept, anew = (views(one, tmp_path, pool)["job"] for one in (looks, JobLooks(str(tmp_path))))

    assert kept.report is not None and anew.report is not None
    assert kept.report.findings == anew.report.findings
    assert (kept.state, kept.workers, kept.state_seconds) == (anew.state, anew.workers, anew.state_seconds)


def test_a_job_at_rest_is_looked_at_in_one_of_ten_cycles_and_at_once_when_a_node_knows_it(
    tmp_path: Path, pool: Executor, judged: list[str]
) -> None:
    old = PlantedJob(tmp_path, "old", now=time.time() - 86400)
    old.start(old.now)
    old.ship(old.now)
    looks = JobLooks(str(tmp_path))
    for _ in range(1 + AT_REST_CYCLES):
        assert views(looks, tmp_path, pool) == {}
    assert judged == ["old: nothing"] * 2

    well(tmp_path, "old")
    assert list(views(looks, tmp_path, pool)) == ["old"]


def test_ranks_whose_nodes_ship_at_other_times_are_judged_over_the_time_that_all_recorded(tmp_path: Path, pool: Executor) -> None:
    job = PlantedJob(tmp_path, "job")
    job.start(job.now - 600)
    end = job.steps(job.now - 599, job.now - 250, slow_input(2))
    job.ship()
    job.steps(end, job.now)
    for rank in (2, 3):  # these are shipped five minutes after the others
        job.lines[rank].clear()
    job.ship(flush_seconds=300.0)

    (view,) = views(JobLooks(str(tmp_path)), tmp_path, pool).values()
    assert view.report is not None, view.reason
    assert [(one.class_, one.ranks) for one in view.report.findings][:1] == [("input_straggler", [2])]


def a_minute(job: PlantedJob, phases: Phases = even) -> None:
    """Have a job train for another minute, and its agents ship what it recorded."""
    job.now += 60.0
    job.steps(job.now - 60.0, job.now, phases)
    job.ship(at=job.now)


def test_a_job_that_does_what_it_did_is_not_judged_with_each_record_but_within_three_minutes(
    tmp_path: Path, pool: Executor, judged: list[str]
) -> None:
    job = well(tmp_path, "job", now=time.time() - 3600)
    looks = JobLooks(str(tmp_path))
    judged_at = []
    for _ in range(10):
        a_minute(job)
        view = views(looks, tmp_path, pool, job.now)["job"]
        judged_at.append(view.judged)
        assert view.report is not None
        assert view.workers[0].step == job.step
        assert job.now - view.judged < EVERY_SECONDS

    assert 3 <= len(set(judged_at)) <= 5
    assert judged.count("job: unchanged") == 10 - len(set(judged_at))


def test_without_time_for_all_jobs_each_is_judged_in_its_turn_and_none_is_put_off_a_third_time(
    tmp_path: Path, pool: Executor
) -> None:
    now = time.time() - 3600
    planted = {name: well(tmp_path, name, now=now) for name in "abcde"}
    looks = JobLooks(str(tmp_path), budget=0.0)
    put_off = []
    for number in range(6):
        for job in planted.values():
            a_minute(job, even if number % 2 else slow_input(2))
        now += 60.0
        found = views(looks, tmp_path, pool, now)
        put_off.append([found[name].put_off for name in planted])
        assert all(now - view.judged == pytest.approx(60.0 * view.put_off) for view in found.values() if view.report is not None)
        assert all(view.report is not None or "no time" in view.reason for view in found.values())

    assert put_off[:3] == [[0, 1, 1, 1, 1], [1, 0, 2, 2, 2], [2, 1, 0, 0, 0]]  # a process always judges one
    assert max(map(max, put_off)) == 2


def test_the_job_that_changed_most_is_judged_first(tmp_path: Path, pool: Executor) -> None:
    now = time.time() - 3600
    planted = {name: well(tmp_path, name, now=now) for name in ("a", "b")}
    looks = JobLooks(str(tmp_path))
    views(looks, tmp_path, pool, now)
    for _ in range(2):
        a_minute(planted["a"], lambda step, rank: even(step, rank) | {"backward": 0.6})
        a_minute(planted["b"], lambda step, rank: even(step, rank) | {"backward": 2.0})

    assert list(views(looks, tmp_path, pool, now + 120.0)) == ["b", "a"]


def test_a_job_that_hangs_is_judged_however_little_time_there_is(tmp_path: Path, pool: Executor) -> None:
    for name in ("a", "b"):
        well(tmp_path, name)
    standing(tmp_path, "c", phases=dict.fromkeys(range(4), "backward"), silent=(2,))

    found = views(JobLooks(str(tmp_path), budget=0.0), tmp_path, pool)
    assert found["c"].state == "hung" and found["c"].report is not None and not found["c"].put_off
    assert [found[name].put_off for name in ("a", "b")] == [0, 1]


def test_a_job_that_does_something_new_is_judged_at_once_and_until_its_report_is_on_that_alone(
    tmp_path: Path, pool: Executor, judged: list[str]
) -> None:
    began = int(time.time()) - 3600
    while turn("job", began + 300) == turn("job", began + 299):  # it is due with the news, and again after three minutes
        began += 1
    job = well(tmp_path, "job", now=began)
    looks = JobLooks(str(tmp_path))
    for _ in range(4):
        a_minute(job)
        views(looks, tmp_path, pool, job.now)
    judged.clear()
    shares = []
    for _ in range(5):
        a_minute(job, slow_input(2))
        report = views(looks, tmp_path, pool, job.now)["job"].report
        assert report is not None
        shares.append(next(one.share for one in report.findings if one.class_ == "input_straggler"))

    assert judged == [*["job: judged"] * 4, "job: unchanged"]
    assert shares[0] < 0.75 * shares[1] and shares[1] == pytest.approx(shares[2], rel=0.05)


def test_a_job_that_cannot_be_judged_fails_in_each_cycle_until_it_can(
    tmp_path: Path, pool: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = well(tmp_path, "job", now=time.time() - 3600)
    looks = JobLooks(str(tmp_path))
    a_minute(job)
    assert views(looks, tmp_path, pool, job.now)
    monkeypatch.setattr(judge_job, "analyze", lambda _: 1 / 0)
    failing = []
    for _ in range(5):
        a_minute(job)
        failing.append(not views(looks, tmp_path, pool, job.now))
    assert True in failing and all(failing[failing.index(True) :])

    monkeypatch.undo()
    a_minute(job)
    assert views(looks, tmp_path, pool, job.now)["job"].judged == job.now


def test_a_job_is_judged_at_once_that_says_something_other_than_measurements(
    tmp_path: Path, pool: Executor, judged: list[str]
) -> None:
    job = well(tmp_path, "job", now=time.time() - 3600)
    looks = JobLooks(str(tmp_path))
    for _ in range(2):
        a_minute(job)
        views(looks, tmp_path, pool, job.now)
    judged.clear()
    job.write(records.IntegrityEvent, 1, job.now + 30.0, step=job.step, check="loss")
    a_minute(job)
    views(looks, tmp_path, pool, job.now)

    assert judged == ["job: judged"]


def test_a_job_that_does_as_before_costs_an_object_store_few_requests_a_cycle(
    pool: Executor, judged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (store_module, recent_segments):
        monkeypatch.setattr(module, "written_time", lambda _: time.time())  # memory keeps no time
    looks, store = JobLooks("memory://looked-at"), Store("memory://looked-at")
    jobs = [well("memory://looked-at", f"job-{number}", ranks=2) for number in range(3)]
    reader, asked = NodeReader(store), Counter[str]()
    list(looks.cycle(time.time(), pool, reader.live_jobs(time.time())))
    for name in ("ls", "find", "cat_file", "exists"):
        monkeypatch.setattr(store.files, name, counted(getattr(store.files, name), name, asked))

    found = list(looks.cycle(time.time(), pool, reader.live_jobs(time.time())))

    assert len(found) == len(jobs) and judged[-3:] == [f"{job.name}: unchanged" for job in jobs]
    assert asked["cat_file"] == 3, "what the nodes say; not again who owns the jobs"
    assert sum(asked.values()) - asked["cat_file"] <= 2 + 3 * len(jobs)
