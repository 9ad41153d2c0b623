"""`tachoscope analyze A --baseline B`, of stores, spools and saved reports: what is said, what is refused, and the exit code."""

import json
from pathlib import Path

import pytest

from course_making import Extra, late, lines, nothing, planted, slower
from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store


@pytest.fixture
def before(tmp_path: Path) -> str:
    return str(planted(tmp_path / "before", seed=1))


def analyzed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert call(["analyze", *words]) == 0
    return capsys.readouterr().out


def test_a_regression_is_told_with_its_state_and_rank(tmp_path: Path, before: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = analyzed(capsys, str(planted(tmp_path / "now", late(2, 1, 300, 0.03))), "--baseline", before)

    assert f"Compared with planted (298 steps, {before})" in " ".join(text.split())  # a long path begins a line
    assert "slower: the step takes" in text
    assert "beyond the noise; rank 2" in text
    assert "data_wait" in text


@pytest.mark.parametrize(
    ("extra", "level", "code"),
    [
        (slower(1), "regression", 3),
        (slower(1), "warning", 3),
        (slower(1), "critical", 0),
        (slower(1, 0.03), "critical", 3),
        (nothing, "regression", 0),
        (nothing, "warning", 0),
        (slower(150, 0.014), "regression", 0),
    ],
)
def test_a_regression_beyond_the_noise_can_fail_a_pipeline(
    tmp_path: Path, before: str, capsys: pytest.CaptureFixture[str], extra: Extra, level: str, code: int
) -> None:
    now = str(planted(tmp_path / "now", extra))

    assert call(["analyze", now, "--baseline", before, "--fail-on", level]) == code
    assert "Compared with planted" in capsys.readouterr().out


def test_findings_that_both_runs_have_are_no_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(planted(tmp_path / str(seed), late(1, 1, 300, 0.05), seed=seed)) for seed in (1, 2)]

    assert call(["analyze", sides[0], "--baseline", sides[1], "--fail-on", "regression"]) == 0
    assert call(["analyze", sides[0], "--baseline", sides[1], "--fail-on", "critical"]) == 3
    assert "alike" in capsys.readouterr().out


def test_a_saved_report_is_a_baseline_and_can_be_compared_itself(
    tmp_path: Path, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = [str(tmp_path / name) for name in ("before.json", "now.json")]
    now = str(planted(tmp_path / "now", slower(1)))
    for path, name in zip((before, now), saved, strict=True):
        assert call(["analyze", path, "--format", "json", "--output", name]) == 0

    of_records = analyzed(capsys, now, "--baseline", before, "--format", "json")
    of_saved = analyzed(capsys, saved[1], "--baseline", saved[0], "--format", "json")

    assert of_saved == of_records
    assert json.loads(of_saved)["comparison"]["verdict"] == "slower"


def test_two_jobs_of_one_store_are_compared_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    for number, (name, extra) in enumerate((("old", nothing), ("new", slower(1)))):
        writer = f"{number:08d}-0000-4000-8000-000000000000"
        found = lines(extra, name=name, seed=number)
        store.write(name, host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=found)

    text = analyzed(capsys, "--store", store.url, "--job", "new", "--baseline-job", "old")
    folders = analyzed(capsys, str(tmp_path / "store/jobs/new"), "--baseline", str(tmp_path / "store/jobs/old"))

    assert "Compared with old (298 steps" in text
    assert "slower: " in text
    assert folders == text
    with pytest.raises(TachoscopeError, match="no records of job 'older'"):
        call(["analyze", "--store", store.url, "--job", "new", "--baseline-job", "older"])
    with pytest.raises(TachoscopeError, match="is job 'old', and --baseline-job names 'new'"):
        call(["analyze", str(tmp_path / "store/jobs/new"), "--baseline", str(tmp_path / "store/jobs/old"), "--baseline-job", "new"])


def test_a_run_is_not_its_own_baseline(before: str) -> None:
    with pytest.raises(TachoscopeError, match="is its own baseline"):
        call(["analyze", before, "--baseline", before])


def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [{"ph": "X", "name": "step", "ts": 1, "dur": 5, "pid": 1, "tid": 1}]}')
    return str(path)


def test_records_and_traces_are_not_compared(tmp_path: Path, before: str) -> None:
    with pytest.raises(TachoscopeError, match=r"holds records, and the baseline .*trace\.json is a profiler trace"):
        call(["analyze", before, "--baseline", trace(tmp_path)])
    with pytest.raises(TachoscopeError, match=r"trace\.json is a profiler trace, and the baseline .*before is not"):
        call(["analyze", trace(tmp_path), "--baseline", before])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail-on", "regression"], "needs a run to compare with"),
        (["--baseline", "nowhere"], "nowhere does not exist"),
    ],
)
def test_what_does_not_go_together_is_refused(before: str, words: list[str], said: str) -> None:
    with pytest.raises(TachoscopeError, match=said):
        call(["analyze", before, *words])


@pytest.mark.parametrize("words", [["--baseline-job", "old"], ["--baseline", "x.json", "--fail-on", "regression"]])
def test_what_is_about_records_is_refused_of_traces(tmp_path: Path, words: list[str]) -> None:
    with pytest.raises(TachoscopeError, match="is about records"):
        call(["analyze", trace(tmp_path), *words])
