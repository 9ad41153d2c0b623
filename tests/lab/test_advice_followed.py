"""The harness that follows advice: promises are compared with measurements in both directions, and settings reach the training."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.advice_followed.cases import Case, all_cases
from benchmarks.advice_followed.follow import SCRIPT, judged
from benchmarks.advice_followed.table import is_off, summary, table


@pytest.mark.parametrize(
    ("before", "measured", "promised", "near", "slower"),
    [
        (0.10, 0.055, 0.050, True, False),
        (0.10, 0.070, 0.050, False, False),
        (0.10, 0.040, 0.050, False, False),
        (0.10, 0.101, 0.100, True, False),
        (0.10, 0.120, 0.050, False, True),
        (0.10, 0.090, None, None, False),
        (0.10, 0.120, None, None, True),
    ],
)
def test_a_promise_is_kept_within_15_percent_and_nothing_may_become_slower(
    before: float, measured: float, promised: float | None, near: bool | None, slower: bool
) -> None:
    row = judged(before, measured, promised)

    assert (row["near"], row["slower"]) == (near, slower)


def test_the_summary_counts_promises_and_not_rows_without_one() -> None:
    base: dict[str, Any] = {"case": "one", "class": "input_workers", "before": 0.1, "again": 0}
    rows = [
        base | judged(0.1, 0.05, 0.05) | {"settings": {"num_workers": 2}},
        base | judged(0.1, 0.2, None) | {"settings": {"num_workers": 0}},
        base | {"settings": None},
        {"case": "two", "error": "no steps"},
    ]

    assert "of the promised step: 1 of 1" in summary(rows)
    assert "slower than before: 1 of 2" in summary(rows)
    assert "not judged 1, no setting advised 1" in summary(rows)
    assert len(table(rows).splitlines()) == 2 + len(rows)
    assert list(map(is_off, rows)) == [False, True, False, True]


def test_there_are_sixty_cases_and_each_has_its_own_name() -> None:
    names = [case.name for case in all_cases()]

    assert len(set(names)) == len(names) >= 60


@pytest.mark.parametrize(
    ("settings", "again"),
    [
        pytest.param({}, False, marks=pytest.mark.bar),
        pytest.param({"num_workers": 1}, False, marks=pytest.mark.bar),
        ({"num_workers": 2}, True),
    ],
)
def test_the_training_takes_the_settings_and_tells_of_samples_that_came_twice(
    tmp_path: Path, settings: dict[str, int], again: bool
) -> None:
    case = Case(name="tiny", rest_ms=0.0, data_set="iterable")
    environment = os.environ | {
        "ADVICE_CASE": json.dumps(case.parameters()),
        "ADVICE_SETTINGS": json.dumps(settings),
        "ADVICE_UNITS": "1",
        "ADVICE_SECONDS": "0",
        "ADVICE_RESULT": str(tmp_path / "result.json"),
        "OMP_NUM_THREADS": "1",
    }
    subprocess.run([sys.executable, str(SCRIPT)], env=environment, check=True, timeout=120)

    assert bool(json.loads((tmp_path / "result.json").read_text())["again"]) == again
