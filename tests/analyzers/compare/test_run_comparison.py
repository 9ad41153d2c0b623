"""A run against an earlier one: planted regressions are found with their state and rank, and noise is none."""

from pathlib import Path

import msgspec
import pytest

from course_making import Extra, late, nothing, planted, slower
from tachoscope_analyzers.compare.runs import compared
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_spool
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.comparison import Comparison
from tachoscope_core.report.report import Report, Source, dump, load


def report(folder: Path, extra: Extra = nothing, **options: float) -> Report:
    return analyze(from_spool([planted(folder, extra, **options)]))  # type: ignore[arg-type]


def comparison(now: Report, before: Report) -> Comparison:
    found = compared(now, before).comparison
    assert found is not None
    return found


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report(tmp_path_factory.mktemp("before"), seed=1)


@pytest.mark.parametrize(
    ("phase", "state"),
    [("data_wait", "data_wait"), ("forward", "compute"), ("collective", "communication"), ("checkpoint", "checkpoint")],
)
def test_the_state_that_grew_is_named_with_its_seconds(tmp_path: Path, before: Report, phase: str, state: str) -> None:
    found = comparison(report(tmp_path / "now", slower(1, 0.015, phase), seed=2), before)

    assert (found.verdict, found.severity) == ("slower", "warning")
    assert found.share == pytest.approx(0.148, abs=0.01)
    assert found.states[0].name == state
    assert found.states[0].difference == pytest.approx(0.015, abs=0.001)
    assert found.states[0].beyond_noise
    low, high = found.states[0].interval
    assert low < 0.015 < high
    assert found.ranks == "all"


def test_a_rank_that_became_slow_is_named_and_its_state_not_the_waiting_of_the_others(tmp_path: Path, before: Report) -> None:
    found = comparison(report(tmp_path / "now", late(2, 1, 300, 0.03), seed=2), before)

    assert (found.verdict, found.severity, found.ranks) == ("slower", "critical", [2])
    assert found.states[0].name == "data_wait"
    assert "straggler_wait" not in {row.name for row in found.states}


def test_what_is_mended_is_faster_and_no_finding(tmp_path: Path, before: Report) -> None:
    slow = report(tmp_path / "slow", late(2, 1, 300, 0.03), seed=2)

    found = comparison(before, slow)

    assert (found.verdict, found.severity, found.ranks) == ("faster", None, [2])
    assert found.states[0].difference == pytest.approx(-0.03, abs=0.002)


@pytest.mark.parametrize("seed", range(5))
def test_two_runs_of_the_same_are_alike(tmp_path: Path, before: Report, seed: int) -> None:
    found = comparison(report(tmp_path / "now", seed=10 + seed), before)

    assert (found.verdict, found.severity) == ("alike", None)


@pytest.mark.parametrize("seed", range(3))
def test_spikes_of_a_short_run_are_noise(tmp_path: Path, seed: int) -> None:
    def spikes(at: int) -> Extra:
        return lambda step, rank: {"other": 2.0} if step in {at, at + 31} else {}

    sides = [
        report(tmp_path / name, spikes(at), seed=seed + at, steps=60) for name, at in (("now", 20 + seed), ("before", 8 + seed))
    ]
    found = comparison(sides[0], report(tmp_path / "calm", seed=seed + 50, steps=60))

    assert (found.verdict, found.severity) == ("unclear", None)
    assert comparison(*sides).verdict == "unclear"


def test_the_states_sum_to_the_step(tmp_path: Path, before: Report) -> None:
    found = comparison(report(tmp_path / "now", late(1, 1, 300, 0.02), seed=2), before)

    assert sum(row.difference for row in found.states) == pytest.approx(found.step.difference)


def test_a_saved_report_is_as_good_a_baseline_as_its_records(tmp_path: Path, before: Report) -> None:
    now = report(tmp_path / "now", slower(1), seed=2)
    (tmp_path / "saved.json").write_bytes(dump(before))

    assert comparison(now, load(tmp_path / "saved.json")) == comparison(now, before)


def test_of_another_number_of_ranks_the_step_is_compared_and_ranks_are_not(tmp_path: Path, before: Report) -> None:
    found = comparison(report(tmp_path / "now", slower(1), seed=2, ranks=2), before)

    assert (found.verdict, found.ranks, found.baseline_ranks) == ("slower", None, 4)
    assert "4 ranks in the baseline, 2 now" in found.notes[0]


def with_samples(one: Report, samples: float) -> Report:
    assert one.course is not None
    return msgspec.structs.replace(one, course=msgspec.structs.replace(one.course, samples_per_step=samples))


def test_a_larger_batch_is_other_work_and_no_regression(tmp_path: Path, before: Report) -> None:
    now = report(tmp_path / "now", slower(1, 0.09), seed=2)

    found = comparison(with_samples(now, 128), with_samples(before, 64))

    assert (found.verdict, found.severity) == ("not_comparable", None)
    assert "64 samples in the baseline and takes 128 now" in found.notes[0]
    assert comparison(with_samples(now, 64), with_samples(before, 64)).verdict == "slower"
    assert comparison(with_samples(now, 64), before).verdict == "slower"


def test_what_the_runs_are_made_of_is_held_side_by_side(tmp_path: Path, before: Report) -> None:
    now = report(tmp_path / "now", seed=2)
    made = [{"code_reference": "git:1 train.py", "image": "a"}, {"code_reference": "git:2 train.py", "image": "a"}]

    found = comparison(msgspec.structs.replace(now, lineage=made[1]), msgspec.structs.replace(before, lineage=made[0]))

    assert [(row.name, row.baseline, row.now) for row in found.made_of] == [("code_reference", "git:1 train.py", "git:2 train.py")]


@pytest.mark.parametrize(
    ("sources", "said"),
    [([Source(path="trace.json", unit="events")], "is about profiler traces"), ([], "did not measure its noise")],
)
def test_a_report_of_another_kind_is_refused(tmp_path: Path, before: Report, sources: list[Source], said: str) -> None:
    other = msgspec.structs.replace(before, course=None, sources=sources)

    with pytest.raises(TachoscopeError, match=said):
        compared(before, other)
    with pytest.raises(TachoscopeError, match=said):
        compared(other, before)
