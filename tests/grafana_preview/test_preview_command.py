"""`python tools/grafana_preview` as it is typed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import preview_making
from grafana_preview.api import Preview
from grafana_preview.command import call
from grafana_preview.loading import load
from helpers import REPOSITORY
from processes import free_port
from tachoscope_cli.main import main
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.panels import Query, stat
from tachoscope_show.text.units import moment_of

pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("prometheus")), reason="needs chromium and prometheus"
)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with preview_making.planted(tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["--prometheus", *words], run=call)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def png_size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


@pytest.mark.bar
def test_it_says_where_the_pages_are_and_an_interrupt_ends_it_cleanly(prometheus: str) -> None:
    process = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "tools" / "grafana_preview"), "--prometheus", prometheus, "agents", "--from", "2h"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with urllib.request.urlopen(f"{url}api/board/tachoscope-agents", timeout=60) as answer:
        board = json.load(answer)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert url.startswith("http://127.0.0.1:")
    assert board["time"]["from"] == "now-2h"
    assert (process.returncode, out) == (0, "")
    assert "boards agents, from" in err.splitlines()[0]
    assert err.splitlines()[1:] == ["tachoscope: ended"]


def test_another_moment_stands_for_now_and_the_page_says_which(prometheus: str) -> None:
    then = moment_of("2026-03-01T14:30+01:00")
    preview = Preview(load(["agents"]), prometheus, "now-600s", then)

    first = preview.frame("tachoscope-agents", {})["time"]
    chosen = preview.frame("tachoscope-agents", {"from": ["now-1h"], "to": ["now"]})["time"]

    assert then == 1772371800.0 == moment_of("1772371800")
    assert (first["start"], first["end"]) == (then * 1000 - 600_000, then * 1000)
    assert (chosen["start"], chosen["end"]) == (then * 1000 - 3_600_000, then * 1000)
    assert (first["from"], first["to"]) == (str(first["start"]), str(first["end"]))


def test_pictures_are_made_of_all_boards_of_a_folder(prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "boards").mkdir()
    for board in (preview_making.other(), preview_making.large(4)):
        (tmp_path / f"boards/{board.uid}.json").write_text(json.dumps(to_json(board)))

    code, out, _ = run(capsys, prometheus, str(tmp_path / "boards"), "--shots", str(tmp_path / "out"), "--theme", "dark")

    assert code == 0, out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"other.dark.png", "large.dark.png"}
    width, height = png_size(tmp_path / "out/large.dark.png")
    assert (width, height > 400) == (1600, True)
    assert f"{tmp_path}/out/large.dark.png: 4 panels, 0 of them empty, 0 failed" in out


@pytest.mark.bar
def test_a_panel_that_cannot_be_drawn_is_named_and_fails(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(preview_making.other(), panels=[stat("S", preview_making.about(), Query("sum("), unit="s")])
    (tmp_path / "b.json").write_text(json.dumps(to_json(broken)))

    code, out, _ = run(capsys, prometheus, str(tmp_path / "b.json"), "--shots", str(tmp_path))

    assert code == 1
    assert "1 panels, 0 of them empty, 1 failed" in out
    assert "parse error" in out
    assert (tmp_path / "other.png").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{away}"], "could not query the Prometheus"),
        (["ftp://x"], "not an http:// or https:// URL"),
        (["{prometheus}", "fleat"], "no board, file or folder 'fleat'"),
        (["{prometheus}", "--theme", "dark"], "--theme and --chromium are for pictures"),
        (["{prometheus}", "--from", "soon"], "not a duration"),
        (["{prometheus}", "--at", "yesterday"], "'yesterday' is not a moment"),
        (["{prometheus}", "--shots", "{folder}", "--chromium", "/nowhere"], "there is no Chromium /nowhere"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    known = {"away": f"http://127.0.0.1:{free_port()}", "prometheus": prometheus, "folder": str(tmp_path)}
    code, _, err = run(capsys, *(word.format(**known) for word in words))
    assert (code, err.count("\n")) == (2, 1)
    assert said in err


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("playwright.sync_api", "--shots needs playwright (pip install playwright, and a Chromium)"),
        ("plotly", "this command needs plotly"),
    ],
)
def test_a_missing_package_is_named(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    code, _, err = run(capsys, prometheus, "--shots", str(tmp_path))
    assert (code, said in err) == (2, True), err
