"""What a server says is an answer; where it says nothing whole in time, the reason; nothing is sent anywhere else."""

from __future__ import annotations

import email.message
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tachoscope_core.net.http_client import HttpError, HttpResponse, StatusError, TooLongError, get, request

PATIENCE = 60.0
"""For an answer that comes."""


class Server(ThreadingHTTPServer):
    """Answers with `status`, and keeps what it was asked: method, target, headers and body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline()
        if not self.parse_request():
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, self.path, headers, body))
        if self.path == "/drips":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(600):
                self.wfile.write(b"x")
                time.sleep(0.1)
            return
        self.send_response(self.server.status, "Said So")
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"page")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.mark.parametrize("status", [200, 204, 302, 404, 500])
def test_any_status_is_an_answer_and_no_redirect_is_followed(server: Server, status: int) -> None:
    server.status = status
    answer = request(server.url + "/a?b=c", seconds=PATIENCE, most_bytes=100)

    assert (answer.status, answer.reason, answer.headers["location"]) == (status, "Said So", "http://127.0.0.1:1/elsewhere")
    assert answer.content == (b"" if status == 204 else b"page")
    assert [(method, target) for method, target, *_ in server.asked] == [("GET", "/a?b=c")]


def test_only_success_is_a_page(server: Server) -> None:
    assert get(server.url, seconds=PATIENCE) == b"page"
    for status, why in ((302, r"redirects to http://127.0.0.1:1/elsewhere \(302\)"), (404, "answers 404 Said So")):
        server.status = status
        with pytest.raises(StatusError, match=why):
            get(server.url, seconds=PATIENCE)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("https://user:secret@host:9/graph?token=x", " to https://host:9/graph"),
        ("/login", " to /login"),
        ("http://[", ""),
        ("/\x1b[31m", ""),
        (None, ""),
    ],
)
def test_where_a_redirect_leads_is_said_without_secrets_and_whatever_stands_there(location: str | None, said: str) -> None:
    headers = email.message.Message()
    if location is not None:
        headers["Location"] = location

    assert HttpResponse(302, "Found", headers, b"").redirects_to == said


def test_method_headers_and_body_arrive_and_nothing_of_a_user_in_the_url(server: Server) -> None:
    request(server.url, seconds=PATIENCE, most_bytes=100, body=b"{}", headers={"Content-Type": "application/json", "X-Token": "t"})
    request(server.url.replace("//", "//me:secret@"), seconds=PATIENCE, most_bytes=100, method="PUT")

    (first, _, headers, body), (second, _, others, _) = server.asked
    assert (first, headers["content-type"], headers["x-token"], body) == ("POST", "application/json", "t", b"{}")
    assert second == "PUT" and not {"authorization", "user-agent"} & set(others)
    assert others["host"] == server.url.removeprefix("http://")


def test_a_header_that_cannot_be_sent_is_a_reason_without_its_value(server: Server) -> None:
    with pytest.raises(HttpError, match=r"^its URL or a header cannot be sent$"):
        request(server.url, seconds=PATIENCE, most_bytes=100, headers={"Authorization": "secret\nX: y"})


def test_a_server_that_drips_ends_in_time_and_one_that_sends_much_is_cut_off(server: Server) -> None:
    with pytest.raises(HttpError, match=r"^no whole answer within 0.5 s$"):
        request(server.url + "/drips", seconds=0.5, most_bytes=100)
    with pytest.raises(TooLongError, match=r"more than 3 bytes"):
        request(server.url, seconds=PATIENCE, most_bytes=3)


def test_a_server_that_does_not_speak_tls_or_only_drips_in_the_handshake_is_a_reason_in_time(server: Server) -> None:
    url = server.url.replace("http:", "https:")

    with pytest.raises(HttpError, match=r"SSL|no whole answer"):
        request(url, seconds=2.0, most_bytes=100, tls=ssl.create_default_context())


def test_the_environments_proxy_is_asked_for_far_hosts_alone_and_only_where_that_is_wanted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert request("http://far.invalid/page", seconds=PATIENCE, most_bytes=100, proxies=True).content == b"page"
        assert [target for _, target, *_ in proxy.asked] == ["http://far.invalid/page"]
        request(server.url, seconds=PATIENCE, most_bytes=100, proxies=True)
        request(server.url.replace("127.0.0.1", "localhost"), seconds=PATIENCE, most_bytes=100, proxies=True)
        with pytest.raises(HttpError):
            request("http://far.invalid/page", seconds=PATIENCE, most_bytes=100)
        assert len(proxy.asked) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:99999/?key=secret",
        "http:///?key=secret",
        "http://127.0.0.1:1/ ?key=secret",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "nonsense",
        "",
    ],
)
def test_what_cannot_be_asked_is_a_reason_without_the_url(url: str) -> None:
    with pytest.raises(HttpError) as found:
        request(url, seconds=PATIENCE, most_bytes=100)

    assert "secret" not in str(found.value) and "passwd" not in str(found.value)
