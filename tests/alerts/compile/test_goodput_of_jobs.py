"""The objective of training goodput on jobs as they are: a short one wakes nobody, one that brings nothing forward does."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import REPOSITORY
from promtool_running import faults
from tachoscope_alerts.compile import rules
from tachoscope_alerts.compile.detection_time import detection
from tachoscope_alerts.compile.planted_series import PlantedStretch, of_events
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import HOUR, Timing, duration
from tachoscope_alerts.spec.slo import Slo

(GOODPUT,) = slo_files.load([REPOSITORY / "alerts" / "slos" / "training-goodput.yaml"])
POLICY = policy.load(REPOSITORY / "alerts" / "policy.yaml")
TIMING = Timing()
RANKS = 2
PAGES = 'count(ALERTS{alertname="TrainingGoodputBurn",severity="page",alertstate="firing"}) > bool 0 or vector(0)'

pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def said(folder: Path, slo: Slo, stretches: list[PlantedStretch], pages: dict[float, int]) -> dict[str, str]:
    """Return what promtool says against: at these seconds, a page fires (1) or does not (0)."""
    series = of_events(slo, [PlantedStretch(1, 0, 0), *stretches])
    wanted = [
        {"expr": PAGES, "eval_time": duration(round(at)), "exp_samples": [{"labels": "{}", "value": value}]}
        for at, value in pages.items()
    ]
    block = {"interval": duration(TIMING.scrape), "input_series": series, "promql_expr_test": wanted}
    groups = [f"{slo.name}{suffix}" for suffix in rules.SUFFIXES]
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "group_eval_order": groups, "tests": [block]}
    return faults(folder, {"rules.yaml": {"groups": rules.groups(slo, POLICY, TIMING)}}, {"test.yaml": test})


def held(seconds: float, *, bad: float, ranks: int = RANKS) -> PlantedStretch:
    """So long a job holds its ranks, of which time a part is bad."""
    return PlantedStretch(round(seconds / TIMING.scrape), ranks * TIMING.scrape, ranks * TIMING.scrape * bad)


SHORT_JOB = [PlantedStretch(2, 12, 4), PlantedStretch(200, 0, 0)]
"""24 s, a third of it bad, and then nothing."""


def test_a_job_of_24_seconds_of_which_a_third_was_bad_wakes_nobody(tmp_path: Path) -> None:
    times = range(60, 2400, 60)

    assert said(tmp_path, GOODPUT, SHORT_JOB, dict.fromkeys(times, 0)) == {}
    assert said(tmp_path, replace(GOODPUT, least_bad_events=0.0), SHORT_JOB, dict.fromkeys(times, 0)) != {}


@pytest.mark.bar
def test_a_job_of_two_ranks_that_turns_bad_pages_when_the_table_says(tmp_path: Path) -> None:
    found = detection(GOODPUT, "page", 1.0, TIMING)
    begins, slack = 6 * HOUR, 0.1 * found.fires + found.interval
    stretches = [held(begins, bad=0.0), held(2 * found.fires, bad=1.0)]

    assert said(tmp_path, GOODPUT, stretches, {begins + found.fires - slack: 0, begins + found.fires + slack: 1}) == {}


def test_a_new_job_of_two_ranks_that_is_bad_from_its_start_pages_after_half_an_hour_of_a_rank(tmp_path: Path) -> None:
    needed = GOODPUT.least_bad_events / RANKS

    assert needed == 15 * 60
    assert said(tmp_path, GOODPUT, [held(HOUR, bad=1.0)], {needed - 60: 0, needed + 90: 1}) == {}
