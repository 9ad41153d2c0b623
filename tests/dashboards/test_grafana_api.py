"""Where a token goes, and where it does not: of the fake Grafana, and of addresses that are never asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fake_grafana import TOKEN, FakeGrafana, running
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import redact
from tachoscope_dashboards import grafana_api
from tachoscope_dashboards.grafana_api import Grafana


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with running() as fake:
        yield fake


def refused(url: str, token: str = TOKEN) -> str:
    with pytest.raises(TachoscopeError) as caught:
        Grafana(url, token).request("/api/folders?limit=1&page=1")
    assert TOKEN not in str(caught.value)
    return str(caught.value)


def test_the_token_is_a_bearers(grafana: FakeGrafana) -> None:
    assert Grafana(grafana.url, TOKEN).request("/api/folders?limit=1&page=1").status == 200
    assert grafana.tokens == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://grafana.example.com", "plain http to another machine"),
        ("http://10.0.0.1:3000", "--insecure"),
        ("http://127.0.0.1.example.com", "plain http"),
        ("https://admin:secret@grafana.example.com", "contains a user or a password"),
        ("ftp://grafana.example.com", "not an http:// or https:// address"),
        ("grafana.example.com", "not an http:// or https:// address"),
        ("https://grafana.example.com/?orgId=1", "not an http:// or https:// address"),
        ("https://grafana.example.com:port", "is not an address"),
    ],
)
def test_an_address_to_which_no_token_should_go_is_refused_before_anything_is_sent(url: str, said: str) -> None:
    message = refused(url)

    assert said in message
    assert "admin:secret" not in message


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:3000", "http://[::1]:3000/grafana/", "http://localhost", "https://g.example.com"]
)
def test_this_machine_may_be_asked_over_plain_http_and_others_over_tls(url: str) -> None:
    assert Grafana(url, TOKEN).url == url.rstrip("/")


def test_plain_http_to_another_machine_is_the_users_word() -> None:
    assert Grafana("http://grafana.example.com", TOKEN, insecure=True).url == "http://grafana.example.com"


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "größe", "a\r\nX-Header: b"])
def test_what_is_no_token_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(TachoscopeError, match="has invalid characters") as caught:
        Grafana("https://grafana.example.com", token)
    assert not token or token not in str(caught.value)


def test_no_redirect_is_followed_with_the_token(grafana: FakeGrafana) -> None:
    with running() as other:
        grafana.redirect = f"{other.url}/api/folders?token={TOKEN}"
        message = refused(grafana.url)

        assert "where the token is not sent" in message
        assert other.asked == []


def test_no_proxy_stands_between_here_and_here(grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        Grafana(grafana.url, TOKEN).request("/api/folders?limit=1&page=1")

        assert proxy.asked == []


def test_a_token_that_grafana_does_not_know_is_said_and_not_repeated(grafana: FakeGrafana) -> None:
    with pytest.raises(TachoscopeError, match="rejects the token") as caught:
        Grafana(grafana.url, "glsa_another").request("/api/folders?limit=1&page=1")

    assert "glsa_another" not in str(caught.value)
    assert "API key" in str(caught.value)
    assert redact(str(caught.value)) == str(caught.value)  # as a message is shown


def test_what_the_token_may_not_do_is_said(grafana: FakeGrafana) -> None:
    grafana.forbidden = True
    message = refused(grafana.url)

    assert "Permissions needed: folders:read" in message
    assert "Editor" in message


@pytest.mark.parametrize("raw", [b"<html>Login</html>", b"\xff\xfe", b""])
def test_what_is_no_grafana_is_said(grafana: FakeGrafana, raw: bytes) -> None:
    grafana.raw = raw or b" "

    assert "is not a Grafana server" in refused(grafana.url)


def test_too_large_an_answer_is_none(grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grafana_api, "MOST_BYTES", 100)
    grafana.raw = b'"' + b"x" * 1000 + b'"'

    assert "it sends more than 100 bytes" in refused(grafana.url)


def test_where_nobody_answers_is_said() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"

        assert "could not reach Grafana at" in refused(url)
