"""The agent's pages over real sockets, to clients that behave."""

from __future__ import annotations

import errno
import socket
from unittest.mock import ANY

import pytest

from left_behind import LeftBehind
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.http.server import Request, Response, WebServer
from tachoscope_service.http.web_config import WebConfig
from web_clients import HASH, MOST_BODY_BYTES, PAGE, USERS, answer, ask, basic, closed, connect, fetch, serving, until


def test_a_page_comes_whole_with_its_length_type_and_date():
    with serving() as server:
        status, headers, body = fetch(server)
        assert (status, body) == (200, PAGE)
        assert headers["content-type"] == "text/plain"
        assert headers["date"].endswith("GMT")
        assert "connection" not in headers


def test_a_handler_gets_path_query_and_what_the_client_accepts():
    with serving() as server:
        request = repr(Request("/echo", "a=1&b=%20?", "text/plain, */*", "gzip")).encode()
        headers = ("Accept: text/plain", "ACCEPT: */*", "Accept-Encoding: gzip")
        status, got, body = fetch(server, *headers, path="/echo?a=1&b=%20?")
        assert (status, got["x-extra"], body) == (200, "1", request)
        assert fetch(server, path="http://node:9/echo?a=1")[2] == repr(Request("/echo", "a=1")).encode()


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "*", "//metrics", "http://[/metrics", "/metrics%00"])
def test_an_unknown_path_is_not_found_or_no_path(path):
    with serving() as server:
        assert fetch(server, path=path)[0] in (404, 400)


def test_other_methods_are_refused_by_name_and_the_connection_stays():
    with serving() as server, connect(server) as sock:
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
            sock.sendall(ask(method=method))
            status, headers, _ = answer(sock)
            assert (status, headers["allow"]) == (405, "GET, HEAD")
        sock.sendall(ask())
        assert answer(sock)[0] == 200


def test_a_post_goes_only_where_posts_are_taken():
    with serving() as server, connect(server) as sock:
        for method, path, status, allowed in (
            ("POST", "/a/one/do", 202, ""),
            ("GET", "/a/one/do", 200, ""),
            ("PUT", "/a/one/do", 405, "GET, HEAD, POST"),
            ("POST", "/a/one/other", 404, ""),
            ("POST", "/a/one/two/do", 404, ""),
            ("POST", "/echo", 405, "GET, HEAD"),
        ):
            sock.sendall(ask(path, method=method))
            got, headers, body = answer(sock)
            assert (got, headers.get("allow", "")) == (status, allowed), path
            assert got != 202 or body == b"did /a/one/do"


@pytest.mark.parametrize("header", ["Origin: http://node", "Origin: null", "Sec-Fetch-Site: same-origin"])
def test_no_page_in_a_browser_can_post_not_even_one_of_the_same_name(header):
    with serving() as server, connect(server) as sock:
        sock.sendall(ask("/a/one/do", header, method="POST"))
        assert answer(sock)[0] == 403
        sock.sendall(ask("/a/one/do", header))
        assert answer(sock)[0] == 200


def test_a_post_needs_the_password_and_has_no_body():
    with serving(USERS) as server, connect(server) as sock:
        sock.sendall(ask("/a/one/do", method="POST"))
        assert answer(sock)[0] == 401
        sock.sendall(ask("/a/one/do", basic("alice", "secret"), method="POST"))
        assert answer(sock)[0] == 202
        sock.sendall(ask("/a/one/do", basic("alice", "secret"), "Content-Length: 2", method="POST") + b"{}")
        assert answer(sock)[0] == 413


