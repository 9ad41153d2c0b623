"""Wrong numbers: which rank, since when, and when it cannot be determined: planted checks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from making import envelope
from synchronous import bad, planted, signal
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.records import records
from tachoscope_core.report.report import Report

STEPS = 60


def check(rank: int, step: int, checksum: str = "a", ranks: int = 3, **fields: Any) -> records.Record:
    return records.IntegrityEvent(
        **envelope(rank, 1000 + step, attempt=fields.pop("attempt", 0)),
        **{"step": step, "check": "parameters", "checksum": f"{checksum}{step}", "replicas": list(range(ranks))} | fields,
    )


def report(tmp_path: Path, checks: list[records.Record], ranks: int = 3) -> Report:
    return analyze(planted(tmp_path, {"forward": np.zeros((STEPS, ranks))}, checks))


def every_ten(ranks: int, wrong: int | None, since: int) -> list[records.Record]:
    rows = [(rank, step) for step in range(10, STEPS + 1, 10) for rank in range(ranks)]
    return [check(rank, step, "b" if rank == wrong and step >= since else "a", ranks) for rank, step in rows]


@pytest.mark.parametrize(("ranks", "wrong", "named"), [(3, 1, [1]), (5, 4, [4]), (2, 1, "all")])
def test_the_replica_outside_of_the_majority_is_named_and_of_two_neither(
    tmp_path: Path, ranks: int, wrong: int, named: list[int] | str
) -> None:
    result = report(tmp_path, every_ten(ranks, wrong, since=40), ranks)

    (finding,) = bad(result)
    assert (finding.class_, finding.severity, finding.ranks) == ("silent_corruption", "critical", named)
    assert signal(finding, "first check") == 40
    assert signal(finding, "last sound check") == 30
    # Steps 31 to 60 of 3 to 60 are lost work at most.
    assert finding.seconds_per_step == pytest.approx(result.step_seconds.mean * 30 / 58, rel=0.01)
    assert finding.speedup_if_fixed == 1.0


def test_replicas_that_agree_are_sound_and_without_checks_nothing_is_known(tmp_path: Path) -> None:
    sound, unchecked = report(tmp_path, every_ten(3, None, 0)), report(tmp_path, [])

    assert not bad(sound)
    assert "silent_corruption" not in {row.class_ for row in sound.not_measured}
    assert "silent_corruption" in {row.class_ for row in unchecked.not_measured}


def test_two_ranks_that_were_never_alike_may_never_have_been_replicas(tmp_path: Path) -> None:
    assert not bad(report(tmp_path, every_ten(2, 1, since=0), 2))


def test_stages_of_a_pipeline_are_not_compared(tmp_path: Path) -> None:
    checks = [check(rank, 10, "ab"[rank], replicas=[]) for rank in range(2)]

    assert not bad(report(tmp_path, checks, 2))


def test_a_rank_whose_loss_is_not_finite_first_is_named(tmp_path: Path) -> None:
    wrong = [check(2, 33, not_finite=["loss"], detail="NaN or Inf in 1 tensors of the loss")]
    later = [check(rank, 34, not_finite=["loss"], detail="NaN or Inf in 1 tensors of the loss") for rank in range(2)]

    (finding,) = bad(report(tmp_path, [*every_ten(3, None, 0)[:9], *wrong, *later]))

    assert (finding.class_, finding.severity, finding.ranks) == ("silent_corruption", "critical", [2])


def test_it_is_named_too_where_the_exchange_spread_it_before_the_others_looked(tmp_path: Path) -> None:
    wrong = [check(rank, 40, not_finite=["loss"] * (rank == 1) + ["gradients", "parameters"], detail="NaN") for rank in range(3)]

    (finding,) = bad(report(tmp_path, [*every_ten(3, None, 0)[:9], *wrong]))

    assert (finding.class_, finding.ranks) == ("silent_corruption", [1])


def test_a_loss_that_had_grown_before_diverged(tmp_path: Path) -> None:
    wrong = [check(1, 33, not_finite=["loss"], detail="NaN", loss_growth=40.0)]

    (finding,) = bad(report(tmp_path, [*every_ten(3, None, 0)[:9], *wrong]))

    assert (finding.class_, finding.ranks) == ("unknown", "all")


def test_numbers_that_fail_on_all_ranks_at_once_may_be_the_learning_rates_doing(tmp_path: Path) -> None:
    wrong = [
        check(rank, 40, not_finite=["loss", "parameters"], detail="NaN or Inf in 9 tensors of the parameters") for rank in range(3)
    ]

    (finding,) = bad(report(tmp_path, [*every_ten(3, None, 0)[:9], *wrong]))

    assert (finding.class_, finding.severity, finding.ranks) == ("unknown", "critical", "all")
    assert finding.runner_up is not None
    assert finding.runner_up.class_ == "silent_corruption"


def test_checks_of_another_attempt_say_nothing_of_this_one(tmp_path: Path) -> None:
    other = [check(rank, 10, "ab"[rank == 1], attempt=1) for rank in range(3)]

    result = report(tmp_path, other)

    assert not bad(result)
    assert "silent_corruption" in {row.class_ for row in result.not_measured}
