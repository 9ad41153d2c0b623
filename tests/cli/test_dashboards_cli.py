"""`tachoscope dashboards`: what it prints, writes and exits with."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from board_making import made, panel
from fake_grafana import TOKEN, FakeGrafana, Kept, running
from helpers import REPOSITORY
from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError

COMMITTED = REPOSITORY / "dashboards" / "generated"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without any alerts or boards in it."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with running() as fake:
        yield fake


def test_what_is_built_from_anywhere_is_what_is_committed(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    assert call(("dashboards", "build", "--out", "boards")) == 0
    built = {path.relative_to("boards"): path.read_text() for path in Path("boards").rglob("*") if path.is_file()}

    assert built == {path.relative_to(COMMITTED): path.read_text() for path in COMMITTED.rglob("*") if path.is_file()}
    assert f"{len(built)} files in boards" in capsys.readouterr().err


def test_a_policy_says_where_links_lead_and_what_is_not_current_is_listed(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    policy = (REPOSITORY / "alerts" / "policy.yaml").read_text().replace("https://runbooks.example.com", "https://wiki.test/r")
    (elsewhere / "policy.yaml").write_text(policy)
    call(("dashboards", "build", "--out", "boards"))

    assert call(("dashboards", "build", "--out", "boards", "--check")) == 0
    assert call(("dashboards", "build", "--out", "boards", "--check", "--policy", "policy.yaml")) == 1
    assert "boards/agents.json: not current" in capsys.readouterr().out.splitlines()
    call(("dashboards", "build", "--out", "boards", "--policy", "policy.yaml"))
    assert "https://wiki.test/r/AgentDown.md" in Path("boards/agents.json").read_text()
    assert "runbooks.example.com" not in Path("boards/agents.json").read_text()


def test_objectives_of_ones_own_are_taken_and_it_is_said_whose_were(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    shutil.copytree(REPOSITORY / "alerts" / "slos", "own")
    goodput = Path("own/training-goodput.yaml")
    goodput.write_text(re.sub(r"target: 0\.\d+", "target: 0.625", goodput.read_text()))
    call(("dashboards", "build", "--out", "shipped"))
    call(("dashboards", "build", "--out", "ours", "--slos", "own"))

    assert "objectives of own\n" in capsys.readouterr().err
    assert ("62%" in Path("ours/fleet.json").read_text(), "62%" in Path("shipped/fleet.json").read_text()) == (True, False)
    assert call(("dashboards", "check", "--slos", "own")) == 0
    goodput.unlink()
    with pytest.raises(TachoscopeError, match="the objective training-goodput, which own does not have"):
        call(("dashboards", "build", "--out", "ours", "--slos", "own"))


def test_a_moment_is_that_of_a_prometheus_that_is_asked(elsewhere: Path):
    with pytest.raises(TachoscopeError, match="--prometheus URL"):
        call(("dashboards", "check", "--at", "2026-03-01T14:30"))


def test_what_is_shipped_checks_clean_from_anywhere(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    code = call(("dashboards", "check"))
    done = capsys.readouterr()

    assert (code, done.out) == (0, "")
    assert ": 0 errors, 0 notes" in done.err


def test_files_are_checked_alone_and_errors_name_file_panel_and_offender(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    raw = made()
    (elsewhere / "small.json").write_text(json.dumps(raw))
    assert call(("dashboards", "check", "small.json")) == 0
    assert "1 board with 10 expressions: 0 errors, 0 notes" in capsys.readouterr().err

    panel(raw, "Nodes")["targets"][0]["expr"] = 'count(tachoscope_agent_infos{cluster=~"$cluster"})'
    (elsewhere / "small.json").write_text(json.dumps(raw))
    assert call(("dashboards", "check", ".")) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("small.json: panel 'Nodes': error: metric tachoscope_agent_infos is in no catalogue (did you mean ")


def test_one_file_that_cannot_be_read_does_not_hide_what_is_wrong_with_another(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    (elsewhere / "broken.json").write_text("{")
    (elsewhere / "small.json").write_text(json.dumps({**made(), "editable": True}))

    assert call(("dashboards", "check", "broken.json", "small.json")) == 1
    out = capsys.readouterr().out
    assert "broken.json is not JSON" in out
    assert "[uneditable]" in out


def test_metrics_and_exceptions_of_ones_own_are_taken(elsewhere: Path, capsys: pytest.CaptureFixture[str]):
    raw = made()
    panel(raw, "Nodes")["targets"][0]["expr"] = "sum(chat_queue_length)"
    (elsewhere / "small.json").write_text(json.dumps({**raw, "editable": True}))
    (elsewhere / "own.yaml").write_text("source: ours\nmetrics: [{name: chat_queue_length, type: gauge, labels: [chat]}]\n")
    (elsewhere / "exceptions.yaml").write_text(
        "".join(f"- {{rule: {rule}, reason: as agreed}}\n" for rule in ("uneditable", "template-job", "target-job"))
        + "- {rule: template-instance, reason: as agreed}\n- {rule: target-instance, reason: as agreed}\n"
    )

    assert call(("dashboards", "check", "small.json", "--catalogue", "own.yaml", "--exceptions", "exceptions.yaml")) == 0
    assert call(("dashboards", "check", "small.json", "--exceptions", "exceptions.yaml")) == 1
    assert "chat_queue_length is in no catalogue" in capsys.readouterr().out


def test_a_prometheus_that_is_not_there_is_one_line(elsewhere: Path):
    with pytest.raises(TachoscopeError, match="could not query the Prometheus http://127.0.0.1:1"):
        call(("dashboards", "check", "--prometheus", "http://127.0.0.1:1"))


def test_what_is_missing_for_it_is_named(elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "promql_parser" else there(name))

    with pytest.raises(TachoscopeError, match=r"needs promql_parser.*tachoscope\[analyze\]"):
        call(("dashboards", "check"))


def push(fake: FakeGrafana, *words: str) -> int:
    return call(("dashboards", "push", "--url", fake.url, *words))


def test_boards_are_pushed_once_and_then_found_unchanged(
    elsewhere: Path, grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (elsewhere / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)

    assert push(grafana, "--token-file", "token", "--dry-run") == 0
    assert f"tachoscope-agents: would be created ({grafana.url}/d/tachoscope-agents)" in capsys.readouterr().out.splitlines()
    assert grafana.boards == {}
    assert push(grafana, "--token-file", "token") == 0
    assert f"tachoscope-agents: created ({grafana.url}/d/tachoscope-agents)" in capsys.readouterr().out.splitlines()
    assert set(grafana.boards) == {f"tachoscope-{path.stem}" for path in COMMITTED.glob("*.json")}
    assert push(grafana, "--token-env", "GRAFANA_TOKEN") == 0
    assert {line.split(": ")[1].split()[0] for line in capsys.readouterr().out.splitlines()} == {"unchanged"}


def test_a_board_that_was_changed_there_is_named_and_the_exit_code_says_so(
    elsewhere: Path, grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    push(grafana, "--token-env", "GRAFANA_TOKEN")
    grafana.save_by_hand("tachoscope-agents")
    capsys.readouterr()

    assert push(grafana, "--token-env", "GRAFANA_TOKEN") == 1
    assert "agents: refused: its version 2 was made by admin, not by a push" in capsys.readouterr().out
    assert push(grafana, "--token-env", "GRAFANA_TOKEN", "--overwrite", "--dry-run") == 0
    assert "agents: would be updated" in capsys.readouterr().out
    assert push(grafana, "--token-env", "GRAFANA_TOKEN", "--overwrite", "--folder", "Mine") == 0
    assert {grafana.folders[kept.folder] for kept in grafana.boards.values()} == {"Mine"}


def test_boards_of_an_earlier_version_are_named_and_left_to_the_user_to_delete(
    elsewhere: Path, grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    for uid, tags in (("fleet", ["tachoscope"]), ("data", ["theirs"]), ("copy", ["tachoscope"])):
        grafana.boards[uid] = Kept({"uid": uid, "title": uid, "version": 1, "tags": tags}, "f9", [])

    for words in (["--dry-run"], []):
        assert push(grafana, "--token-env", "GRAFANA_TOKEN", *words) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("tachoscope-")]
        assert line.startswith("fleet: left by an earlier version")
        assert line.endswith(f"({grafana.url}/d/fleet)")
    assert {"fleet", "data", "copy", "tachoscope-fleet", "tachoscope-data"} <= set(grafana.boards)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give either --token-file or --token-env"),
        (("--token-file", "token", "--token-env", "GRAFANA_TOKEN"), "give either --token-file or --token-env"),
        (("--token-file", "nowhere"), "nowhere cannot be read"),
        (("--token-env", "NOT_SET"), "the environment variable NOT_SET is not set"),
        (("--token-file", "empty"), "has invalid characters"),
    ],
)
def test_where_the_token_is_has_to_be_said_once(elsewhere: Path, words: tuple[str, ...], said: str):
    (elsewhere / "token").write_text(TOKEN)
    (elsewhere / "empty").touch()

    with pytest.raises(TachoscopeError, match=said):
        call(("dashboards", "push", "--url", "https://grafana.example.com", *words))


def test_a_token_is_never_printed(elsewhere: Path, grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]):
    (elsewhere / "token").write_text(TOKEN)
    messages = []
    for wrong in ("http://grafana.example.com", grafana.url):
        grafana.forbidden = True
        with pytest.raises(TachoscopeError) as caught:
            call(("dashboards", "push", "--url", wrong, "--token-file", "token"))
        messages.append(str(caught.value))
    done = capsys.readouterr()

    assert TOKEN not in "".join((*messages, done.out, done.err))
    assert "--insecure" in messages[0]