def test_a_body_is_taken_only_where_one_is_wanted_of_those_who_are_known_and_up_to_its_limit():
    known = basic("alice", "secret")
    with serving(USERS) as server, connect(server) as sock:
        sock.sendall(ask("/a/one/take", "Content-Length: 4000", method="POST"))
        assert answer(sock)[0] == 401, "before the body came"
    with serving(USERS) as server, connect(server) as sock:
        for text in (b"x", b"y" * MOST_BODY_BYTES):
            sock.sendall(ask("/a/one/take", known, f"Content-Length: {len(text)}", method="POST") + text[:1])
            sock.sendall(text[1:])
            assert answer(sock) == (201, ANY, text)
        sock.sendall(ask("/a/one/take", known, "Transfer-Encoding: chunked", method="POST") + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        assert answer(sock)[2] == b"abc"
        sock.sendall(ask("/a/one/take", known, method="POST"))
        assert answer(sock)[2] == b""
        sock.sendall(ask("/a/one/break", known, method="POST"))
        assert answer(sock)[0] == 500
        sock.sendall(ask("/a/one/take", known, "Transfer-Encoding: chunked", method="POST") + b"1001\r\n" + b"z" * 0x1001)
        assert answer(sock)[0] == 413


def test_head_tells_the_length_and_sends_nothing_of_the_page():
    with serving() as server, connect(server) as sock:
        for _ in range(2):
            sock.sendall(ask(method="HEAD"))
            status, headers, _ = answer(sock, head_only=True)
            assert (status, headers["content-length"]) == (200, str(len(PAGE)))
        sock.sendall(ask())
        assert answer(sock)[2] == PAGE


def test_a_connection_is_kept_for_many_requests_and_closed_when_the_client_says_so():
    with serving() as server, connect(server) as sock:
        for _ in range(50):
            sock.sendall(ask())
            assert answer(sock)[2] == PAGE
        sock.sendall(ask("/metrics", "Connection: close"))
        assert answer(sock)[1]["connection"] == "close"
        assert closed(sock)


def test_http_1_0_gets_its_page_and_the_end():
    with serving() as server, connect(server) as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert answer(sock)[2] == PAGE
        assert closed(sock)


def test_pipelined_requests_are_answered_in_their_order():
    with serving() as server, connect(server) as sock:
        sock.sendall(b"".join(ask(f"/echo?{number}") for number in range(200)))
        for number in range(200):
            assert answer(sock)[2] == repr(Request("/echo", str(number))).encode()


def test_a_client_that_ends_its_side_after_asking_still_gets_every_answer():
    with serving(page=PAGE * 1000) as server, connect(server) as sock:
        sock.sendall(ask() + ask("/echo"))
        sock.shutdown(socket.SHUT_WR)
        assert answer(sock)[2] == PAGE * 1000
        assert answer(sock)[0] == 200
        assert closed(sock)


def test_a_head_may_come_byte_by_byte():
    with serving() as server, connect(server) as sock:
        for byte in ask():
            sock.sendall(bytes([byte]))
        assert answer(sock)[0] == 200


def test_a_large_page_reaches_a_slow_reader_who_goes_on_reading():
    page = bytes(range(256)) * 20_000
    with serving(page=page, write_seconds=2.0) as server, connect(server) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.sendall(ask())
        got = b""
        for _ in range(5):  # together longer than the patience, and none of them nearly
            until(lambda: False, 0.5)
            got += sock.recv(65536)
        body = got.partition(b"\r\n\r\n")[2]
        while len(body) < len(page):
            body += sock.recv(1 << 20)
        assert body == page
        assert sum(server.refused.values()) == 0


def test_a_failing_handler_is_an_error_without_details_one_line_in_the_log_and_no_end():
    with serving() as server, connect(server) as sock:
        for _ in range(3):
            sock.sendall(ask("/broken"))
            status, _, body = answer(sock)
            assert (status, body) == (500, b"500 Internal Server Error\n")
        sock.sendall(ask())
        assert answer(sock)[0] == 200
        assert len(server.lines) == 1
        assert "RuntimeError: the secret reason" in server.lines[0]


@pytest.mark.parametrize("wrong", [None, Response(200, "text/plain", b"", (("X", "a\r\nY: b"),)), Response(999, "text/plain", b"")])
def test_a_handler_that_answers_nonsense_is_an_error_and_splits_no_headers(wrong):
    lines: list[str] = []
    server = WebServer({"/": lambda _: wrong}, address="127.0.0.1", port=0, web_config=None, log=lines.append)
    server.start()
    assert fetch(server, path="/")[0] == 500
    assert len(lines) == 1
    server.stop()


def test_headers_of_the_configuration_are_on_every_response():
    config = WebConfig(headers=(("X-Frame-Options", "deny"),), users=USERS.users)
    with serving(config) as server:
        for headers in ((), (basic("alice", "secret"),)):
            assert fetch(server, *headers)[1]["x-frame-options"] == "deny"


def test_with_users_nothing_is_told_without_a_right_password_not_even_what_exists():
    with serving(USERS) as server:
        for path in ("/metrics", "/nothing", "/broken"):
            for headers in ((), (basic("alice", "wrong"),), (basic("bob", "secret"),), ("Authorization: Bearer x",)):
                status, got, body = fetch(server, *headers, path=path)
                assert (status, body) == (401, b"401 Unauthorized\n")
                assert got["www-authenticate"].startswith("Basic realm=")
        assert fetch(server, basic("alice", "secret"))[2] == PAGE
        assert fetch(server, basic("alice", "secret"), path="/nothing")[0] == 404
        assert until(lambda: server.refused["unauthorised"] == 12)


def test_a_bearer_token_opens_every_page():
    with serving(WebConfig(tokens={"file": b"token-one"})) as server:
        assert fetch(server, "Authorization: Bearer token-one")[0] == 200
        status, headers, _ = fetch(server, "Authorization: Bearer token-two")
        assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="tachoscope"')


def test_a_reload_replaces_the_users_also_for_kept_connections():
    with serving(USERS) as server, connect(server) as kept:
        kept.sendall(ask("/metrics", basic("alice", "secret")))
        assert answer(kept)[0] == 200
        server.reload(WebConfig(users={"bob": HASH}))
        assert closed(kept)
        assert fetch(server, basic("alice", "secret"))[0] == 401
        assert fetch(server, basic("bob", "secret"))[0] == 200
        server.reload(None)
        assert fetch(server)[0] == 200


def test_a_request_that_has_begun_survives_a_reload_and_is_the_last():
    with serving() as server, connect(server) as sock:
        sock.sendall(ask()[:10])
        assert until(lambda: any(one._http.started for one in list(server._connections)))
        server.reload(WebConfig(headers=(("X-Frame-Options", "deny"),)))
        sock.sendall(ask()[10:])
        status, headers, _ = answer(sock)
        assert (status, headers["x-frame-options"], headers["connection"]) == (200, "deny", "close")


def test_stopping_ends_open_connections_and_leaves_nothing():
    left = LeftBehind()
    socks = []
    with serving(USERS) as server:
        assert fetch(server, basic("alice", "wrong"))[0] == 401
        socks = [connect(server) for _ in range(20)]
        socks[0].sendall(ask("/metrics", basic("alice", "secret")))
        assert answer(socks[0])[0] == 200
        socks[1].sendall(b"GET /met")
        port = server.port
    server.stop()  # twice is once
    for sock in socks:
        assert closed(sock)
        sock.close()
    left.assert_nothing()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_server_that_never_started_can_be_stopped():
    WebServer({}, address="127.0.0.1", port=0, web_config=None, log=print).stop()


@pytest.mark.parametrize("address", ["", "::", "localhost", "0.0.0.0"])
def test_every_way_of_naming_this_machine_is_reached_by_ipv4(address):
    with serving(address=address) as server:
        assert fetch(server)[0] == 200


def test_a_taken_port_is_told_with_the_way_out():
    with serving() as server:
        second = WebServer({}, address="127.0.0.1", port=server.port, web_config=None, log=print)
        with pytest.raises(TachoscopeError) as caught:
            second.start()
        assert f"cannot listen on 127.0.0.1:{server.port}: Address already in use" in str(caught.value)
        assert f"ss -ltnp 'sport = :{server.port}'" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "port", "told"),
    [
        ("192.0.2.1", 9400, "no such address: write one of its own"),
        ("no-such-host.invalid", 9400, "the name is not known here"),
        ("127.0.0.1", 70000, "a port from 0 to 65535"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_told_with_the_way_out(address, port, told):
    with pytest.raises(TachoscopeError) as caught:
        WebServer({}, address=address, port=port, web_config=None, log=print).start()
    assert f"cannot listen on {address}:{port}: " in str(caught.value)
    assert told in str(caught.value)


def test_a_port_that_needs_rights_says_so(monkeypatch):
    def refuse(*_: object, **__: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refuse)
    with pytest.raises(TachoscopeError, match="choose a port above 1023"):
        WebServer({}, address="127.0.0.1", port=80, web_config=None, log=print).start()


@pytest.mark.parametrize(
    ("config", "host", "status"),
    [
        (None, "evil.example", 421),
        (None, "evil.example:9465", 421),
        (None, "localhost:9465", 200),
        (None, "127.0.0.1", 200),
        (None, "[::1]:9465", 200),
        (USERS, "evil.example", 401),
    ],
)
def test_on_loopback_a_name_of_elsewhere_is_refused_where_nothing_else_keeps_a_browser_out(
    config: WebConfig | None, host: str, status: int
) -> None:
    with serving(config) as server, connect(server) as sock:
        sock.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert answer(sock)[0] == status
