"""How severe a loss is: what the whole of its interval shows, and no more."""

from pathlib import Path

import numpy as np
import pytest

from making import beat
from synchronous import planted
from tachoscope_analyzers.findings.make import Candidate, Series, findings
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.report.report import Finding, gravest

STEPS = 200
STEP = 0.1


def found(seconds: np.ndarray) -> Finding:
    (finding,) = findings([Candidate("host_pause", seconds, "all", [])], Series(seconds + STEP, 1, len(seconds), "planted"))
    return finding


@pytest.mark.parametrize("evaluations", [1, 2])
def test_one_validation_an_epoch_is_info_with_its_seconds_and_says_why(evaluations: int) -> None:
    seconds = np.zeros(STEPS)
    seconds[np.linspace(60, 160, evaluations).astype(int)] = 20.0

    finding = found(seconds)

    assert finding.severity == "info"
    assert finding.seconds_per_step == pytest.approx(0.1 * evaluations)
    assert finding.share >= 0.2 > finding.share_ci[0]
    (why,) = [row for row in finding.evidence if row.signal.startswith("lower end")]
    assert (why.value, why.comparison) == (finding.share_ci[0], "<")


@pytest.mark.parametrize("period", [5, 30, 45])
@pytest.mark.parametrize("phase", [0, 3])
def test_what_comes_every_so_many_steps_is_as_certain_as_what_comes_in_each(period: int, phase: int) -> None:
    seconds = np.where(np.arange(STEPS) % period == phase, 0.05 * period, 0.0)
    steady = found(np.full(STEPS, 0.05))

    finding = found(seconds)

    assert (finding.severity, steady.severity) == ("critical", "critical")
    assert finding.every_steps == period
    assert finding.share_ci[1] - finding.share_ci[0] < 0.02


def test_a_loss_between_the_thresholds_of_its_interval_is_one_level_lower() -> None:
    random = np.random.default_rng(1)
    seconds = 0.0265 * random.exponential(size=STEPS)  # 21 % on average

    finding = found(seconds)

    assert finding.share > 0.2 > finding.share_ci[0] > 0.1
    assert finding.severity == "warning"


@pytest.mark.parametrize(("function", "severity"), [("forward", "info"), ("log_images", "critical")])
def test_unexplained_time_is_no_loss_where_the_samples_are_in_the_model(tmp_path: Path, function: str, severity: str) -> None:
    line = f"model.py:40 {function}"
    beats = [beat(0, where={"other": {line: 80, "train.py:9 main": 20}})]

    (finding,) = analyze(planted(tmp_path, {"other": np.full((STEPS, 1), 0.05)}, heartbeats=beats)).findings

    assert (finding.class_, finding.where, finding.severity) == ("unknown", line, severity)


def test_what_the_job_can_change_comes_before_a_condition_of_the_machine() -> None:
    series = Series(np.full(STEPS, STEP), 1, STEPS, "planted")
    condition = Candidate("cpu_contention", np.full(STEPS, 0.06), "all", [], condition=True, at_most="warning")
    small = Candidate("host_pause", np.full(STEPS, 0.015), "all", [])

    listed = findings([condition, small], series)

    assert [(one.class_, one.severity, one.condition) for one in listed] == [
        ("host_pause", "warning", False),
        ("cpu_contention", "warning", True),
    ]
    assert gravest(listed) == listed[0]


def test_a_certain_loss_below_ten_percent_is_small_and_stands_below_all_others() -> None:
    series = Series(np.full(STEPS, STEP), 1, STEPS, "planted")
    small = Candidate("checkpoint_stall", np.full(STEPS, 0.07 * STEP), "all", [])
    condition = Candidate("cpu_contention", np.full(STEPS, 0.12 * STEP), "all", [], condition=True, at_most="warning")

    listed = findings([small, condition], series)

    assert [(one.class_, one.severity, one.small) for one in listed] == [
        ("cpu_contention", "warning", False),
        ("checkpoint_stall", "info", True),
    ]
    assert listed[1].confidence == pytest.approx(0.99), "that more than 5 % is lost is certain"
    assert (listed[1].evidence[0].value, listed[1].evidence[0].threshold) == (pytest.approx(0.07), 0.05)


def test_a_job_with_no_more_than_small_losses_has_no_worst_finding() -> None:
    (small,) = findings(
        [Candidate("checkpoint_stall", np.full(STEPS, 0.07 * STEP), "all", [])], Series(np.full(STEPS, STEP), 1, STEPS, "")
    )

    assert gravest([small]) is None


@pytest.mark.parametrize("share", [0.04, 0.051])
def test_a_loss_whose_interval_begins_below_five_percent_is_not_told(share: float) -> None:
    noisy = np.random.default_rng(1).exponential(share * STEP, STEPS)

    assert findings([Candidate("host_pause", noisy, "all", [])], Series(np.full(STEPS, STEP), 1, STEPS, "planted")) == []


def test_of_a_loss_since_the_middle_of_a_run_it_is_known_since_when_it_is_there() -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.1 * STEP, STEPS)
    seconds = np.where(np.arange(STEPS) < STEPS // 2, 0.0, 0.27 * STEP + noise)

    (finding,) = findings([Candidate("network_degraded", seconds, "all", [])], Series(np.full(STEPS, STEP), 1, STEPS, "planted"))

    assert finding.severity == "warning"
    assert finding.share_ci[1] - finding.share_ci[0] < 0.04
