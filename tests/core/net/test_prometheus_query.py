"""One query of a Prometheus: its time is passed on, and an answer that is none or too large is said so."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.prometheus import instant_query, label_values, range_query


class Answers(BaseHTTPRequestHandler):
    status, body = 200, b""
    asked: dict[str, str]
    path_asked: str

    def do_POST(self) -> None:
        type(self).asked = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        self.do_GET()

    def do_GET(self) -> None:
        type(self).path_asked = self.path
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def answer(body: bytes, status: int = 200) -> None:
    Answers.body, Answers.status = body, status


def test_the_series_of_the_answer_come_back_and_the_time_is_passed_on_to_the_millisecond(url: str) -> None:
    answer(b'{"status":"success","data":{"result":[{"metric":{"a":"b"},"value":[1.5,"2"]}]}}')
    assert instant_query(url, "up", at=1.7e9 + 0.25) == [{"metric": {"a": "b"}, "value": [1.5, "2"]}]
    assert (Answers.asked["query"], Answers.asked["time"]) == ("up", "1700000000.250")
    instant_query(url, "up")
    assert "time" not in Answers.asked


def test_what_prometheus_refuses_is_told_in_its_own_words(url: str) -> None:
    answer(b'{"status":"error","error":"parse error: unexpected end"}', 400)
    with pytest.raises(TachoscopeError, match=r"127\.0\.0\.1.* refuses sum\(: parse error"):
        instant_query(url, "sum(")


def test_what_is_no_answer_of_a_prometheus_is_told(url: str) -> None:
    answer(b"<html>")
    with pytest.raises(TachoscopeError, match="is not a Prometheus server"):
        instant_query(url, "up")
    answer(b"<html>", 404)
    with pytest.raises(TachoscopeError, match="is not a Prometheus server: it answers 404"):
        instant_query(url, "up")
    with pytest.raises(TachoscopeError, match="is not an http:// or https:// URL"):
        instant_query("file:///etc/passwd", "up")


def test_an_answer_that_is_too_large_is_refused_with_the_way_out(url: str) -> None:
    answer(b"x" * 2000)
    with pytest.raises(TachoscopeError, match=r"more than 0 MiB for up \(ask for less\)"):
        instant_query(url, "up", most_bytes=1000, less="ask for less")


def test_a_query_over_time_and_the_values_of_a_label_are_asked_of_their_own_paths(url: str) -> None:
    answer(b'{"status":"success","data":{"result":[{"metric":{},"values":[[1,"2"],[16,"3"]]}]}}')
    assert range_query(url, "up", start=1.0, end=16.5, step=15.0) == [{"metric": {}, "values": [[1, "2"], [16, "3"]]}]
    assert Answers.path_asked == "/api/v1/query_range"
    assert {name: Answers.asked[name] for name in ("query", "start", "end", "step")} == {
        "query": "up",
        "start": "1.000",
        "end": "16.500",
        "step": "15",
    }
    answer(b'{"status":"success","data":["a","b"]}')
    assert label_values(url, "a/b", 'up{x="&"}', start=1.0, end=2.0) == ["a", "b"]
    assert Answers.path_asked == "/api/v1/label/a%2Fb/values?match%5B%5D=up%7Bx%3D%22%26%22%7D&start=1.000&end=2.000"
    answer(b'{"status":"success","data":{}}')
    with pytest.raises(TachoscopeError, match="is not a Prometheus server"):
        label_values(url, "a", "up", start=1.0, end=2.0)
