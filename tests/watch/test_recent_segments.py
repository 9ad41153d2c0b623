"""Of a job only what came lately is read, and who its writers are."""

import os
from collections import Counter
from pathlib import Path

import pytest

from tachoscope_core.storage import recent_segments as module
from tachoscope_core.storage.recent_segments import RecentSegments, recent_segments
from tachoscope_core.storage.store import Store
from watched_jobs import PlantedJob, counted

DAY = 86400.0


def shipping(folder: Path, now: float, ages: list[float]) -> PlantedJob:
    """Ship an object a rank at each of these ages, in seconds, the first with who the rank is."""
    job = PlantedJob(folder, "job", ranks=2, now=now)
    job.start(now - ages[0])
    for age in ages:
        job.beats(now - age, now - age, "forward")
        job.ship(now - age)
    return job


@pytest.mark.parametrize("now", [1.8e9, 20000 * DAY + 30.0], ids=["by day", "after midnight"])
def test_what_came_since_is_found_with_the_first_of_each_writer(tmp_path: Path, now: float) -> None:
    job = shipping(tmp_path, now, [3 * DAY, DAY, 600, 90, 40, 10])
    found = recent_segments(job.store, "job", since=now - 100, until=now)

    by_writer = {writer: [one.offset for one in found.recent if one.writer == writer] for writer in job.writers}
    assert {len(offsets) for offsets in by_writer.values()} == {3}
    assert [(one.writer, one.offset) for one in found.firsts] == [(writer, 0) for writer in sorted(job.writers)]
    assert {one.host for one in (*found.recent, *found.firsts)} == {"node-0"}


def test_the_first_is_not_read_twice(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [90, 40])
    found = recent_segments(job.store, "job", since=1.8e9 - 100, until=1.8e9)

    assert len({one.path for one in found.recent}) == 4
    assert found.firsts == []


def test_of_a_job_that_ended_nothing_is_found(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [900, 800])
    nothing = RecentSegments([], [])

    assert recent_segments(job.store, "job", since=1.8e9 - 100, until=1.8e9) == nothing
    assert recent_segments(job.store, "no-such-job", since=1.8e9 - 100, until=1.8e9) == nothing


def test_files_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [40])
    host = next(tmp_path.glob("jobs/job/records/*/host=*"))
    for name in (".x.partial", "notes.txt", "x"):
        (host / name).write_text("?")
        os.utime(host / name, (1.8e9, 1.8e9))
    os.utime(host, (1.8e9, 1.8e9))

    assert len(recent_segments(job.store, "job", since=1.8e9 - 100, until=1.8e9).recent) == 2


def test_what_is_older_than_all_ranks_need_is_left_out_and_the_choice_stays_until_something_is_written(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [300, 240, 180, 120, 60])
    job.lines[1].clear()
    job.beats(1.8e9, 1.8e9, "forward", (0,))
    job.ship(1.8e9)  # rank 1 wrote nothing for 60 s
    chosen = {
        later: recent_segments(job.store, "job", since=1.8e9 - 400 + later, until=1.8e9 + later, over=70) for later in (0, 50)
    }

    assert chosen[0] == chosen[50]
    ages = [[1.8e9 - os.stat(one.path).st_mtime for one in chosen[0].recent if one.writer == writer] for writer in job.writers]
    assert [sorted(map(round, of_rank)) for of_rank in ages] == [[0, 60, 120], [60, 120]]


def test_an_object_store_is_asked_little_about_a_job_that_began_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    store, now, writers = (
        Store("memory://began-long-ago"),
        1.8e9,
        [f"0000000{rank}-0000-4000-8000-000000000000" for rank in range(8)],
    )
    monkeypatch.setattr(module, "written_time", lambda _: now)  # memory keeps no time
    for age, offset in ((4 * DAY, 0), (2 * DAY, 100), (0.0, 200), (0.0, 300)):
        for writer in writers:
            store.write("job", host="node-0", writer=writer, attempt=0, offset=offset, time=now - age, lines=b"{}\n")
    asked: Counter[str] = Counter()
    for name in ("ls", "find", "exists"):
        monkeypatch.setattr(store.files, name, counted(getattr(store.files, name), name, asked))

    found = [recent_segments(store, "job", since=now - 100, until=now) for _ in range(2)]

    assert [one.writer for one in found[0].firsts] == writers and len(found[0].recent) == 16
    assert found[0] == found[1]
    first, second = {"ls": 1, "find": 1, "exists": 16}, {"ls": 1, "find": 1, "exists": 8}
    assert asked == Counter(first) + Counter(second), "what a day does not have is asked for once"
