"""Whatever a server does, there is a page or a reason, in time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import Authority
from gpu.fake_dcgm_exporter import FakeDcgmExporter, fake_dcgm_exporter
from tachoscope_core.net.http_client import HttpError
from tachoscope_service.common.http_get import get

PAGE = "DCGM_FI_DEV_GPU_UTIL{} 1\n" * 2000
SECONDS = 0.4
"""For a whole answer that never comes."""
PATIENCE = 60.0
"""For one that does."""
WHY = {
    "hang": "no whole answer within 0.4 s",
    "drip": "no whole answer within 0.4 s",
    "drip_head": "no whole answer within 0.4 s",
    "endless": "more than 100000 bytes",
    "longer_than_said": "the connection was closed after 50000 bytes",
    "break_off": "IncompleteRead",
    "redirect": r"redirects to .* \(302\), which is not followed",
    "error": "answers 500 Internal Server Error",
    "gzip": "'gzip', which was not requested",
    "no_http": "BadStatusLine",
}


@pytest.fixture
def server() -> Iterator[FakeDcgmExporter]:
    with fake_dcgm_exporter(PAGE) as fake:
        yield fake


def ask(url: str, seconds: float = PATIENCE) -> bytes:
    return get(url, seconds=seconds, most_bytes=100_000)


def test_a_page_in_chunks_comes_whole(server: FakeDcgmExporter) -> None:
    assert get(server.url + "?a=b", seconds=PATIENCE, most_bytes=100_000) == PAGE.encode()
    assert server.paths == ["/metrics?a=b"]


def test_every_fault_that_the_server_can_have_is_tried(server: FakeDcgmExporter) -> None:
    assert set(server.FAULTS) == {*WHY, "html"}  # which is a page like any other to those who only fetch it


@pytest.mark.parametrize("fault", WHY)
def test_a_server_that_misbehaves_gives_a_reason_in_time(server: FakeDcgmExporter, fault: str) -> None:
    server.fault = fault

    with pytest.raises(HttpError, match=WHY[fault]):  # else: a minute for a hang, more for a drip, for ever without an end
        ask(server.url, SECONDS if "within" in WHY[fault] else PATIENCE)


def test_a_redirect_is_not_followed(server: FakeDcgmExporter) -> None:
    server.fault = "redirect"

    with pytest.raises(HttpError):
        ask(server.url)

    assert server.paths == ["/metrics"]


def test_a_page_whose_last_line_is_not_whole_is_refused(server: FakeDcgmExporter) -> None:
    server.page = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{} 12"  # of 1234567: who knows

    with pytest.raises(HttpError, match="the connection was closed"):
        ask(server.url)


def test_an_empty_page_is_a_page(server: FakeDcgmExporter) -> None:
    server.page = ""

    assert ask(server.url) == b""


def test_a_proxy_of_the_environment_is_not_used(server: FakeDcgmExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    assert get(server.url, seconds=PATIENCE, most_bytes=100_000) == PAGE.encode()


def test_where_nobody_listens_the_reason_says_so() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        with pytest.raises(HttpError, match="Connection refused"):
            ask(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http:///metrics", "http://127.0.0.1:1/\u00fc"])
def test_a_url_that_cannot_be_asked_is_a_reason_too(url: str) -> None:
    with pytest.raises(HttpError):
        ask(url)


def test_tls_is_spoken_with_those_whom_the_system_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    with fake_dcgm_exporter(PAGE, tls=authority.issue("server")) as server:
        with pytest.raises(HttpError, match="CERTIFICATE_VERIFY_FAILED"):
            get(server.url, seconds=PATIENCE, most_bytes=100_000)

        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
        assert get(server.url, seconds=PATIENCE, most_bytes=100_000) == PAGE.encode()
