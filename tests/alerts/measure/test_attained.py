from __future__ import annotations

import pytest

from tachoscope_alerts.measure.attainment import Series, attained
from tachoscope_alerts.spec import files, openslo
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.metrics.catalogue import BY_NAME

SLOS: dict[str, Slo] = {slo.name: slo for slo in openslo.load([files.path_of("slos")])}
HELD, EFFECTIVE = "tachoscope_job_held_seconds_total", "tachoscope_job_effective_seconds_total"
REQUESTS, DATA_WAIT = "tachoscope_requests_total", "tachoscope_step_data_wait_ratio"


def waited(at_most_a_tenth: float, all_: float) -> dict[str, list[float]]:
    bounds = BY_NAME[DATA_WAIT].buckets
    return {DATA_WAIT: [at_most_a_tenth if bound == 0.1 else 0.0 for bound in bounds] + [all_]}


def test_good_events_over_all_events_are_what_is_attained() -> None:
    assert attained(SLOS["training-goodput"], [(HELD, {}, 200.0), (EFFECTIVE, {}, 150.0)], {}) == pytest.approx(0.75)


def test_bad_events_count_only_with_the_labels_that_the_objective_names() -> None:
    ended: list[Series] = [(REQUESTS, {"outcome": how}, count) for how, count in (("ok", 90), ("shed", 10), ("client_error", 50))]

    assert attained(SLOS["inference-availability"], ended, {}) == pytest.approx(0.9)


def test_no_bad_series_among_events_is_all_good() -> None:
    assert attained(SLOS["inference-availability"], [(REQUESTS, {"outcome": "ok"}, 5.0)], {}) == 1.0


def test_events_of_a_histogram_are_good_up_to_the_objectives_own_bound() -> None:
    assert attained(SLOS["training-input-wait"], [], waited(30, 40)) == pytest.approx(0.75)


@pytest.mark.parametrize("name", SLOS)
def test_nothing_counted_is_not_measured(name: str) -> None:
    assert attained(SLOS[name], [], {}) is None
    assert attained(SLOS[name], [(HELD, {}, 0.0)], {DATA_WAIT: [0.0] * 8}) is None


def test_an_objective_of_moments_cannot_be_told_from_counts() -> None:
    assert attained(SLOS["training-checkpoint-age"], [(HELD, {}, 1.0), (EFFECTIVE, {}, 1.0)], waited(1, 1)) is None
