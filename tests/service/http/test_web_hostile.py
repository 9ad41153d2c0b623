"""The agent's pages to clients that mean harm, or are broken: others are served meanwhile, and each refusal is counted."""

from __future__ import annotations

import os
import random
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from certificates import Authority
from tachoscope_service.http.server import WebServer
from tachoscope_service.http.web_config import WebConfig, load
from web_clients import HASH, PAGE, USERS, answer, ask, basic, closed, connect, fetch, serving, until

pytestmark = [pytest.mark.alone, pytest.mark.waits]

NODE_TESTS = Path(__file__).parents[2] / "node"
RIGHT = basic("alice", "secret")


def quickly(server: WebServer, *headers: str, **how) -> None:
    """Assert that a scraper is served within ten seconds, also on a slow machine: all that could hold it up takes longer."""
    start = time.monotonic()
    assert fetch(server, *headers, **how)[2] == PAGE
    assert time.monotonic() - start < 10.0


def rss_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Authority, WebConfig]:
    authority = Authority(tmp_path)
    authority.issue("server")
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: server.pem, key_file: server.key}")
    return authority, load(tmp_path / "web.yml")


def test_a_thousand_idle_connections_lock_nobody_out_and_cost_little():
    with serving(USERS) as server, connect(server) as scraper:
        scraper.sendall(ask("/metrics", RIGHT))
        assert answer(scraper)[0] == 200
        before = rss_mib()
        idle = [connect(server) for _ in range(1000)]
        assert until(lambda: server.refused["too_many"] >= 745)
        for _ in range(5):
            quickly(server, RIGHT)
        scraper.sendall(ask("/metrics", RIGHT))  # who was answered before the flood keeps its connection
        assert answer(scraper)[2] == PAGE
        assert rss_mib() - before < 32
        for sock in idle:
            sock.close()


def test_a_thousand_idle_connections_to_a_tls_port_lock_nobody_out_and_cost_little(tls):
    authority, config = tls
    with serving(config) as server:
        quickly(server, context=authority.client())
        before = rss_mib()
        idle = [connect(server) for _ in range(1000)]
        assert until(lambda: server.refused["too_many"] >= 744)
        quickly(server, context=authority.client())
        assert rss_mib() - before < 48
        for sock in idle:
            sock.close()


def test_answered_clients_that_idle_do_not_lock_others_out_either():
    with serving(connections=8) as server:
        idle = [connect(server) for _ in range(8)]
        for sock in idle:
            sock.sendall(ask())
            assert answer(sock)[0] == 200
        idle[0].sendall(ask())
        assert answer(idle[0])[0] == 200
        quickly(server)
        assert closed(idle[1])  # idle for longest: the first asked again
        idle[0].sendall(ask())
        assert answer(idle[0])[0] == 200
        assert until(lambda: server.refused["too_many"] == 1)
        for sock in idle:
            sock.close()


def test_clients_that_send_a_byte_a_second_are_cut_off_and_others_served():
    with serving(head_seconds=4) as server:
        slow = [connect(server) for _ in range(20)]
        end = time.monotonic() + 1.1
        position = 0
        while time.monotonic() < end:
            for sock in slow:
                sock.sendall(ask()[position : position + 1])
            position += 1
            quickly(server)
            time.sleep(0.5)
        for sock in slow:
            assert answer(sock)[0] == 408
            assert closed(sock)
            sock.close()
        assert until(lambda: server.refused["too_slow"] == 20)


def test_a_client_that_says_nothing_is_cut_off_without_a_word():
    with serving(head_seconds=0.3) as server, connect(server) as sock:
        assert sock.recv(100) == b""
        assert until(lambda: server.refused["too_slow"] == 1)


def test_a_client_that_announces_a_body_and_does_not_send_it_is_cut_off():
    with serving(head_seconds=0.3) as server, connect(server) as sock:
        sock.sendall(ask("/a/one/take", "Content-Length: 100", method="POST") + b"x")
        assert until(lambda: server.refused["too_slow"] == 1)
        assert closed(sock)


def test_a_second_request_has_its_own_patience_from_its_first_byte():
    with serving(head_seconds=1.0, idle_seconds=600) as server, connect(server) as sock:
        sock.sendall(ask())
        assert answer(sock)[0] == 200
        time.sleep(1.5)  # between requests: no hurry
        sock.sendall(ask())
        assert answer(sock)[0] == 200
        sock.sendall(ask() + b"GET /half")
        assert answer(sock)[0] == 200
        assert answer(sock)[0] == 408
        assert closed(sock)


def test_a_kept_connection_that_idles_too_long_is_closed_and_counts_as_no_refusal():
    with serving(idle_seconds=0.3) as server, connect(server) as sock:
        sock.sendall(ask())
        assert answer(sock)[0] == 200
        assert sock.recv(100) == b""
        assert sum(server.refused.values()) == 0


def test_a_client_that_does_not_take_its_page_is_cut_off():
    with serving(page=PAGE * 20_000, write_seconds=0.5) as server, connect(server) as sock:
        sock.sendall(ask() * 20)
        assert until(lambda: server.refused["too_slow"] == 1)
        quickly_small = fetch(server, path="/echo")
        assert quickly_small[0] == 200
        assert closed(sock)


