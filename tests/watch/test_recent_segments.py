"""Of a job only what came lately is read, and who its writers are."""

import os
from pathlib import Path

import pytest

from tachoscope_core.storage.recent_segments import recent_segments
from watched_jobs import PlantedJob

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

    by_writer = {writer: [one.offset for one in found if one.writer == writer] for writer in job.writers}
    assert {len(offsets) for offsets in by_writer.values()} == {4}
    assert all(0 in offsets for offsets in by_writer.values())
    assert {one.host for one in found} == {"node-0"}


def test_the_first_is_not_read_twice(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [90, 40])
    found = recent_segments(job.store, "job", since=1.8e9 - 100, until=1.8e9)

    assert len(found) == len({one.path for one in found}) == 4


def test_of_a_job_that_ended_nothing_is_found(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [900, 800])

    assert recent_segments(job.store, "job", since=1.8e9 - 100, until=1.8e9) == []
    assert recent_segments(job.store, "no-such-job", since=1.8e9 - 100, until=1.8e9) == []


def test_files_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    job = shipping(tmp_path, 1.8e9, [40])
    host = next(tmp_path.glob("jobs/job/records/*/host=*"))
    for name in (".x.partial", "notes.txt", "x"):
        (host / name).write_text("?")
        os.utime(host / name, (1.8e9, 1.8e9))
    os.utime(host, (1.8e9, 1.8e9))

    assert len(recent_segments(job.store, "job", since=1.8e9 - 100, until=1.8e9)) == 2
