"""Inputs of the advice are those that were measured, or none."""

from pathlib import Path

import pytest

from course_making import late, planted
from making import job
from tachoscope_analyzers.job.advice_inputs import of_batch, of_checkpoints, of_loading
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.report.job_life import Attempt, CheckpointCosts, Life


def test_a_loader_in_the_training_process_makes_what_the_step_waits_for(tmp_path: Path) -> None:
    records = from_spool([planted(tmp_path, late(1, 1, 300, 0.05))])
    steps = aligned(records)
    split = losses.attribute(steps)

    found = of_loading(records, steps, split)

    assert found is not None
    assert (found.input.workers, found.at_most) == (0, False)
    assert found.input.making == pytest.approx(0.051, rel=0.05)
    assert found.input.rest == pytest.approx(split.mean_step - 0.051, rel=0.05)


def test_the_rest_of_the_step_is_the_one_that_the_finding_promises(tmp_path: Path) -> None:
    records = from_spool([planted(tmp_path, late(1, 1, 300, 0.05))])
    steps = aligned(records)
    (finding,) = [one for one in analyze(records).findings if one.class_ == "input_straggler"]

    found = of_loading(records, steps, losses.attribute(steps), [finding])

    assert found is not None
    assert found.input.rest == pytest.approx(found.input.step - finding.seconds_per_step, rel=0.01)


def test_without_a_loader_nothing_is_known_of_it(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_bytes(job([[{"forward": 0.1, "backward": 0.1}]] * 20))
    records = from_spool([tmp_path])
    steps = aligned(records)

    assert of_loading(records, steps, losses.attribute(steps)) is None


def test_on_cpu_nothing_idles_for_launches_and_no_device_memory_is_known(tmp_path: Path) -> None:
    records = from_spool([planted(tmp_path)])
    steps = aligned(records)

    found = of_batch(records, steps, losses.attribute(steps))

    assert (found.idle, found.used_bytes, found.total_bytes) == (None, None, None)


def _life(**changes: object) -> Life:
    attempts = [
        Attempt(attempt=number, start=number * 1000.0, end=number * 1000.0 + 900, ranks=2, hosts=["a"], ended=ended)
        for number, ended in enumerate(("failed", "preempted", "completed"))
    ]
    fields: dict[str, object] = {
        "denominator": "records",
        "allocated_seconds": 5400.0,
        "queued_seconds": None,
        "attempts": attempts,
        "checkpoints": CheckpointCosts(saves=4, interval_seconds=200.0, blocking_seconds=3.0, restore_seconds=2.0),
    }
    return Life(**{**fields, **changes})  # type: ignore[arg-type]


def test_saves_and_failures_are_those_of_the_whole_life() -> None:
    found = of_checkpoints(_life(), 0.5)

    assert found is not None
    assert (found.saving.blocking, found.saving.background, found.saving.step, found.interval) == (3.0, 0.0, 0.5, 200.0)
    assert (found.rate.failures, found.rate.mean_seconds) == (1, pytest.approx(2700))
    assert found.saving.restart == 2.0


def test_a_job_that_never_saved_has_no_interval() -> None:
    assert of_checkpoints(_life(checkpoints=None), 0.5) is None
    assert of_checkpoints(_life(checkpoints=CheckpointCosts(saves=0)), 0.5) is None