@pytest.mark.parametrize("context", [False, True])
def test_many_that_do_not_take_their_page_cost_no_copies_of_it(tls, context):
    authority, config = tls
    page = os.urandom(1024) * 8192
    with serving(config if context else None, page=page) as server:
        client = authority.client() if context else None
        assert fetch(server, context=client)[2] == page
        before = rss_mib()
        socks = []
        for _ in range(60):
            sock = connect(server, client)
            sock.sendall(ask())
            socks.append(sock)
        time.sleep(0.5)
        assert rss_mib() - before < 60  # 480 if each had its own
        for sock in socks:
            sock.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 17_500 + b"\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: yyyyyyyyyyyyyyyyyyy\r\n" % n for n in range(3000)), 431),
        (b"GET /" + b"y" * 100_000, 431),
        (b"y" * 1_000_000, 431),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (b"GET  /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"y" * 1000, 413),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\ny", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_or_too_long_or_has_a_body_is_answered_and_closed(sent, status):
    with serving() as server, connect(server) as sock:
        try:
            sock.sendall(sent)
        except OSError:
            pass  # it was cut off before it had said all
        got, headers, _ = answer(sock)
        assert (got, headers["connection"]) == (status, "close")
        assert closed(sock)
        assert until(lambda: server.refused["malformed"] == 1)
        quickly(server)


def test_random_bytes_never_end_the_server(tls):
    authority, config = tls
    chance = random.Random(4)
    heads = [ask(), ask("/echo"), ask("/metrics", RIGHT), b"\x16\x03\x01\x02\x00\x01", b"\x80\x2e\x01\x00\x02"]
    for server_config, context in ((None, None), (config, authority.client())):
        with serving(server_config, head_seconds=60) as server:
            for _ in range(150):
                with connect(server) as sock:
                    sent = bytearray(chance.choice(heads) + chance.randbytes(chance.randrange(200)))
                    for _ in range(chance.randrange(4)):
                        sent[chance.randrange(len(sent))] = chance.randrange(256)
                    sock.sendall(sent)
                    if chance.random() < 0.5:  # vanish with a reset
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            quickly(server, context=context)
            assert not server.lines


def test_a_flood_of_wrong_passwords_delays_no_scraper_that_is_known():
    import bcrypt

    config = WebConfig(users={"alice": bcrypt.hashpw(b"secret", bcrypt.gensalt(11))})  # 17 guesses: 2 s
    with serving(config) as server:
        assert fetch(server, RIGHT)[0] == 200
        socks = [connect(server) for _ in range(100)]
        for number, sock in enumerate(socks):
            sock.sendall(ask("/metrics", basic("alice", f"guess {number}")))
        for _ in range(5):
            quickly(server, RIGHT)
        statuses = {}
        for sock in socks[17:]:
            status, headers, _ = answer(sock)
            statuses[status] = statuses.get(status, 0) + 1
            assert status == 401 or headers["retry-after"] == "1"
            sock.close()
        assert statuses.get(429, 0) >= 60
        assert until(lambda: server.refused["too_many"] >= statuses[429])
        for sock in socks:
            sock.close()


def test_a_connection_that_guesses_on_and_on_is_never_more_worthy_than_a_scraper():
    with serving(WebConfig(users={"alice": HASH}), connections=4) as server:
        guessers = [connect(server) for _ in range(3)]
        with connect(server) as scraper:
            scraper.sendall(ask("/metrics", RIGHT))
            assert answer(scraper)[0] == 200
            for number, sock in enumerate(guessers):
                sock.sendall(ask("/metrics", basic("alice", f"{number}")))
                assert answer(sock)[0] == 401
            more = [connect(server) for _ in range(20)]
            assert until(lambda: server.refused["too_many"] == 20)
            scraper.sendall(ask("/metrics", RIGHT))
            assert answer(scraper)[0] == 200
        for sock in [*guessers, *more]:
            sock.close()


NO_FILES = """
import resource, socket, sys, threading, time
from web_clients import PAGE, connect, fetch, serving
with serving() as server:
    fetch(server)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    waiting = [socket.socket() for _ in range(10)]
    try:
        while True:
            held.append(open("/dev/null"))
    except OSError:
        pass
    for sock in waiting:
        sock.connect(("127.0.0.1", server.port))
    before = time.process_time()
    time.sleep(1.5)
    used = time.process_time() - before
    for file in held:
        file.close()
    assert fetch(server)[2] == PAGE
    assert len(server.lines) == 1 and "no connection can be accepted: Too many open files" in server.lines[0], server.lines
    print("used", used)
"""


def test_without_file_descriptors_the_server_waits_without_burning_the_cpu():
    done = subprocess.run([sys.executable, "-c", NO_FILES], cwd=NODE_TESTS, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[1]) < 0.5


def test_the_server_leaves_half_of_few_file_descriptors_to_others(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    assert WebServer({}, address="", port=0, web_config=None, log=print).limits.connections == 50


def test_stopping_does_not_wait_for_hostile_clients():
    with serving(page=PAGE * 20_000, head_seconds=600, write_seconds=600) as server:
        socks = [connect(server) for _ in range(30)]
        for number, sock in enumerate(socks):
            sock.sendall(ask()[: 5 + number * 3])
        thread = threading.Thread(target=server.stop)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        for sock in socks:
            sock.close()
