"""`tachoscope goodput`, over the records of a planted life."""

import json
from pathlib import Path

import pytest

from life_making import T0, PlantedLife
from tachoscope_cli.app import call
from tachoscope_cli.main import main
from tachoscope_core.errors import TachoscopeError


@pytest.fixture
def spool(tmp_path: Path) -> str:
    life = PlantedLife("resnet")
    life.launcher(0.0, 100.0)
    for rank in range(2):
        life.process(rank, [1.0] * 30, start=1.0, begin=5.0, saves={10: "/ckpt/10"})
        life.gone(rank, 35.5, start=1.0)
        life.process(rank, [1.0] * 30, attempt=1, start=40.0, begin=50.0, restored=("/ckpt/10", 42.0, 3.0), left=82.0)
    life.load(tmp_path)
    return str(tmp_path)


def test_the_whole_life_is_printed_as_the_reports_schema(spool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["goodput", "resnet", spool, "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)

    assert report["life"]["denominator"] == "launcher"
    assert [one["ended"] for one in report["life"]["attempts"]] == ["killed", "completed"]
    assert [finding["class"] for finding in report["findings"]] == ["lost_work"]
    assert report["findings"][0]["runbook"] == "runbooks/lost_work.md"


def test_maintenance_and_prices_are_files(spool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, prices = tmp_path / "plan.yaml", tmp_path / "prices.yaml"
    plan.write_text(f"- {{start: {T0 + 90.0}, end: {T0 + 95.0}, reason: new switches}}")
    prices.write_text("- {name: a core, pattern: rank, per_hour: 36, currency: EUR, provider: us, date: 2026-03-01, source: books}")
    words = ["goodput", "resnet", spool, "--maintenance", str(plan), "--prices", str(prices)]

    assert call(words) == 0
    text = capsys.readouterr().out
    assert "10.0 s of planned maintenance left out" in text
    assert "1.90 EUR" in text


def test_a_critical_loss_can_fail_a_pipeline(spool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["goodput", "resnet", spool, "--fail-on", "critical"]) == 3
    assert "CRITICAL" in capsys.readouterr().out


def test_a_report_on_the_last_attempt_tells_of_the_others(spool: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["analyze", spool]) == 0
    assert "this is attempt 2 of 2; the whole life: tachoscope goodput resnet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([" "], "the job name is empty"),
        (["bert"], "no records of job 'bert'"),
        (["resnet", "--maintenance", "nothing.yaml"], "nothing.yaml"),
    ],
)
def test_a_job_or_file_that_does_not_exist_is_refused(spool: str, words: list[str], said: str) -> None:
    with pytest.raises(TachoscopeError) as caught:
        call(["goodput", *words[:1], spool, *words[1:]])
    assert said in str(caught.value)


def test_a_saved_report_is_shown_again_and_refuses_to_be_asked_for_another_view(
    spool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "life.json")
    assert call(["goodput", "resnet", spool, "--format", "json", "--output", saved]) == 0
    assert call(["goodput", "resnet", saved]) == 0
    assert "the whole life: 2 attempts" in capsys.readouterr().out

    with pytest.raises(TachoscopeError, match="saved report of the whole life of job 'resnet'; other views need the records"):
        call(["goodput", "bert", saved])


def test_of_a_job_that_is_not_shipped_yet_the_error_says_where_its_records_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, store = tmp_path / "spool" / "run-1", tmp_path / "store"
    (store / "jobs").mkdir(parents=True)
    run.mkdir(parents=True)
    life = PlantedLife("resnet")
    life.process(0, [1.0] * 3, begin=1.0, world=1)
    life.load(run)
    monkeypatch.setenv("TACHOSCOPE_SPOOL", str(tmp_path / "spool"))

    with pytest.raises(TachoscopeError, match=f"the spool has some.*tachoscope analyze {tmp_path / 'spool'} --job resnet"):
        call(["goodput", "resnet", "--store", str(store)])


def test_a_full_disk_is_told_in_one_line(spool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", full)
        with pytest.raises(SystemExit) as ended:
            main(["goodput", "resnet", spool])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "tachoscope: could not write the output: No space left on device\n"
