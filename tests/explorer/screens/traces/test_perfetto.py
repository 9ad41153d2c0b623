"""The files of Perfetto's interface and the traces that it is given: confined, by token, with nothing from elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from tachoscope_explorer.page import perfetto_files as perfetto


class Sessions:
    """Stands for Streamlit's runtime: which sessions are there."""

    def __init__(self, *active: str) -> None:
        self.active = set(active)

    def exists(self) -> bool:
        return True

    def get_instance(self) -> Sessions:
        return self

    def is_active_session(self, session: str) -> bool:
        return session in self.active


class Client:
    """Asks the routes without a server."""

    def get(self, path: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(Starlette(routes=perfetto.routes()))
            async with httpx.AsyncClient(transport=transport, base_url="http://explorer") as client:
                return await client.get(path)

        return asyncio.run(ask())


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "rank-0.json").write_text("[]")
    return tmp_path / "rank-0.json"


def test_the_interface_is_served_with_a_policy_that_allows_no_other_host(client: Client) -> None:
    page = client.get("/perfetto/ui/index.html")

    assert page.status_code == 200
    assert "Perfetto UI" in page.text
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "path",
    ["../viewer.py", "%2e%2e/viewer.py", "..%2fviewer.py", "/etc/passwd", "%2fetc%2fpasswd", "", "service_worker.js", "a%00b"],
)
def test_no_file_outside_of_the_interface_is_served(client: Client, path: str) -> None:
    assert client.get(f"/perfetto/ui/{path}").status_code == 404


def test_a_trace_is_given_to_who_has_its_token_while_the_session_is_there(
    client: Client, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions("one")
    monkeypatch.setattr(perfetto, "runtime", sessions)
    token = perfetto.token_for("one", trace)

    assert client.get(f"/perfetto/trace/{token}/rank-0.json").text == "[]"
    assert client.get(f"/perfetto/trace/{token[:-1]}/rank-0.json").status_code == 404
    sessions.active.clear()
    assert client.get(f"/perfetto/trace/{token}/rank-0.json").status_code == 404


def test_a_token_is_of_one_session_and_one_file(trace: Path) -> None:
    other = trace.with_name("rank-1.json")

    assert perfetto.token_for("one", trace) == perfetto.token_for("one", trace)
    assert len({perfetto.token_for(session, path) for session in ("one", "two") for path in (trace, other)}) == 4
    assert len(perfetto.token_for("one", trace)) >= 32


def test_the_oldest_tokens_go(client: Client, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "runtime", Sessions("one"))
    token = perfetto.token_for("one", trace)
    for number in range(perfetto.MOST_TOKENS):
        perfetto.token_for("one", trace.with_name(str(number)))

    assert client.get(f"/perfetto/trace/{token}/rank-0.json").status_code == 404


def test_a_trace_that_is_gone_is_said_to_be(client: Client, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "runtime", Sessions("one"))
    token = perfetto.token_for("one", trace)
    trace.unlink()

    assert client.get(f"/perfetto/trace/{token}/rank-0.json").text == "the trace was removed"


def test_the_address_is_that_of_the_page_as_the_browser_knows_it() -> None:
    found = perfetto.address("https://proxy.example/trace?job=a", "token", Path("/x/rank 0.json"))

    assert found.startswith("/perfetto/ui/index.html#!/?mode=embedded")
    assert found.endswith("url=https%3A%2F%2Fproxy.example%2Fperfetto%2Ftrace%2Ftoken%2Frank%25200.json")


def test_without_the_extra_the_interface_is_not_there(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto.importlib.util, "find_spec", lambda name: None)

    assert perfetto.folder() is None
    assert client.get("/perfetto/ui/index.html").status_code == 404
