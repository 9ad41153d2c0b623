"""`python -m benchmarks.pipeline_operations`, as its user sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from operations_making import Plan, write

from helpers import REPOSITORY

SLOW = Plan(steps=6, worker={(1, 1): 1.6})


def judge(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.pipeline_operations", *map(str, words)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.bar  # of a benchmark
def test_a_recording_gives_a_report_in_every_format(tmp_path: Path) -> None:
    path = write(tmp_path, SLOW, "job7")

    text, page, told = (judge(path, "--format", format_) for format_ in ("text", "html", "json"))

    assert (text.returncode, page.returncode, told.returncode) == (0, 0, 0), text.stderr + page.stderr + told.stderr
    assert "job job7" in text.stdout and "compute_straggler, rank 5" in text.stdout and "the step as a sum" in text.stdout
    assert "compute_straggler" in page.stdout and page.stdout.startswith("<!doctype html")
    assert json.loads(told.stdout)["findings"][0]["ranks"] == [5]


@pytest.mark.parametrize("name", ["trace-x.parquet", pytest.param("x.parquet", marks=pytest.mark.bar)])
def test_a_file_that_is_no_recording_is_one_line_that_says_so(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("none")

    done = judge(tmp_path / name)

    assert done.returncode == 1
    assert f"{name} is not a sound Parquet file" in done.stderr
    assert "Traceback" not in done.stderr
