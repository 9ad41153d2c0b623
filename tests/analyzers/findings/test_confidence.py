"""What a calibration makes of a finding: its confidence, and whether its class is named at all."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings import calibration as confidence
from tachoscope_analyzers.findings.calibration import MOST, NOT_CALIBRATED, Calibration, Curve
from tachoscope_analyzers.findings.make import Candidate, Series, findings
from tachoscope_core.report.report import Evidence, Finding

SERIES = Series(np.full(100, 0.1), 1, 100, "planted")
EVIDENCE = Evidence(signal="planted", value=1.0)


def found(calibration: Calibration, certainty: float = 0.8, slug: str = "input_fetch", seconds: float = 0.03) -> Finding:
    candidate = Candidate(slug, np.full(100, seconds), [3], [EVIDENCE], certainty, ("input_workers", 0.3), action="do this")
    (finding,) = findings([candidate], SERIES, calibration)
    return finding


def of(*points: tuple[float, float], slug: str = "input_fetch") -> Calibration:
    return Calibration({slug: Curve(tuple(score for score, _ in points), tuple(value for _, value in points))}, "planted runs")


def test_a_findings_confidence_is_what_its_score_was_worth_in_the_runs_that_it_was_learned_on() -> None:
    assert found(NOT_CALIBRATED).confidence == 0.8
    assert found(of((0.0, 0.5), (1.0, 1.0))).confidence == 0.9
    assert found(of((0.0, 0.5), (1.0, 0.6))).confidence == 0.58


def test_a_class_that_was_never_injected_is_named_with_its_score() -> None:
    finding = found(of((0.0, 0.0), (1.0, 0.1), slug="input_workers"), certainty=0.2)

    assert (finding.class_, finding.confidence) == ("input_fetch", 0.2)


def test_below_the_gate_the_finding_is_unknown_with_its_loss_its_culprit_its_evidence_and_the_suspicion() -> None:
    sure, unsure = found(NOT_CALIBRATED), found(of((0.0, 0.0), (1.0, 0.4)))

    assert (unsure.class_, unsure.severity, unsure.ranks) == ("unknown", "critical", [3])
    assert (unsure.seconds_per_step, unsure.share, unsure.share_ci) == (sure.seconds_per_step, sure.share, sure.share_ci)
    assert unsure.runner_up is not None and unsure.runner_up.class_ == "input_fetch"
    assert EVIDENCE in unsure.evidence
    (why,) = [row for row in unsure.evidence if row.signal == "confidence that it is input_fetch"]
    assert (why.value, why.threshold, why.comparison, why.source) == (
        pytest.approx(0.32),
        threshold("name_confidence"),
        "<",
        "planted runs",
    )
    assert unsure.confidence == MOST, "that something is lost is as sure as before"
    assert unsure.runbook == "runbooks/unknown.md"
    assert "do this" not in unsure.action


def test_on_the_gate_the_class_is_named() -> None:
    gate = threshold("name_confidence")

    assert found(of((0.0, gate), (1.0, gate))).class_ == "input_fetch"


def test_unknown_is_no_name_that_could_be_withheld() -> None:
    assert found(of((0.0, 0.0), (1.0, 0.1)), slug="unknown", certainty=0.5).confidence == 0.5


CURVES = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*(st.lists(st.floats(0, 1), min_size=n, max_size=n).map(sorted).map(tuple) for _ in range(2)))
)


@given(CURVES, st.floats(0, 1), st.floats(0, 1))
def test_more_score_is_never_less_confidence_and_nothing_is_certain(
    curve: tuple[tuple[float, ...], tuple[float, ...]], one: float, other: float
) -> None:
    calibration = Calibration({"hang": Curve(*curve)})
    low, high = (calibration.probability("hang", score) for score in sorted((one, other)))

    assert low is not None and high is not None
    assert 0 <= low <= high <= MOST


@pytest.mark.parametrize("curve", [((), ()), ((0.1, 0.2), (0.5,)), ((0.2, 0.1), (0.1, 0.2)), ((0.1, 0.2), (0.2, 0.1))])
def test_a_curve_that_falls_or_is_none_is_refused(curve: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    with pytest.raises(ValueError, match="both ascending"):
        Curve(*curve)


def test_the_shipped_calibration_says_what_it_is_from() -> None:
    shipped = confidence.shipped_calibration()

    assert shipped.origin
    assert bool(shipped.curves) == bool(re.search(r"\d+ development runs", shipped.origin))


def test_the_runbook_of_unknown_says_what_a_withheld_name_is() -> None:
    page = (Path(__file__).parents[3] / "runbooks" / "unknown.md").read_text()

    assert "confidence that it is CLASS" in page
