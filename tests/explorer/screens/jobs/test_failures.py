"""The page of a job that failed: the first failure stands before everything else, also where no step was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from exploring import open_page, words
from helpers import run_watched
from once import made_once

SCRIPT = """
import sys, time
import tachoscope
for step in range(int(sys.argv[1])):
    time.sleep(0.02)
    tachoscope.step()
raise ValueError("sample 17 has no label")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        (folder / "train.py").write_text(SCRIPT)
        for job, steps in (("late", "30"), ("early", "0")):
            run_watched(folder, "python", str(folder / "train.py"), steps, job=job)

    return made_once(tmp_path_factory, "failed", make) / "store"


@pytest.mark.parametrize(("job", "step"), [("late", "in step 31"), ("early", "before its first step ended")])
def test_the_page_says_first_which_rank_failed_with_what_and_where(store: Path, job: str, step: str) -> None:
    shown = open_page("job", store, job=job)

    assert not shown.exception
    (said,) = [one.value.replace("\\", "") for one in shown.error if "First failure" in one.value]
    assert all(part in said for part in ("rank 0", "ValueError: sample 17 has no label", "train.py:7", step)), said
    assert "healthy" not in words(shown)
    assert "Failures" in words(shown) or any(one.value == "Failures" for one in shown.subheader)
