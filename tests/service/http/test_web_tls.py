"""The agent's pages over TLS: who is let in, what is agreed on, and how certificates are replaced."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path

import pytest

from certificates import Authority
from processes import ask_prometheus, prometheus
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.http.web_config import WebConfig, load
from web_clients import HASH, PAGE, answer, ask, closed, connect, fetch, serving, until

MUTUAL = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def configured(authority: Authority, more: str = "") -> WebConfig:
    authority.issue("server")
    file = authority.folder / "web.yml"
    file.write_text(f"tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n{more}")
    return load(file)


def refusal(server, context: ssl.SSLContext | None = None) -> bool:
    """Whether the server ends the connection without an answer, in the handshake or, with TLS 1.3, right after it."""
    try:
        fetch(server, context=context)
    except (OSError, EOFError):
        return True
    return False


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_pages_are_served_over_tls_1_3_and_1_2_and_not_below(authority):
    with serving(configured(authority)) as server:
        for version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            context = authority.client()
            context.minimum_version = context.maximum_version = version
            with connect(server, context) as sock:
                for _ in range(3):
                    sock.sendall(ask())
                    assert answer(sock)[2] == PAGE
        context = authority.client()
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        assert refusal(server, context)
        assert until(lambda: server.refused["malformed"] == 1)


def test_a_large_page_comes_whole_over_tls(authority):
    with serving(configured(authority), page=PAGE * 1000) as server:
        assert fetch(server, context=authority.client())[2] == PAGE * 1000


def test_tls_ends_with_a_goodbye(authority):
    with serving(configured(authority)) as server, connect(server, authority.client()) as sock:
        sock.sendall(ask("/metrics", "Connection: close"))
        assert answer(sock)[0] == 200
        assert sock.recv(10) == b""  # an end without close_notify would raise


def test_versions_and_suites_are_held_to_the_configuration(authority):
    more = (
        "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n  curve_preferences: [CurveP384]\n"
    )
    with serving(configured(authority, more)) as server:
        with connect(server, authority.client()) as sock:
            assert isinstance(sock, ssl.SSLSocket)
            assert sock.cipher()[:2] == ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2")
        other = authority.client()
        other.set_ecdh_curve("prime256v1")
        assert refusal(server, other)


def test_a_client_without_a_certificate_or_with_a_foreign_one_is_refused_under_mutual_tls(authority, tmp_path):
    foreign = Authority(tmp_path, "foreign")
    stranger = foreign.issue("stranger")
    with serving(configured(authority, MUTUAL)) as server:
        assert fetch(server, context=authority.client(authority.issue("scraper")))[2] == PAGE
        assert refusal(server, authority.client())
        assert refusal(server, authority.client(stranger))
        assert until(lambda: server.refused["unauthorised"] == 2)
        assert fetch(server, context=authority.client(authority.issue("scraper")))[2] == PAGE


def test_a_certificate_that_need_not_be_given_is_verified_when_it_is(authority, tmp_path):
    stranger = Authority(tmp_path, "foreign").issue("stranger")
    with serving(configured(authority, MUTUAL.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"))) as server:
        assert fetch(server, context=authority.client())[0] == 200
        assert fetch(server, context=authority.client(authority.issue("scraper")))[0] == 200
        assert refusal(server, authority.client(stranger))


@pytest.mark.parametrize("san", ["prometheus.example", "10.1.2.3", "2001:db8::1", "spiffe://cluster/prometheus"])
def test_only_allowed_names_of_client_certificates_are_let_in(authority, san):
    more = MUTUAL + "  client_allowed_sans: [prometheus.example, 10.1.2.3, '2001:DB8:0::1', 'spiffe://cluster/prometheus']\n"
    with serving(configured(authority, more)) as server:
        status, _, echo = fetch(server, path="/echo", context=authority.client(authority.issue("scraper", "other.example", san)))
        assert (status, f"client='certificate:{min('other.example', san)}'".encode() in echo) == (200, True)
        assert refusal(server, authority.client(authority.issue("other", f"x{san}" if "." in san and ":" not in san else "a.b")))
        assert until(lambda: server.refused["unauthorised"] == 1)


def test_plain_http_to_a_tls_port_is_told_so(authority):
    with serving(configured(authority)) as server, connect(server) as sock:
        sock.sendall(ask())
        status, _, _ = answer(sock)
        assert status == 400
        assert closed(sock)
        assert until(lambda: server.refused["malformed"] == 1)


def test_tls_to_a_plain_port_is_refused(authority):
    with serving() as server:
        assert refusal(server, authority.client())
        assert until(lambda: server.refused["malformed"] == 1)


def test_garbage_after_the_handshake_ends_that_connection_only(authority):
    with serving(configured(authority)) as server:
        with connect(server, authority.client()) as sock:
            raw = socket.socket(fileno=sock.detach())
            raw.settimeout(60)
            raw.sendall(b"garbage that is no record at all")
            assert closed(raw)
            raw.close()
        assert until(lambda: server.refused["malformed"] == 1)
        assert fetch(server, context=authority.client())[0] == 200


def test_a_handshake_that_stalls_is_cut_off(authority):
    with serving(configured(authority), handshake_seconds=2.0) as server:
        with connect(server) as silent, connect(server) as half:
            half.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
            assert closed(silent)
            assert closed(half)
        assert until(lambda: server.refused["too_slow"] == 2)


def test_a_stalled_head_within_tls_is_cut_off(authority):
    with serving(configured(authority), head_seconds=2.0) as server, connect(server, authority.client()) as sock:
        sock.sendall(b"GET /metr")
        assert answer(sock)[0] == 408
        assert closed(sock)


def test_a_reload_shows_new_connections_the_new_certificate(authority):
    config = configured(authority)
    with serving(config) as server:
        with connect(server, authority.client()) as sock:
            sock.sendall(ask())
            assert answer(sock)[0] == 200
            old = sock.getpeercert(binary_form=True)
            server.reload(configured(authority))  # issues again
            assert closed(sock)
        with connect(server, authority.client()) as sock:
            assert sock.getpeercert(binary_form=True) != old
            sock.sendall(ask())
            assert answer(sock)[0] == 200
        server.reload(None)
        assert fetch(server)[0] == 200


def test_a_reload_with_certificates_that_cannot_be_used_changes_nothing(authority):
    config = configured(authority)
    with serving(config) as server:
        config.cert_file.write_text("nonsense")
        with pytest.raises(TachoscopeError, match="holds no certificate"):
            server.reload(config)
        assert fetch(server, context=authority.client())[0] == 200


def test_a_server_does_not_start_with_certificates_that_cannot_be_used(authority):
    config = configured(authority)
    config.key_file.unlink()
    with pytest.raises(TachoscopeError, match="server.key cannot be read"), serving(config):
        pass


def scrapes(port: int) -> list[dict[str, str]]:
    try:
        return list(ask_prometheus(port, "targets")["activeTargets"])
    except OSError:
        return []


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
@pytest.mark.parametrize(("password", "health"), [("secret", "up"), ("wrong", "down")])
@pytest.mark.bar(but=("secret-up",))
def test_prometheus_itself_scrapes_over_mutual_tls_with_a_password(authority, tmp_path, password, health):
    authority.issue("prometheus")
    config = configured(authority, f"{MUTUAL}basic_auth_users:\n  alice: {HASH.decode()}\n")
    scrape = {
        "job_name": "agent",
        "scheme": "https",
        "scrape_interval": "3s",  # for a scrape that takes too long has a new connection after it
        "scrape_timeout": "3s",
        "tls_config": {
            "ca_file": f"{tmp_path}/ca.pem",
            "cert_file": f"{tmp_path}/prometheus.pem",
            "key_file": f"{tmp_path}/prometheus.key",
        },
        "basic_auth": {"username": "alice", "password": password},
    }
    with serving(config) as server:
        scrape["static_configs"] = [{"targets": [f"localhost:{server.port}"]}]
        with prometheus(tmp_path, scrape) as port:
            fault = "" if health == "up" else "401 Unauthorized"
            found = until(lambda: any(one["health"] == health and fault in one["lastError"] for one in scrapes(port)), 120)
            assert found, scrapes(port)
            if health == "up":
                connections = dict(server._connections)
                times: set[str] = set()
                assert until(lambda: times.update(one["lastScrape"] for one in scrapes(port)) or len(times) == 3)
                assert dict(server._connections) == connections  # scrapes reuse one connection
                assert sum(server.refused.values()) == 0
