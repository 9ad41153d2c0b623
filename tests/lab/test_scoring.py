"""Runs of the lab whose records are planted: each verdict is compared with its truth."""

import json
from pathlib import Path

import msgspec
import pytest
from benchmarks.lab import scoring
from benchmarks.lab.rows_of_runs import read_rows, write_rows

from making import beat
from row_making import STEPS, planted_run, row, step
from tachoscope_analyzers.findings.calibration import NOT_CALIBRATED, Calibration, Curve
from tachoscope_core.errors import TachoscopeError

SLOW = {"class": "compute_straggler", "ranks": [1], "seconds_per_step": 0.080, "first_step": 0, "parameters": {}}


def straggler(folder: Path, first_step: int = 0, **truth: object) -> Path:
    own = [[step(), step(forward=0.110 if number >= first_step else 0.030)] for number in range(STEPS)]
    return planted_run(folder, own, [SLOW | {"first_step": first_step}], **truth)


def test_a_fault_that_is_found_has_its_class_ranks_seconds_and_confidence_in_its_row(tmp_path: Path) -> None:
    found = scoring.score(straggler(tmp_path / "a"), NOT_CALIBRATED)

    assert (found.truth, found.predicted, found.right, found.error) == ("compute_straggler", "compute_straggler", True, "")
    assert found.named[0].ranks == [1]
    assert found.named[0].seconds == pytest.approx(0.080, rel=0.03)
    assert (found.named[0].confidence, found.named[0].score, found.named[0].severity) == (0.99, 0.99, "critical")
    assert "gpu_throttle" in found.not_measured
    assert found.steps == STEPS - 2, "the warm-up is not judged"


def test_a_slight_fault_is_in_its_row_as_a_small_loss_and_not_as_a_warning(tmp_path: Path) -> None:
    slight = [[step(), step(forward=0.0385)]] * STEPS

    found = scoring.score(planted_run(tmp_path / "a", slight, [SLOW | {"seconds_per_step": 0.0085}], severity=0.1), NOT_CALIBRATED)

    assert (found.named, found.predicted) == ((), "nothing")
    assert [(one.slug, one.ranks, one.severity) for one in found.small] == [("compute_straggler", [1], "info")]
    assert found.right_with_small


def test_a_clean_run_has_nothing(tmp_path: Path) -> None:
    found = scoring.score(planted_run(tmp_path / "a", [[step(), step()]] * STEPS, []), NOT_CALIBRATED)

    assert (found.truth, found.predicted, found.named, found.right) == ("nothing", "nothing", (), True)


def test_a_name_that_is_withheld_stands_in_the_row_with_what_was_suspected(tmp_path: Path) -> None:
    never_right = Calibration({"compute_straggler": Curve((0.0, 1.0), (0.1, 0.2))}, "planted")

    found = scoring.score(straggler(tmp_path / "a"), never_right)

    assert (found.predicted, found.abstained, found.right) == ("unknown", True, False)
    assert (found.named[0].suspected, found.named[0].score) == ("compute_straggler", 0.99)
    assert found.named[0].runner_up == "compute_straggler"


@pytest.mark.parametrize("first_step", [0, 8])
def test_steps_to_detect_are_counted_from_the_first_step_of_the_fault(tmp_path: Path, first_step: int) -> None:
    found = scoring.score(straggler(tmp_path / "a", first_step), NOT_CALIBRATED)

    assert found.steps_to_detect is not None
    assert found.steps_to_detect == 6 if first_step == 0 else 20 < found.steps_to_detect <= STEPS - first_step


def test_the_begin_of_a_job_has_no_record_from_after_it(tmp_path: Path) -> None:
    own = [[step(), step()]] * STEPS
    run = planted_run(
        tmp_path / "a",
        own,
        [],
        beats=[msgspec.structs.replace(beat(0, 5000 + number), time=1.7e9 + 0.5 + number) for number in range(8)],
    )
    job = scoring._job(run)

    less = scoring.begin(job, 20)

    assert {one.step for one in less.steps} == set(range(1, 21))
    assert len(less.heartbeats) == 2, "the twentieth step ends after 2 seconds"
    assert less.starts == job.starts


def test_a_run_that_was_skipped_keeps_its_reason_and_is_not_judged(tmp_path: Path) -> None:
    run = straggler(tmp_path / "a", skipped="no cgroups here")
    (run / "store").rename(tmp_path / "away")

    found = scoring.score(run, NOT_CALIBRATED)

    assert (found.skipped, found.named, found.error) == ("no cgroups here", (), "")


def test_a_run_without_records_says_why_it_could_not_be_judged(tmp_path: Path) -> None:
    run = straggler(tmp_path / "a")
    (run / "store").rename(tmp_path / "away")

    assert "the store of run a holds 0 jobs" in scoring.score(run, NOT_CALIBRATED).error


@pytest.mark.parametrize("broken", ['{"schema": 1', '{"schema": 2}', '{"schema": 1}'])
def test_a_truth_that_cannot_be_read_is_named(tmp_path: Path, broken: str) -> None:
    run = straggler(tmp_path / "a")
    (run / "truth.json").write_text(broken)

    with pytest.raises(TachoscopeError, match="truth.json"):
        scoring.score(run, NOT_CALIBRATED)


def test_only_folders_with_a_truth_are_runs(tmp_path: Path) -> None:
    straggler(tmp_path / "b")
    (tmp_path / "unfinished" / "store").mkdir(parents=True)
    (tmp_path / "frozen.json").write_text("{}")

    assert scoring.runs_in(tmp_path) == [tmp_path / "b"]


def test_rows_survive_the_table_that_they_are_kept_in(tmp_path: Path) -> None:
    rows = [
        scoring.score(straggler(tmp_path / "a"), NOT_CALIBRATED),
        row(),
        row("hang", "unknown", skipped='a "reason", with comma'),
    ]
    write_rows(rows, tmp_path / "results.csv")
    write_rows(read_rows(tmp_path / "results.csv"), tmp_path / "again.csv")

    assert (tmp_path / "results.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    assert [one.predicted for one in read_rows(tmp_path / "results.csv")] == [
        one.predicted for one in sorted(rows, key=lambda one: one.id)
    ]


def test_a_table_with_a_broken_cell_is_refused(tmp_path: Path) -> None:
    write_rows([row()], tmp_path / "results.csv")
    text = (tmp_path / "results.csv").read_text()
    (tmp_path / "results.csv").write_text(text.replace("[]", "[", 1))

    with pytest.raises(TachoscopeError, match="not a table of runs"):
        read_rows(tmp_path / "results.csv")


def test_the_truth_is_told_as_it_is_written(tmp_path: Path) -> None:
    told = scoring.read_truth(straggler(tmp_path / "a", lookalike="4v12", acceptable=["cpu_contention"], severity=0.5))

    assert (told.lookalike, told.acceptable, told.severity, told.world_size) == ("4v12", ("cpu_contention",), 0.5, 2)
    assert json.loads((tmp_path / "a" / "truth.json").read_text())["faults"][0]["seconds_per_step"] == told.faults[0].seconds


def test_the_sleep_that_stands_for_an_accelerator_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "_STANDING_STILL", ("compute_straggler",))  # which is more easily planted
    run = straggler(tmp_path / "a")
    truth = json.loads((run / "truth.json").read_bytes())

    for device_seconds, counted in ((0.0, 1), (0.085, 0), (0.050, 1)):
        (run / "truth.json").write_text(json.dumps(truth | {"shape": {"device_seconds": device_seconds}}))
        assert len(scoring.score(run, NOT_CALIBRATED).named) == counted
