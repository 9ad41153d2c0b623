"""A planted relation of score and truth, learned from rows and found again where it is applied."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks.lab import calibrate
from benchmarks.lab.reliability import Told, expected_calibration_error
from benchmarks.lab.rows_of_runs import Row

from row_making import named, row
from tachoscope_analyzers.findings.calibration import Calibration, from_document
from tachoscope_core.errors import TachoscopeError

PLANTED = {"input_workers": 1.0, "comm_exposed": 0.6, "host_pause": 0.2}
"""The share of each class's score that it is really right."""


def planted(count: int, seed: int) -> list[Told]:
    random = np.random.default_rng(seed)
    scores = np.round(random.beta(4, 1, count), 2)
    slugs = random.choice(list(PLANTED), count)
    return [
        Told(str(slug), float(score), float(score), bool(random.random() < PLANTED[str(slug)] * score))
        for slug, score in zip(slugs, scores, strict=True)
    ]


def runs(findings: list[Told], of_set: str = "development") -> list[Row]:
    return [
        replace(
            row(one.slug if one.right else "", named(one.slug, score=one.score, confidence=one.score), set=of_set),
            id=f"{number:05}",
        )
        for number, one in enumerate(findings)
    ]


def test_what_was_planted_is_learned_for_each_class_and_makes_other_findings_confidence_true() -> None:
    calibration = from_document(calibrate.document(runs(planted(3000, 1)), "today"))
    others = planted(3000, 2)

    assert calibration.probability("comm_exposed", 0.8) == pytest.approx(0.48, abs=0.06)
    assert calibration.probability("host_pause", 0.9) == pytest.approx(0.18, abs=0.06)
    assert (expected_calibration_error(others) or 0.0) > 0.2
    assert (expected_calibration_error(calibrate.recalibrated(others, calibration)) or 1.0) < 0.03


def test_a_class_with_two_findings_is_about_as_sure_as_all_classes_are() -> None:
    findings = [
        *[Told("input_fetch", 0.9, 0.9, number % 10 != 0) for number in range(200)],
        *[Told("hang", 0.9, 0.9, right=False)] * 2,
    ]
    curves = calibrate.learn(findings)

    assert curves["input_fetch"].at(0.9) == pytest.approx(0.9, abs=0.01)
    assert 0.55 < curves["hang"].at(0.9) < 0.75
    assert (curves["hang"].findings, curves["hang"].right) == (2, 0)


def test_nothing_is_learned_from_test_runs() -> None:
    with pytest.raises(TachoscopeError, match="no development run"):
        calibrate.document(runs(planted(50, 1), of_set="test"), "today")


def test_the_same_runs_give_the_same_document_which_says_where_it_is_from() -> None:
    first, again = (calibrate.document(runs(planted(100, 1)), "2026-01-01") for _ in range(2))

    assert first == again
    assert first["origin"] == "100 findings in 100 development runs with injected faults, 2026-01-01"
    assert first["thresholds"] == calibrate.thresholds()
    assert first["findings_sha256"] != calibrate.document(runs(planted(100, 2)), "2026-01-01")["findings_sha256"]


def test_thresholds_that_are_others_since_a_calibration_are_named_and_new_ones_are_not(tmp_path: Path) -> None:
    learned = {**calibrate.thresholds(), "warning_share": 0.5, "no_longer_there": 3.0}
    del learned["small_share"]
    (tmp_path / "calibration.yaml").write_text(yaml.safe_dump({"thresholds": learned}))

    assert calibrate.changed_thresholds(tmp_path / "calibration.yaml") == {
        "warning_share": (0.5, 0.1),
        "no_longer_there": (3.0, None),
    }


def test_the_gate_is_the_lowest_that_leaves_few_enough_wrong_names() -> None:
    names = (
        [Told("a", 0.3, 0.0, right=False)] * 10 + [Told("a", 0.6, 0.0, right=True)] * 38 + [Told("a", 0.6, 0.0, right=False)] * 2
    )
    gate = calibrate.gate_for(names)

    assert gate is not None
    assert (gate.least, gate.coverage.hits, gate.right.hits) == (0.6, 40, 38)
    assert calibrate.gate_for([Told("a", 0.9, 0.0, right=False)]) is None


def test_a_class_that_was_never_injected_keeps_its_score() -> None:
    (one,) = calibrate.recalibrated([Told("gpu_throttle", 0.7, 0.7, right=True)], Calibration({}))

    assert one.confidence == 0.7
