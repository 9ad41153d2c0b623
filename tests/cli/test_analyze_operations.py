"""`tachoscope analyze` on recorded operations, as its user sees it."""

import json
import subprocess
from pathlib import Path

import pytest

from helpers import command
from operations_making import Plan, write

SLOW = Plan(steps=6, worker={(1, 1): 1.6})


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    return command("analyze", *words)


def test_a_recording_gives_a_report_in_every_format(tmp_path: Path) -> None:
    path = write(tmp_path, SLOW, "job7")

    text, page, told = (analyze(path, "--format", format_) for format_ in ("text", "html", "json"))

    assert (text.returncode, page.returncode, told.returncode) == (0, 0, 0), text.stderr + page.stderr + told.stderr
    assert "job job7" in text.stdout and "compute_straggler, rank 5" in text.stdout
    assert "compute_straggler" in page.stdout and page.stdout.startswith("<!doctype html")
    assert json.loads(told.stdout)["findings"][0]["ranks"] == [5]


def test_a_recording_is_known_by_its_first_bytes_too(tmp_path: Path) -> None:
    path = write(tmp_path, SLOW).rename(tmp_path / "operations.bin")

    assert analyze(path, "--fail-on", "warning").returncode == 3


@pytest.mark.parametrize("name", ["trace-x.parquet", "x.parquet"])
def test_a_file_that_is_no_recording_is_one_line_that_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("none")

    done = analyze(tmp_path / name)

    assert done.returncode == 2
    assert f"{name} is no sound Parquet file" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_recordings_are_not_one_job(tmp_path: Path) -> None:
    done = analyze(write(tmp_path, SLOW, "a"), write(tmp_path, SLOW, "b"))

    assert done.returncode == 2
    assert "cannot be judged together with other paths" in done.stderr


def test_options_of_profiler_traces_are_refused(tmp_path: Path) -> None:
    done = analyze(write(tmp_path, SLOW), "--perfetto", tmp_path / "out.json")

    assert done.returncode == 2
    assert "--perfetto works on profiler traces" in done.stderr
