"""`tachoscope slo`: what it prints, writes and exits with."""

import json
import shutil
from pathlib import Path

import pytest

from helpers import REPOSITORY
from tachoscope_alerts import places
from tachoscope_cli.commands import call
from tachoscope_core.errors import TachoscopeError

SPECS = REPOSITORY / "alerts" / "slos"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without any alerts in it."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def own(elsewhere: Path) -> Path:
    """A spec of a user's own, with its runbook, in a working directory of their own."""
    spec = elsewhere / "own.yaml"
    spec.write_text((SPECS / "inference-admission.yaml").read_text().replace("InferenceAdmissionBurn", "OwnQueueBurn"))
    (elsewhere / "runbooks").mkdir()
    (elsewhere / "runbooks" / "OwnQueueBurn.md").write_text("# OwnQueueBurn\n")
    return spec


def test_what_is_shipped_checks_clean_from_anywhere(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    code = call(("slo", "check"))
    done = capsys.readouterr()

    assert (code, done.out) == (0, "")
    assert "13 objectives" in done.err
    assert "0 errors, 0 notes" in done.err


def test_a_spec_of_ones_own_checks_clean(own: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("slo", "check", str(own))) == 0
    assert "1 objective and 0 other alerts: 0 errors, 0 notes" in capsys.readouterr().err


def test_errors_name_file_line_and_offender_and_exit_with_one(own: Path, capsys: pytest.CaptureFixture[str]):
    text = own.read_text().replace("value: 0.5", "value: 0.45").replace("owner: inference-serving", "owner: nobody")
    own.write_text(text)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "0.45" in row)

    assert call(("slo", "check", str(own))) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [row.startswith(f"{own}:{line}: error: ") for row in lines] == [True, True]
    assert "'nobody'" in lines[0]
    assert "ends at 0.45" in lines[1]


def test_one_file_that_cannot_be_read_does_not_hide_what_is_wrong_with_another(own: Path, capsys: pytest.CaptureFixture[str]):
    (own.parent / "broken.yaml").write_text(own.read_text().replace("target: 0.99", "target: 99"))
    own.write_text(own.read_text().replace("OwnQueueBurn", "UnwrittenBurn"))

    assert call(("slo", "check", str(own.parent / "broken.yaml"), str(own))) == 1
    out = capsys.readouterr().out
    assert "objectives[0].target is 99" in out
    assert "UnwrittenBurn has no runbook" in out


def test_a_server_that_forgets_too_soon_is_an_error(own: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("slo", "check", str(own), "--retention", "15d")) == 1
    assert "needs 31 days of samples, and the server keeps 15" in capsys.readouterr().out


def test_metrics_of_ones_own_are_known_by_a_catalogue(own: Path, capsys: pytest.CaptureFixture[str]):
    own.write_text(own.read_text().replace("tachoscope_request_queue_seconds", "chat_queue_seconds"))
    assert call(("slo", "check", str(own))) == 1
    assert "chat_queue_seconds is in no catalogue" in capsys.readouterr().out

    listed = own.parent / "chat.yaml"
    listed.write_text(
        "source: https://example.com\nlabels: [service, model]\n"
        "metrics: [{name: chat_queue_seconds, type: histogram, buckets: [0.5, 1]}]\n"
    )
    assert call(("slo", "check", str(own), "--catalogue", str(listed))) == 0


def test_rules_that_were_built_are_checked_too(own: Path, capsys: pytest.CaptureFixture[str]):
    folder = own.parent / "rules"
    folder.mkdir()
    (folder / "rules.yaml").write_text("groups: [{name: g, rules: [{alert: Long, expr: 'avg_over_time(up[1d]) < 1'}]}]\n")

    assert call(("slo", "check", str(own), "--generated", str(folder))) == 1
    assert "Long: raw series up over 1d" in capsys.readouterr().out


def test_the_rules_of_what_is_shipped_read_recorded_series_above_six_hours_and_nothing_that_does_not_exist(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
):
    assert call(("slo", "build", "--out", "rules")) == 0
    rules = "".join(path.read_text() for path in Path("rules").rglob("*.yaml"))
    assert rules.count("[28d]") > 20  # windows above six hours are there to be looked at
    capsys.readouterr()

    assert call(("slo", "check", "--generated", "rules")) == 0
    assert capsys.readouterr().out == ""
    (path,) = Path("rules").rglob("training-goodput.rules.yaml")
    path.write_text(path.read_text().replace("sum_over_time(slo:bad_events:base", "sum_over_time(slo:bad_event:base"))
    assert call(("slo", "check", "--generated", "rules")) == 1
    assert "metric slo:bad_event:base is in no catalogue (did you mean slo:bad_events:base?" in capsys.readouterr().out


def test_build_writes_what_build_then_finds_current(own: Path, capsys: pytest.CaptureFixture[str]):
    words = ("slo", "build", "--slos", str(own), "--out", "rules")
    assert call(words) == 0
    written = sorted(path for path in Path("rules").rglob("*") if path.is_file())
    assert written
    assert "1 objective and 0 other alerts" in capsys.readouterr().err
    assert call((*words, "--check")) == 0

    written[0].write_text(written[0].read_text() + "# touched\n")
    assert call((*words, "--check")) == 1
    assert written[0].name in capsys.readouterr().out


def test_build_writes_nothing_of_objectives_with_errors(own: Path, capsys: pytest.CaptureFixture[str]):
    own.write_text(own.read_text().replace("value: 0.5", "value: 0.45"))

    assert call(("slo", "build", "--slos", str(own), "--out", "rules")) == 1
    assert "ends at 0.45" in capsys.readouterr().out
    assert not Path("rules").exists()


def test_a_report_of_an_empty_store_says_that_nothing_is_measured(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "store").mkdir()
    assert call(("slo", "report", "--slos", str(own), "--format", "json", "--store", str(tmp_path / "store"))) == 0

    (objective,) = json.loads(capsys.readouterr().out)["objectives"]
    assert objective["name"] == "inference-admission"
    assert {budget["state"] for budget in objective["budgets"]} == {"not_measured"}


@pytest.mark.parametrize("format_", ["text", "html"])
def test_a_report_goes_to_a_file(format_: str, own: Path, tmp_path: Path):
    page = tmp_path / "report"
    (tmp_path / "store").mkdir()
    words = ("slo", "report", "--slos", str(own), "--for", "7d", "--store", str(tmp_path / "store"))
    assert call((*words, "--format", format_, "--output", str(page))) == 0

    assert "Admission of requests" in page.read_text() or "inference-admission" in page.read_text()


def test_a_store_that_is_not_there_is_an_error_and_not_an_empty_one(own: Path, tmp_path: Path):
    with pytest.raises(TachoscopeError, match="there is no store .*gone"):
        call(("slo", "report", "--slos", str(own), "--store", str(tmp_path / "gone")))


def test_the_repository_one_works_in_comes_before_what_was_shipped(elsewhere: Path):
    shipped = places.path_of("slos")
    assert shipped.samefile(SPECS)

    shutil.copytree(SPECS, elsewhere / "alerts" / "slos")
    assert places.path_of("slos") == Path("alerts/slos")
    assert places.path_of("policy.yaml").samefile(REPOSITORY / "alerts" / "policy.yaml")
    with pytest.raises(TachoscopeError, match="there is no alerts/nothing here"):
        places.path_of("nothing")
