"""What is asked of a Prometheus, and what its answers are taken for. That the numbers are right: test_parity.py, on a real one."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from http_serving import serving
from slo_making import BEGIN, LATENCY, slo
from tachoscope_alerts.measure.events import Ask, EventSums, Window
from tachoscope_alerts.measure.from_prometheus import PrometheusSource
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_core.errors import TachoscopeError

TIMING = Timing()
ONE = slo(LATENCY, by=("service",), name="ttft")
ASK = Ask(ONE, (Window(BEGIN, BEGIN + 3600),))


@contextmanager
def answering(answer: Callable[[str], list[dict[str, Any]]]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Run a server of the query API; yield its URL, and what it was asked."""
    asked: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            asked.append(query)
            body = json.dumps({"status": "success", "data": {"result": answer(query["query"])}}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url, asked


def row(value: float, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [0, str(value)]}


def parts(query: str) -> list[dict[str, Any]]:
    if query.startswith("count by (slo)"):
        return [row(1, slo="ttft")]
    return [
        row(value, slo="ttft", service=service, slo_part=part)
        for service, values in (("chat", (1.0, 10.0, 119)), ("code", (0.0, 5.0, 60)))
        for part, value in zip(("bad", "total", "evaluations"), values, strict=True)
    ]


def test_recorded_series_are_asked_for_where_there_are_any() -> None:
    with answering(parts) as (url, asked):
        source = PrometheusSource(url)
        (measured,) = source.measure([ASK], TIMING)

    assert measured == {("chat",): [EventSums(1.0, 10.0, 119)], ("code",): [EventSums(0.0, 5.0, 60)]}
    assert source.notes == []
    assert 'sum_over_time(slo:bad_events:base{slo="ttft"}[3599999ms])' in asked[1]["query"]
    assert 'count_over_time(slo:total_events:base{slo="ttft"}[3599999ms])' in asked[1]["query"]
    assert asked[1]["time"] == f"{BEGIN + 3600:.3f}"


def test_without_recorded_series_the_indicator_itself_is_evaluated_and_that_is_noted() -> None:
    with answering(lambda query: [] if query.startswith("count by (slo)") else parts(query)) as (url, asked):
        source = PrometheusSource(url)
        (measured,) = source.measure([ASK], TIMING)

    assert measured["chat",] == [EventSums(1.0, 10.0, 119)]
    assert "tachoscope_request_first_token_seconds_bucket" in asked[1]["query"]
    assert "[3599999ms:30s]" in asked[1]["query"]
    assert source.notes == ["evaluated from raw series, since no rule recorded it: ttft"]


def test_of_offenders_only_the_bad_events_are_asked_for_and_always_of_raw_series() -> None:
    with answering(parts) as (url, asked):
        PrometheusSource(url).measure([ASK, Ask(slo(LATENCY, by=("service", "instance"), name="ttft"), ASK.windows, True)], TIMING)

    assert "evaluations" not in asked[-1]["query"]
    assert "sum by (service, instance)" in asked[-1]["query"]


def test_offenders_of_other_series_than_their_budget_are_told_and_of_the_same_are_not() -> None:
    asks = [ASK, Ask(slo(LATENCY, by=("service", "instance"), name="ttft"), ASK.windows, True)]
    with answering(parts) as (url, _):
        mixed = PrometheusSource(url)
        mixed.measure(asks, TIMING)
    with answering(lambda query: [] if query.startswith("count by (slo)") else parts(query)) as (url, _):
        raw = PrometheusSource(url)
        raw.measure(asks, TIMING)

    assert mixed.raw_only_bad == {"ttft"}
    assert "the worst are counted from raw series" in mixed.notes[0]
    assert raw.raw_only_bad == set()
    assert raw.notes == ["evaluated from raw series, since no rule recorded it: ttft"]


def test_a_prometheus_without_samples_measures_nothing() -> None:
    with answering(lambda _: []) as (url, _):
        source = PrometheusSource(url)
        assert source.measure([ASK], TIMING) == [{}]
        assert source.notes == [], "nothing was evaluated"


def test_one_that_cannot_be_reached_is_named_and_secrets_of_its_address_are_not() -> None:
    with pytest.raises(TachoscopeError, match=r"could not query the Prometheus http://127\.0\.0\.1:1: .*refused"):
        PrometheusSource("http://127.0.0.1:1").measure([ASK], TIMING)
    assert "hunter2" not in PrometheusSource("http://me:hunter2@127.0.0.1:1").name
