"""The page of objectives, on samples of which it is known what was bad when."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from exploring import open_page, words
from http_serving import serving
from slo_making import BEGIN, Planted, write_store
from slo_report_making import BURNING, EXHAUSTED, OBJECTIVE, UNKNOWN
from tachoscope_alerts.measure.alert_history import FiredSpan, History
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.storage.store import Store
from tachoscope_explorer.figures import slos as figures
from tachoscope_explorer.page.settings import Settings
from tachoscope_show.slo import words as slo_words

SECONDS = 3 * 3600.0
OUTAGE = BEGIN + 5400.0
SCRIPT = "<script>alert(1)</script>"
WINDOW = {"from_": str(round(BEGIN * 1e3)), "to": str(round((BEGIN + SECONDS) * 1e3))}
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three hours of requests: all of `chat` fail for ten minutes, those of another service never."""
    folder = tmp_path_factory.mktemp("slos") / "store"
    times = [round((BEGIN + 15 * n) * 1000) for n in range(int(SECONDS / 15) + 1)]
    rows = []
    for service in ("chat", SCRIPT):
        labels = {"service": service, "model": "m-8b", "version": "v1"}
        failed = {at: 10.0 * min(max(at / 1000 - OUTAGE, 0.0), 600.0) if service == "chat" else 0.0 for at in times}
        answered = {at: 10.0 * (at / 1000 - BEGIN) - failed[at] for at in times}
        for outcome, counts in (("ok", answered), ("server_error", failed)):
            rows.append(Planted(BY_NAME["tachoscope_requests_total"], labels | {"outcome": outcome}, "node-1", dict(counts)))
    write_store(Store(str(folder)), rows)
    return folder


@contextmanager
def prometheus(answer: Callable[[str, dict[str, str]], list[dict[str, Any]]]) -> Iterator[str]:
    """Serve what a Prometheus's API would answer to a query."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            body = json.dumps({"status": "success", "data": {"result": answer(asked["query"], asked)}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


def page(store: Path, **more: Any) -> AppTest:
    return open_page("slos", store, **WINDOW, **more)


def test_without_samples_nothing_is_met_and_each_objective_says_what_it_lacks(tmp_path: Path) -> None:
    shown = open_page("slos", tmp_path / "store")

    assert not shown.exception
    assert "No objective was measured" in words(shown)
    (frame,) = [table.value for table in shown.dataframe]
    assert set(frame["state"]) == {"not measured"}
    assert all(frame["why"])
    assert "neither met nor missed" in words(shown)


def test_an_outage_is_a_missed_objective_with_its_burn_and_who_spent_it(store: Path) -> None:
    shown = page(store, slo="inference-availability", service="chat")

    assert not shown.exception
    told = words(shown)
    assert "State missed" in told
    assert "Attained of 99.9 %" in told
    states = dict(zip(shown.dataframe[0].value["objective"], shown.dataframe[0].value["state"], strict=True))
    assert states["inference-availability chat m-8b"] == "missed"
    assert states[f"inference-availability {SCRIPT} m-8b"] == "met"
    assert states["training-goodput"] == "not measured"
    assert list(shown.dataframe[1].value["name"]) == ["node-1"]
    assert any("InferenceAvailabilityBurn" in one.label for one in shown.expander)


def test_the_address_chooses_the_objective_and_its_service_and_is_kept(store: Path) -> None:
    shown = page(store, slo="inference-availability", service=SCRIPT)

    assert SCRIPT in shown.query_params["service"]
    assert SCRIPT not in words(shown)  # escaped, so that it stands there letter by letter
    assert r"\<script\>alert\(1\)" in words(shown)
    assert "no objective is named" in words(page(store, slo="nothing-such"))


def test_the_history_of_pages_needs_a_prometheus_and_says_so(store: Path) -> None:
    assert "--prometheus URL" in words(page(store))


def test_a_prometheus_that_does_not_answer_is_named(store: Path) -> None:
    shown = page(store, started=Settings(str(store), NOWHERE))

    assert not shown.exception
    assert any("could not query the Prometheus" in one.value for one in shown.error)
    assert "samples of the store alone" in words(shown)
    assert "missed" in set(shown.dataframe[0].value["state"])


def test_of_a_prometheus_alerts_are_shown_when_they_fired(store: Path) -> None:
    def answer(query: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        if "ALERTS" not in query:
            return []
        labels = {"alertname": "InferenceAvailabilityBurn", "severity": "page", "service": SCRIPT}
        step, start = float(asked["step"]), float(asked["start"])
        return [{"metric": labels, "values": [[start + step * n, "1"] for n in (10, 11, 12, 30)]}]

    with prometheus(answer) as url:
        shown = page(store, started=Settings(str(store), url))

    assert not shown.exception
    frame = next(table.value for table in shown.dataframe if "lasted" in table.value)
    assert list(frame["alert"]) == ["InferenceAvailabilityBurn"] * 2
    assert frame["of"][0] == f"service={SCRIPT}"


def test_a_looser_target_would_not_have_paged(store: Path) -> None:
    shown = page(store, slo="inference-availability", service="chat")
    shown.toggle[0].set_value(True).run()
    before = next(table.value for table in shown.dataframe if "tickets" in table.value)
    assert list(before["objective"]) == ["committed"] and before["pages"][0].startswith("1, ")

    shown.number_input[0].set_value(60.0).run()

    after = next(table.value for table in shown.dataframe if "tickets" in table.value)
    assert not shown.exception
    assert list(after["objective"]) == ["committed", "changed"]
    assert after["pages"][1] == "none"
    assert "0 pages instead of 1" in words(shown)


def test_a_backtest_is_opened_by_its_address_with_its_objective(store: Path) -> None:
    shown = page(store, slo="inference-availability", service="chat")
    shown.toggle[0].set_value(True).run()

    asked = {name: value[0] if isinstance(value, list) else value for name, value in shown.query_params.items()}
    assert (asked["part"], asked["slo"]) == ("backtest", "inference-availability")
    assert page(store, slo=asked["slo"], service=asked["service"], part=asked["part"]).toggle[0].value is True


def test_met_missed_too_little_data_and_not_measured_are_four_answers() -> None:
    little = type(BURNING)(**{name: getattr(BURNING, name) for name in BURNING.__struct_fields__} | {"coverage": 0.001})

    told = [slo_words.judged(one) for one in (BURNING, EXHAUSTED, little, UNKNOWN)]

    assert told == ["met", "missed", "too little data (met in it)", "not measured"]


def test_figures_show_what_is_not_measured_and_take_names_for_text() -> None:
    down = figures.burn_down(EXHAUSTED)
    assert len(down.layout.shapes) == 2  # one stretch without samples, and the line of nothing left
    burns = figures.burns(BURNING.burns)
    assert burns.data[0].text == ("20.5x",)
    assert max(burns.data[1].x) <= 4.0
    one = FiredSpan(SCRIPT, "page", OBJECTIVE.name, {"service": SCRIPT}, BEGIN, BEGIN + 60, still=False)
    drawn = figures.timeline(History(BEGIN, BEGIN + 3600, 30.0, (one,)))
    assert "<script>" not in json.dumps(drawn.to_plotly_json(), default=str)
