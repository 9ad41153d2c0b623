"""`tachoscope slo`: what it prints, writes and exits with."""

import json
import re
import shutil
from pathlib import Path

import pytest

import serving_pages
from gpu.fake_dcgm_exporter import fake_dcgm_exporter
from helpers import REPOSITORY
from slo_making import BEGIN, Planted, write_store
from tachoscope_alerts.spec import files
from tachoscope_cli.app import call
from tachoscope_cli.slo import commands as slo
from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.storage.store import Store

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
    text = (SPECS / "inference-admission.yaml").read_text().replace("name: inference-admission", "name: own-queue")
    spec.write_text(text.replace("InferenceAdmissionBurn", "OwnQueueBurn"))
    (elsewhere / "runbooks").mkdir()
    (elsewhere / "runbooks" / "OwnQueueBurn.md").write_text("# OwnQueueBurn\n")
    return spec


def test_what_is_shipped_checks_clean_from_anywhere(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    code = call(("slo", "check"))
    done = capsys.readouterr()

    assert (code, done.out) == (0, "")
    assert "15 objectives" in done.err
    assert "0 errors, 0 notes" in done.err


def test_a_spec_of_ones_own_checks_clean(own: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("slo", "check", str(own))) == 0
    assert "1 objective and 0 other alerts: 0 errors, 0 notes" in capsys.readouterr().err


SLIPS = {
    "value: 0.5": ("value: 0.45", "ends at 0.45"),
    "owner: inference-serving": ("owner: nobody", "has the owner 'nobody'"),
    "metric: tachoscope_request_queue_seconds": ("metric: tachoscope_request_queue_second", "is in no catalogue"),
    'by: "service,model"': ('by: "service,modell"', "has no label modell"),
    "duration: 28d": ("duration: 40d", "days of samples, and the server keeps"),
    "alert: OwnQueueBurn": ("alert: AgentDown", "alert AgentDown is there already"),
    "target: 0.99": ("target: 0.5", "and no page of it can fire: 2 times its budget is 100 % of all events"),
}


@pytest.mark.parametrize("sound", SLIPS)
def test_an_error_is_put_on_the_line_of_what_is_wrong_and_exits_with_one(sound: str, own: Path, capsys: pytest.CaptureFixture[str]):
    slip, said = SLIPS[sound]
    rows = own.read_text().replace(", ", ",").splitlines()
    (line,) = [number for number, row in enumerate(rows, 1) if sound in row]
    own.write_text("\n".join(row.replace(sound, slip) if number == line else row for number, row in enumerate(rows, 1)))

    assert call(("slo", "check", str(own), "--runbooks", str(REPOSITORY / "runbooks" if "Agent" in slip else "runbooks"))) == 1
    (row,) = capsys.readouterr().out.splitlines()
    assert row.startswith(f"{own}:{line}: error: ")
    assert said in row


def test_a_mistyped_annotation_is_told_which_was_meant(own: Path, capsys: pytest.CaptureFixture[str]):
    own.write_text(own.read_text().replace("dev/least-bad-events", "dev/least-bad-event"))

    assert call(("slo", "check", str(own))) == 1
    assert "did you mean tachoscope.dev/least-bad-events? Known are " in capsys.readouterr().out


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


def test_a_page_of_a_server_is_looked_through_for_the_buckets_of_thresholds(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    """Of vLLM the agent makes all that we have thresholds for; this page of SGLang has fewer buckets."""
    (elsewhere / "sglang.txt").write_text(serving_pages.SGLANG)
    (elsewhere / "empty.txt").write_text("up 1\n")
    with fake_dcgm_exporter(serving_pages.vllm_page()) as server:
        assert call(("slo", "check", "--page", server.url)) == 0
    assert "no series of tachoscope_request" not in capsys.readouterr().out
    assert call(("slo", "check", "--page", "sglang.txt")) == 1
    said = capsys.readouterr().out
    assert "error: inference-ttft-p99: the page has no bucket of tachoscope_request_first_token_seconds that ends at 2.5" in said
    assert "take one of its boundaries: 0.1, 0.5, 1" in said
    with pytest.raises(TachoscopeError, match=r"empty\.txt has no histogram that an objective uses"):
        call(("slo", "check", "--page", "empty.txt"))


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
    assert "1 objective and 3 other alerts" in capsys.readouterr().err
    assert call((*words, "--check")) == 0

    written[0].write_text(written[0].read_text() + "# touched\n")
    assert call((*words, "--check")) == 1
    assert written[0].name in capsys.readouterr().out


@pytest.mark.parametrize("name", ["InferenceAvailabilityBurn", "AgentDown"])
@pytest.mark.parametrize("events", [(), ("--events", str(REPOSITORY / "alerts" / "events"))])
def test_an_alert_by_a_shipped_name_is_an_error_in_ones_own_file(
    name: str, events: tuple[str, ...], own: Path, capsys: pytest.CaptureFixture[str]
):
    own.write_text(own.read_text().replace("OwnQueueBurn", name))

    assert call(("slo", "check", str(own), "--runbooks", str(REPOSITORY / "runbooks"), *events)) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{own}:")
    assert f"alert {name} is there already, at {REPOSITORY / 'alerts'}" in line


def test_a_shipped_spec_is_not_held_against_itself(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("slo", "check", str(SPECS / "training-goodput.yaml"))) == 0  # nor is the page missed that ships beside it
    assert capsys.readouterr().out == ""


def test_a_changed_copy_of_one_shipped_spec_is_told_that_it_takes_its_place_and_one_of_all_is_not(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(SPECS, elsewhere / "mine")
    assert call(("slo", "check", "mine/inference-availability.yaml")) == 0
    assert "note: objective inference-availability takes the place of" in capsys.readouterr().out
    assert call(("slo", "check", "mine")) == 0
    assert capsys.readouterr().out == ""


def alerts_in(folder: Path) -> set[str]:
    return {row.split()[-1] for path in folder.rglob("*.rules.yaml") for row in path.read_text().splitlines() if "alert: " in row}


def test_a_build_of_shipped_objectives_and_ones_own_has_all_shipped_alerts(own: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("slo", "build", "--out", "shipped")) == 0
    assert call(("slo", "build", "--slos", str(SPECS), "--slos", str(own), "--out", "rules")) == 0

    assert alerts_in(Path("rules")) == alerts_in(Path("shipped")) | {"OwnQueueBurn"}
    assert "left out" not in capsys.readouterr().err


def test_a_build_of_ones_own_alone_has_what_every_build_has_and_says_what_is_left_out(
    own: Path, capsys: pytest.CaptureFixture[str]
):
    assert call(("slo", "build", "--slos", str(own), "--out", "rules")) == 0

    assert alerts_in(Path("rules")) == {"OwnQueueBurn", "Watchdog", "ObjectiveNotMeasured", "ObjectiveNoLongerMeasured"}
    said = capsys.readouterr().err
    assert "15 objectives" in said
    assert f"--slos {files.path_of('slos')}" in said


def test_a_build_names_the_runbook_that_is_missing_and_begins_it_where_it_is_told_to(own: Path, capsys: pytest.CaptureFixture[str]):
    page = Path("runbooks") / "OwnQueueBurn.md"
    page.unlink()
    words = ("slo", "build", "--slos", str(SPECS), "--slos", str(own), "--out", "rules")
    assert call(words) == 0
    assert "without a runbook: OwnQueueBurn; --runbooks runbooks writes" in capsys.readouterr().err
    assert not page.exists()

    assert call((*words, "--runbooks", "runbooks")) == 0
    assert [path.name for path in Path("runbooks").iterdir()] == [page.name]  # those of what ships came with it
    assert page.read_text().startswith("# OwnQueueBurn | page and ticket | inference-serving | inference |")
    page.write_text("# OwnQueueBurn: mine")
    assert call((*words, "--runbooks", "runbooks")) == 0
    assert page.read_text() == "# OwnQueueBurn: mine"
    assert call(("slo", "check", str(own))) == 0


def test_alerts_beside_objectives_that_are_not_given_are_not_built(own: Path):
    with pytest.raises(TachoscopeError, match="belongs to the objective .*, which is not given"):
        call(("slo", "build", "--slos", str(own), "--events", str(SPECS.parent / "events"), "--out", "rules"))


def test_build_writes_nothing_of_objectives_with_errors(own: Path, capsys: pytest.CaptureFixture[str]):
    own.write_text(own.read_text().replace("value: 0.5", "value: 0.45"))

    assert call(("slo", "build", "--slos", str(own), "--out", "rules")) == 1
    assert "ends at 0.45" in capsys.readouterr().out
    assert not Path("rules").exists()


def test_a_report_of_an_empty_store_says_that_nothing_is_measured(own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "store").mkdir()
    assert call(("slo", "report", "--slos", str(own), "--format", "json", "--store", str(tmp_path / "store"))) == 0

    (objective,) = json.loads(capsys.readouterr().out)["objectives"]
    assert objective["name"] == "own-queue"
    assert {budget["state"] for budget in objective["budgets"]} == {"not_measured"}


@pytest.mark.parametrize("format_", ["text", "html"])
def test_a_report_goes_to_a_file(format_: str, own: Path, tmp_path: Path):
    page = tmp_path / "report"
    (tmp_path / "store").mkdir()
    words = ("slo", "report", "--slos", str(own), "--for", "7d", "--store", str(tmp_path / "store"))
    assert call((*words, "--format", format_, "--output", str(page))) == 0

    assert "Admission of requests" in page.read_text() or "own-queue" in page.read_text()


def test_a_store_that_is_not_there_is_an_error_and_not_an_empty_one(own: Path, tmp_path: Path):
    with pytest.raises(TachoscopeError, match="store .*gone does not exist"):
        call(("slo", "report", "--slos", str(own), "--store", str(tmp_path / "gone")))


@pytest.mark.parametrize("text", ["abc", "0d"])
def test_a_time_to_report_on_that_is_none_names_its_option(text: str, own: Path):
    with pytest.raises(TachoscopeError, match=rf"--for '{text}' is not a duration above 0 \(write 90m, 12h or 7d\)"):
        call(("slo", "report", "--slos", str(own), "--for", text))


def test_links_of_a_page_lead_where_the_policy_says_and_never_to_the_example(elsewhere: Path):
    assert slo._runbook_base() == "runbooks"
    (elsewhere / "alerts").mkdir()
    own = (REPOSITORY / "alerts" / "policy.yaml").read_text().replace("https://runbooks.example.com", "https://books.test/r/")
    (elsewhere / "alerts" / "policy.yaml").write_text(own)
    assert slo._runbook_base() == "https://books.test/r"


def test_the_repository_one_works_in_comes_before_what_was_shipped(elsewhere: Path):
    shipped = files.path_of("slos")
    assert shipped.samefile(SPECS)

    shutil.copytree(SPECS, elsewhere / "alerts" / "slos")
    assert files.path_of("slos") == Path("alerts/slos")
    assert files.path_of("policy.yaml").samefile(REPOSITORY / "alerts" / "policy.yaml")
    with pytest.raises(TachoscopeError, match="alerts/nothing was not found here"):
        files.path_of("nothing")


def test_a_backtest_says_what_was_told_and_what_would_have_been(
    elsewhere: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tachoscope_cli.slo.backtest.time.time", lambda: BEGIN + 4 * 3600)
    times = [round((BEGIN + 15 * n) * 1000) for n in range(4 * 240 + 1)]
    labels = {"service": "chat", "model": "m", "version": "v1"}
    failed = {at: 10.0 * min(max(at / 1000 - BEGIN - 7200, 0.0), 600.0) for at in times}
    answered = {at: 10.0 * (at / 1000 - BEGIN) - failed[at] for at in times}
    rows = [
        Planted(BY_NAME["tachoscope_requests_total"], labels | {"outcome": outcome}, "node-1", dict(counts))
        for outcome, counts in (("ok", answered), ("server_error", failed))
    ]
    write_store(Store(str(tmp_path / "store")), rows)
    asked = ("slo", "backtest", "inference-availability", "--store", str(tmp_path / "store"), "--for", "4h", "--target", "60%")

    assert call(asked) == 0
    text = capsys.readouterr().out
    assert "0 pages instead of 1" in text
    assert "page at 2023-11-15 02:0" in text
    assert call((*asked, "--format", "json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["committed"]["target"], found["changed"]["target"]) == (0.999, 0.6)
    assert [one["severity"] for one in found["committed"]["budgets"][0]["told"]] == ["page"]
    assert found["changed"]["budgets"][0]["told"] == []
    assert found["committed"]["budgets"][0]["labels"] == {"service": "chat", "model": "m"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("nothing-such",), "unknown objective 'nothing-such'"),
        (("inference-ttft-p99", "--target", "soon"), "'soon' is not a target"),
        (("inference-ttft-p99", "--threshold", "0.77"), "nothing was counted at 0.77"),
        (("inference-availability", "--threshold", "1"), "has no threshold"),
        (("inference-availability", "--store", "nowhere"), "store nowhere does not exist"),
    ],
)
def test_a_backtest_that_cannot_be_says_why(elsewhere: Path, more: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(TachoscopeError, match=said):
        call(("slo", "backtest", *more))


def test_a_label_of_the_manifests_is_written_and_one_that_is_none_is_refused(own: Path):
    assert call(("slo", "build", "--slos", str(own), "--out", "rules", "--label", "release=prom", "--label", "a.io/team=x")) == 0
    made = yaml_text.load(Path("rules/kubernetes/own.yaml").read_text())
    assert {"release": "prom", "a.io/team": "x"}.items() <= made["metadata"]["labels"].items()

    for wrong in ("release", "re lease=x", "=x", "release=a b"):
        with pytest.raises(TachoscopeError, match=re.escape(f"--label {wrong!r} is not a label")):
            call(("slo", "build", "--slos", str(own), "--out", "other", "--label", wrong))
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--interval", "20m"), "--interval is 20m, not from 1s to 2m"),
        (("--scrape-interval", "5m"), "--scrape-interval is 5m, not from 1s to 75s"),
    ],
)
def test_a_prometheus_that_looks_too_seldom_is_refused(words: tuple[str, str], said: str, own: Path):
    with pytest.raises(TachoscopeError, match=re.escape(said)):
        call(("slo", "build", "--slos", str(own), "--out", "rules", *words))
    assert not Path("rules").exists()
