"""The gate on what a fleet costs, in its quick form: three nodes, a quarter of a minute of scrapes at one second."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.fleet.__main__ import Options, run
from benchmarks.fleet.budgets import Budget, exceeded, load
from benchmarks.fleet.comparison import allowed

OF_COUNTERS = re.compile(r"\b(rate|increase)\(")
"""Their windows are longer than the run, which the two servers treat differently; `make fleet` compares them too."""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_a_small_fleet_keeps_all_budgets_and_victoria_metrics_answers_as_prometheus_does(tmp_path: Path) -> None:
    result = run(Options(nodes=3, minutes=0.25, scrape_seconds=1.0, rule_seconds=5.0), tmp_path)

    assert result.exceeded == []
    assert result.figures["rule_failures"] == 0
    assert result.figures["series_page"] > 1000
    if result.compared is not None:  # where VictoriaMetrics is installed
        assert all(one.figure in result.figures for one in load())
        different = [one for one in result.compared.unexplained if not OF_COUNTERS.search(one.expression.text)]
        assert [f"{one.expression.where}: {one.what}: {one.expression.text}" for one in different] == []
        assert result.compared.answered > result.compared.asked / 3


def test_a_budget_that_is_exceeded_is_told_with_its_figure_and_source() -> None:
    budget = Budget("series_gpu", 80.0, "series a GPU", "the design")

    assert exceeded([budget], {"series_gpu": 80.0}, nodes=1) == []
    assert exceeded([budget], {"series_gpu": 81.5}, nodes=1) == ["series a GPU: 81.5, budget 80 (the design)"]
    assert exceeded([replace(budget, nodes=50)], {"series_gpu": 81.5}, nodes=49) == []


def test_budgets_and_allowed_differences_each_have_a_source_or_reason() -> None:
    assert all(one.source and one.most >= 0 for one in load())
    assert all(one.reason and one.expressions for one in allowed())
