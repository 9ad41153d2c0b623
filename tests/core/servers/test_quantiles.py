"""Quantiles of histograms, compared with Prometheus's own and against the values that were observed."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
from itertools import accumulate
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_core.servers.histogram_quantiles import quantile
from tachoscope_core.servers.snapshot import Buckets

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5)


def histogram(values: list[float]) -> Buckets:
    counts = tuple(float(sum(value <= bound for value in values)) for bound in (*BOUNDS, math.inf))
    return Buckets(BOUNDS, counts, sum(values))


@given(st.lists(st.floats(0.0, 5.0, exclude_min=True), min_size=1, max_size=50), st.floats(0.001, 1.0))
def test_the_true_quantile_lies_between_the_bounds(values: list[float], share: float) -> None:
    found = quantile(histogram(values), share)
    truth = sorted(values)[math.ceil(share * len(values)) - 1]

    assert found is not None
    assert found.low < truth <= found.high
    assert found.low <= found.value <= found.high


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_it_is_what_prometheus_says(tmp_path: Path) -> None:
    chance = random.Random(7)
    series, checks = [], []
    for number in range(50):
        counts = tuple(float(total) for total in accumulate(chance.choice((0, 1, 7, 300)) for _ in range(len(BOUNDS) + 1)))
        share = chance.choice((0.01, 0.5, 0.9, 0.99, 1.0))
        found = quantile(Buckets(BOUNDS, counts, 0.0), share)
        for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True):
            series.append({"series": f'h_bucket{{of="{number}",le="{bound}"}}', "values": str(count)})
        of = f'histogram_quantile({share}, h_bucket{{of="{number}"}})'
        # Nothing equals NaN, which is what it says of no observations.
        expression = f"{of} != bool {of}" if found is None else f"abs({of} - {found.value!r}) < bool 1e-12"
        checks.append({"expr": expression, "eval_time": "0m", "exp_samples": [{"labels": f'{{of="{number}"}}', "value": 1}]})
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_above_the_last_bound_only_that_is_known() -> None:
    assert quantile(Buckets((1.0, 2.0), (1.0, 2.0, 100.0), 900.0), 0.5) == (2.0, 2.0, math.inf)


def test_of_no_observations_or_no_bounds_there_is_no_quantile() -> None:
    assert quantile(Buckets(BOUNDS, (0.0,) * 6, 0.0), 0.5) is None
    assert quantile(Buckets((), (10.0,), 5.0), 0.5) is None


@pytest.mark.parametrize("share", [0.0, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share must be above 0"):
        quantile(histogram([1.0]), share)
