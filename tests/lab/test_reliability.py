import numpy as np
import pytest
from benchmarks.lab import reliability
from benchmarks.lab.reliability import Told

from row_making import named, row


def test_a_name_is_right_if_its_class_was_injected_wherever_it_stands_and_unknown_is_no_name() -> None:
    rows = [row("input_fetch", "input_workers", "input_fetch", "unknown"), row("", "host_pause"), row("input_fetch", skipped="why")]

    assert [(one.slug, one.right) for one in reliability.told(rows)] == [
        ("input_workers", False),
        ("input_fetch", True),
        ("host_pause", False),
    ]


def test_a_name_that_was_withheld_counts_for_learning_and_not_for_what_was_told() -> None:
    rows = [row("input_fetch", named("unknown", suspected="input_workers", score=0.4))]

    assert reliability.told(rows) == []
    assert [(one.slug, one.score, one.right) for one in reliability.suspected(rows)] == [("input_workers", 0.4, False)]


def test_confidence_that_is_what_it_says_has_no_error_and_confidence_that_is_not_has_all_of_it() -> None:
    honest = [Told("x", 0.75, 0.75, number % 4 != 0) for number in range(40)]
    boasting = [Told("x", 0.95, 0.95, number % 2 == 0) for number in range(40)]

    assert reliability.expected_calibration_error(honest) == pytest.approx(0.0)
    assert reliability.brier(honest) == pytest.approx(0.75 * 0.25)
    assert reliability.expected_calibration_error(boasting) == pytest.approx(0.45)
    assert reliability.brier(boasting) == pytest.approx((0.95**2 + 0.05**2) / 2)
    assert reliability.brier([]) is None


def test_bins_hold_each_name_once() -> None:
    names = [Told("x", float(confidence), 0.0, right=True) for confidence in np.linspace(0, 1, 101)]

    assert sum(one.right.cases for one in reliability.bins(names)) == 101
    assert len(reliability.bins(names)) == reliability.BINS


def test_a_higher_gate_leaves_fewer_names() -> None:
    names = [Told("x", confidence, 0.0, confidence > 0.5) for confidence in (0.2, 0.4, 0.6, 0.8)]
    found = reliability.gates(names)

    assert [(gate.least, gate.coverage.hits, gate.right.hits) for gate in found] == [
        (0.2, 4, 2),
        (0.4, 3, 2),
        (0.6, 2, 2),
        (0.8, 1, 1),
    ]
