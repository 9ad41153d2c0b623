"""Counts whose result is known by hand."""

from dataclasses import replace

import pytest
from benchmarks.lab import tally
from benchmarks.lab.rows_of_runs import Fault
from benchmarks.lab.tally import Share

from row_making import named, row

RUNS = [
    *[row("input_fetch", "input_fetch")] * 6,
    *[row("input_fetch", "input_workers")] * 2,
    *[row("input_fetch", "unknown")],
    *[row("input_fetch")],
    *[row("input_workers", "input_workers")] * 4,
    *[row("", "input_workers")],
    *[row()] * 9,
]


def test_precision_and_recall_are_those_of_the_confusion_matrix() -> None:
    fetch, workers = tally.by_class(RUNS)

    assert (fetch.slug, fetch.recall, fetch.precision, fetch.abstained) == ("input_fetch", Share(6, 10), Share(6, 6), 1)
    assert (workers.slug, workers.recall, workers.precision) == ("input_workers", Share(4, 4), Share(4, 7))
    assert tally.confusion(RUNS)["input_fetch", "input_workers"] == 2
    assert sum(tally.confusion(RUNS).values()) == len(RUNS)
    assert fetch.f1 == pytest.approx(2 * 1.0 * 0.6 / 1.6)
    assert tally.macro_f1([fetch, workers]) == pytest.approx((0.75 + 2 * 4 / 11) / 2)


def test_unknown_for_a_fault_with_a_name_is_missed_and_takes_no_other_class_its_precision() -> None:
    runs = [row("unknown", "unknown"), row("input_fetch", "unknown"), row("", "unknown")]
    fetch, unknown = tally.by_class(runs)

    assert (fetch.recall, fetch.abstained) == (Share(0, 1), 1)
    assert (unknown.recall, unknown.precision) == (Share(1, 1), Share(1, 2)), "but a clean run that is called unknown is an alarm"
    assert tally.abstentions(runs) == Share(1, 1)
    assert tally.wrong_names(runs) == Share(0, 0)


def test_a_class_that_its_fault_declares_right_too_counts_as_the_injected_one() -> None:
    (one,) = tally.by_class([row("comm_exposed", "network_degraded", acceptable=("network_degraded",))])

    assert (one.recall, one.precision) == (Share(1, 1), Share(1, 1))


def test_small_faults_are_left_out_of_the_bar_and_those_without_a_size_are_not() -> None:
    sizes = [row("input_fetch", severity=severity) for severity in (0.0, 0.1, 0.2, 0.5)] + [row()]

    assert [one.severity for one in tally.severe(sizes)] == [0.0, 0.2, 0.5, 0.0]


def test_runs_that_could_not_be_made_count_nowhere_and_those_that_could_not_be_judged_count_as_missed() -> None:
    skipped, refused = row("input_fetch", skipped="no disk"), row("input_fetch", error="no step")

    assert tally.by_class([skipped]) == []
    assert tally.by_class([refused])[0].recall == Share(0, 1)


def test_ranks_are_right_only_if_they_are_just_those_of_the_fault() -> None:
    def of(ranks: object, *found: object) -> object:
        return row(
            "input_straggler", *(named("unknown", ranks=one) for one in found), faults=(Fault("input_straggler", ranks, 0.02),)
        )

    rows = [of([1], [1]), of([1], [0]), of([1], "all"), of([1]), of("all", "all"), of([0, 1], "all")]

    assert tally.ranks_right(rows) == Share(1, 4), "whatever the class; where all ranks are to blame there is no culprit to find"
    assert tally.wrongly_accused([of("all", [0]), of("all", "all"), row("", named("unknown", ranks=[1]))]) == Share(2, 3)


def test_clean_runs_with_a_warning_and_alarms_per_1000_steps() -> None:
    rows = [row(), row("", "input_fetch", "unknown"), row("", kind="lookalike", lookalike="28v"), row("input_fetch")]

    assert tally.false_alarms(rows) == Share(1, 2)
    assert tally.alarms_per_1000_steps(rows) == pytest.approx(10.0)
    assert tally.alarms_per_1000_steps([]) is None


def test_errors_of_seconds_are_those_of_rightly_named_faults() -> None:
    rows = [row("input_fetch", named("input_fetch", seconds=seconds)) for seconds in (0.022, 0.010)]

    assert tally.seconds_errors([*rows, row("input_fetch", "unknown")]) == pytest.approx([0.1, 0.5])


def test_look_alikes_are_told_apart_by_pair() -> None:
    pair = [
        row("input_straggler", "input_straggler", lookalike="4v12"),
        row("compute_straggler", "input_straggler", lookalike="4v12"),
    ]

    assert tally.lookalikes([*pair, row()]) == {"4v12": Share(1, 2)}


def test_a_look_alike_of_a_fault_that_is_none_has_to_be_left_alone() -> None:
    rows = [row("", kind="lookalike", lookalike="28v"), row("", "silent_corruption", kind="lookalike", lookalike="28v")]

    assert tally.lookalikes(rows) == {"28v": Share(1, 2)}


def test_of_two_faults_both_have_to_be_named() -> None:
    two = (Fault("input_straggler", [0], 0.03), Fault("compute_straggler", [1], 0.02))
    rows = [
        row("", "compute_straggler", "input_straggler", faults=two, kind="pair"),
        row("", "compute_straggler", faults=two, kind="pair"),
        row("", "unknown", "input_straggler", faults=two, kind="pair"),
    ]

    assert tally.both_found(rows) == (Share(1, 3), Share(2, 3))
    assert rows[0].truth == "input_straggler"
    assert tally.confusion(rows) == {}


def test_only_faults_that_were_found_have_steps_until_they_were() -> None:
    rows = [replace(row("input_fetch", "input_fetch"), steps_to_detect=steps) for steps in (20, 6, None)]

    assert tally.detected_after(rows) == [6, 20]


def test_a_slight_fault_counts_as_found_by_a_small_loss_but_a_small_loss_is_no_false_alarm() -> None:
    small = (named("input_fetch", severity="info", share=0.07),)
    runs = [
        row("input_fetch", severity=0.1, small=small),
        row("input_fetch", "input_workers", severity=0.1, small=small),
        row("input_fetch", severity=0.1),
        row(small=small),
        row(),
    ]

    assert tally.slight_found(runs) == Share(1, 3), "the first is right: a warning comes before small losses"
    assert tally.with_small_losses(runs) == Share(1, 2)
    assert tally.false_alarms(runs) == Share(0, 2)
