"""What a real Prometheus answers to the expressions of boards."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from board_making import made, panel, read
from http_serving import serving
from processes import ask_prometheus, free_port, prometheus, wait_for
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.check_answers import check

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
PAGE = b'tachoscope_agent_info{version="1"} 1\ntachoscope_steps_total{training_job="a",rank="0"} 5\n'


@contextmanager
def exporter() -> Iterator[str]:
    """Serve a node that trains nothing any more."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    labels = {"cluster": "here"}
    with exporter() as target:
        # Longer than this process may be kept from answering: a scrape that fails takes all series away until the next.
        scrapes = {"scrape_interval": "5s", "scrape_timeout": "5s"}
        job = {"job_name": "agents", "static_configs": [{"targets": [target], "labels": labels}], **scrapes}
        with prometheus(tmp_path_factory.mktemp("prometheus"), job) as port:
            wait_for(lambda: ask_prometheus(port, "query", query="rate(tachoscope_steps_total[1m])")["result"], 120)
            yield f"http://127.0.0.1:{port}"


def test_what_finds_nothing_is_listed_with_the_reason_that_its_panel_gives(url: str) -> None:
    problems = check([read(made())], url)

    assert [(one.where, one.severity, one.rule) for one in problems] == [
        ("panel 'Ranks'", "note", "empty"),
        ("panel 'Where time goes'", "note", "empty"),
        ("variable 'training_job'", "note", "empty"),
    ]
    assert problems[0].what.startswith("no series there: max by (rank) (tachoscope_heartbeat_age_seconds{")
    assert [one.fix for one in problems] == [
        *["its panel then says 'nothing was found'"] * 2,
        "nothing says why",
    ]


def test_what_is_refused_is_an_error_with_prometheus_own_words(url: str) -> None:
    raw = made()
    panel(raw, "Nodes")["targets"][0]["expr"] = 'rate(up{cluster=~"$cluster"})'
    raw["annotations"]["list"][1]["expr"] = "changes(up"
    errors = [one for one in check([read(raw)], url) if one.severity == "error"]

    assert [(one.where, one.rule) for one in errors] == [("annotation 'Restarts'", "answer"), ("panel 'Nodes'", "answer")]
    assert "expected type range vector" in errors[1].what


def test_a_number_is_an_answer_too_and_progress_is_told(url: str) -> None:
    raw = made()
    raw["panels"] = [panel(raw, "Nodes")]
    raw["panels"][0]["targets"][0]["expr"] = "time()"
    parts: list[float] = []
    problems = check([read(raw)], url, parts.append)

    assert [one.where for one in problems] == ["variable 'training_job'"]
    assert parts == sorted(parts)
    assert parts[-1] == 1.0


def test_a_moment_before_there_was_anything_finds_nothing(url: str) -> None:
    now, before = (check([read(made())], url, at=at) for at in (time.time(), time.time() - 86_400.0))

    assert "panel 'Nodes'" not in [one.where for one in now]
    assert "panel 'Nodes'" in [one.where for one in before]


def test_without_a_prometheus_nothing_is_said_of_boards(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="could not query the Prometheus"):
        check([read(made())], f"http://127.0.0.1:{free_port()}")
