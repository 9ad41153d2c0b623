"""The preview's server answers a browser of this machine that asks for its pages, and nobody else."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator

import pytest

from grafana_preview.api import Preview
from grafana_preview.server import Server
from preview_making import every_type
from processes import free_port
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.parts.grafana_json import to_json


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve a board whose Prometheus is away."""
    board = every_type()
    with Server(Preview({board.uid: to_json(board)}, f"http://user:secretword@127.0.0.1:{free_port()}"), "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers={"Host": f"127.0.0.1:{server.server_port}"} | headers)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("path", ["/d/every-type", "/d/every-type/a-slug?var-node=x", "/static/page.js", "/static/page.css"])
def test_its_own_pages_come_with_headers_that_keep_all_else_out(server: Server, path: str) -> None:
    status, headers, body = ask(server, path)

    assert (status, len(body)) == (200, int(headers["content-length"]))
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_plotly_is_served_as_it_is_installed(server: Server) -> None:
    assert b"plotly.js v" in ask(server, "/static/plotly.min.js")[2][:200]


def test_the_root_leads_to_the_first_board_and_keeps_the_choice(server: Server) -> None:
    status, headers, _ = ask(server, "/?var-node=a&from=now-3h")
    assert (status, headers["location"]) == (302, "/d/every-type?var-node=a&from=now-3h")


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/d/none",
            "/static/server.py",
            "/static/../server.py",
            "/static/",
            "/static/..%2fserver.py",
            "/etc/passwd",
            "/favicon.ico",
        ),
        *("/api/board/none", "/api/panel/every-type/999", "/api/panel/every-type", "/api/query?query=up", "/api/v1/query?query=up"),
        *("//evil.example.com/", "/api/panel/every-type/2/../3", "http://127.0.0.1/d/every-type/x/y"),
    ],
)
def test_other_paths_are_not_there(server: Server, path: str) -> None:
    status, headers, body = ask(server, path)
    assert (status, "location" in headers) == (404, False), body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/d/every-type", "/api/panel/every-type/2"])
def test_whatever_is_not_get_is_refused(server: Server, method: str, path: str) -> None:
    assert ask(server, path, method)[0] == 501


def test_another_name_that_leads_here_gets_nothing(server: Server) -> None:
    port = server.server_port
    for host in ("evil.example.com", f"evil.example.com:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        assert ask(server, "/d/every-type", Host=host)[0] == 421
    assert ask(server, "/d/every-type", Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize(
    "asked", ["from=yesterday", "from=now&to=now-1h", "width=x", "from=0&to=now", "&".join(f"a{n}=1" for n in range(1100))]
)
def test_what_makes_no_sense_is_told(server: Server, asked: str) -> None:
    status, _, body = ask(server, f"/api/panel/every-type/3?{asked}")
    assert (status, "error" in json.loads(body)) == (400, True)


def test_a_prometheus_that_is_away_is_told_without_its_password(server: Server) -> None:
    status, _, body = ask(server, "/api/board/every-type")
    assert status == 502
    assert b"could not query the Prometheus" in body
    assert b"secretword" not in body
    status, _, body = ask(server, "/api/panel/every-type/3")
    assert (status, json.loads(body)["kind"]) == (200, "error")
    assert b"secretword" not in body


def test_a_port_that_is_taken_is_told(server: Server) -> None:
    with pytest.raises(TachoscopeError, match="could not serve on 127.0.0.1 port .*--port 0"):
        Server(Preview({}, ""), "127.0.0.1", server.server_port)
