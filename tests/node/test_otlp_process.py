"""The OTLP push as a process: a real collector, receivers that hang, stops, threads and memory."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests
from test_otlp import FAMILIES, Push, assert_as_in_the_families

from fake_otlp_receiver import Behaviour, FakeReceiver, answers, drips, metrics_of, points_of, waits
from left_behind import LeftBehind
from processes import free_port, wait_for
from tachoscope_core.metrics.training import STEPS
from tachoscope_service.metrics.family import Family


def listens(port: int) -> bool:
    with closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def rotel(tmp_path: Path, forward_to: str) -> Iterator[str]:
    """A real collector that hands on what it received; gives its URL."""
    spec = find_spec("rotel")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("rotel is not installed")
    agent = str(Path(spec.submodule_search_locations[0]) / "rotel-agent")
    if subprocess.run([agent, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("rotel does not run here: it needs Python as a shared library")
    port = free_port()
    command = [agent, "start", "--exporter", "otlp"]
    command += ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
    command += ["--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", forward_to, "--batch-timeout", "100ms"]
    command += ["--pid-file", str(tmp_path / "rotel.pid"), "--log-file", str(tmp_path / "rotel.log")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ROTEL_", "OTEL_"))}
    with (tmp_path / "rotel.out").open("wb") as out, subprocess.Popen(command, env=env, stdout=out, stderr=out) as process:
        try:
            wait_for(lambda: listens(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_a_real_collector_understands_every_point_and_hands_it_on(tmp_path: Path, compression: str) -> None:
    with FakeReceiver() as behind, rotel(tmp_path, behind.url) as url, Push(url, compression=compression) as it:
        assert it.push.push() == "ok", it.lines
        behind.wait_for(1)
    assert_as_in_the_families(behind.requests[0][2])


def test_a_real_collector_that_comes_late_gets_the_newest_values(tmp_path: Path) -> None:
    steps = iter(range(100))
    with FakeReceiver() as behind:
        it = Push("http://127.0.0.1:9", lambda: [Family(STEPS, [(("llama", "0"), next(steps))])], timeout_seconds=0.2)
        assert [it.push.push() for _ in range(3)] == ["failed"] * 3
        it.push.stop(0)
        with rotel(tmp_path, behind.url) as url:
            late = Push(url, lambda: [Family(STEPS, [(("llama", "0"), next(steps))])], interval_seconds=2.0, timeout_seconds=1.9)
            late.push.start()
            behind.wait_for(2)
            late.push.stop(60)
    arrived = [one for _, _, request in behind.requests for one in request.resource_metrics]  # it may hand two on in one request
    metrics = [metric for one in arrived for scope in one.scope_metrics for metric in scope.metrics]
    values = [point.as_double for metric in metrics for point in points_of(metric)]
    assert values == sorted(set(values)) and values[0] >= 3


def test_a_stop_pushes_a_last_time() -> None:
    with FakeReceiver() as receiver:
        it = Push(receiver.url, interval_seconds=360_000)
        it.push.start()
        it.push.stop(60)
    assert it.push.exports == {"ok": 1, "partial": 0, "failed": 0}
    assert len(receiver.requests) == 1


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first push comes at the beginning of its interval."""
    monkeypatch.setattr("random.uniform", lambda low, high: low)


@pytest.mark.parametrize("behaviour", [waits(30), drips, answers(503), answers(503, Retry_After="60")])
def test_a_stop_in_the_middle_of_a_push_returns_within_its_deadline(behaviour: Behaviour, at_once: None) -> None:
    left = LeftBehind()
    with FakeReceiver(behaviour) as receiver:
        it = Push(receiver.url, interval_seconds=60, timeout_seconds=50)
        it.push.start()
        receiver.wait_for(1)
        began = time.monotonic()
        it.push.stop(0.7)
        assert time.monotonic() - began < 20.0  # not the 30 s of the receiver, nor the 50 s of a push
    left.assert_nothing()


def test_a_stop_during_the_wait_for_a_retry_still_pushes_a_last_time(at_once: None) -> None:
    steps = iter([1, 2, 3])
    with FakeReceiver(answers(503, Retry_After="400"), answers(200)) as receiver:
        it = Push(receiver.url, lambda: [Family(STEPS, [(("llama", "0"), next(steps))])], interval_seconds=600, timeout_seconds=500)
        it.push.start()
        receiver.wait_for(1)
        time.sleep(0.2)
        it.push.stop(60)
    values = [metrics_of(request)[STEPS.name].sum.data_points[0].as_double for _, _, request in receiver.requests]
    assert values == [1, 2]
    assert it.push.exports == {"ok": 1, "partial": 0, "failed": 1}
    assert len(it.lines) == 1 and "metrics go to" in it.lines[0]


def test_what_the_environment_says_to_other_programs_does_not_change_the_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with FakeReceiver() as receiver, Push(receiver.url, headers={"Authorization": "Bearer mine"}) as it:
        assert it.push.push() == "ok"
    assert receiver.requests[0][1]["authorization"] == "Bearer mine"


def test_headers_of_the_environment_are_sent_and_those_of_the_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-scope-orgid=ml,authorization=Bearer%20theirs")
    with FakeReceiver() as receiver, Push(receiver.url, headers={"Authorization": "Bearer mine"}) as it:
        assert it.push.push() == "ok"
    assert receiver.requests[0][1]["x-scope-orgid"] == "ml"
    assert receiver.requests[0][1]["authorization"] == "Bearer mine"


def test_tls_uses_the_authority_and_the_certificate_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", requests.certs.where())
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *subject]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=cert)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeReceiver(tls=context) as receiver:
        with Push(receiver.url, ca_file=cert, cert_file=cert, key_file=key) as it:
            assert it.push.push() == "ok", it.lines
        with Push(receiver.url, timeout_seconds=4.0, cert_file=cert, key_file=key) as stranger:
            assert stranger.push.push() == "failed"
        assert "self-signed certificate" in stranger.lines[0]
        with Push(receiver.url, timeout_seconds=4.0, ca_file=cert) as nobody:
            assert nobody.push.push() == "failed"
    ours = {"ca_file": cert, "cert_file": cert, "key_file": key}
    with FakeReceiver(drips, tls=context) as receiver, Push(receiver.url, timeout_seconds=1.0, **ours) as it:
        began = time.monotonic()
        assert it.push.push() == "failed"
        assert time.monotonic() - began < 20.0  # it would drip for ever
    assert "no whole answer within" in it.lines[0]


def test_families_or_a_log_that_raise_cost_one_push_and_not_the_thread(at_once: None) -> None:
    def families() -> list[Family]:
        if len(calls) < 2:
            calls.append(1)
            raise RuntimeError("a collector broke")
        return FAMILIES

    calls: list[int] = []
    with FakeReceiver() as receiver:
        it = Push(receiver.url, families, interval_seconds=2.0, timeout_seconds=1.9)
        it.push._log = lambda line: calls[99]
        it.push.start()
        receiver.wait_for(1)
        it.push.stop(60)
    assert it.push.exports["failed"] == 2 and it.push.exports["ok"] >= 1


def test_nodes_that_start_together_do_not_push_together() -> None:
    with FakeReceiver() as receiver:
        nodes = [Push(receiver.url, interval_seconds=30, timeout_seconds=20) for _ in range(20)]
        for node in nodes:
            node.push.start()
        receiver.wait_for(1)
        time.sleep(1.0)  # those that push with the first one do it now
        early = len(receiver.requests)
        for node in nodes:
            node.push.stop(0)
    assert 0 < early < 20


def run_python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_200_pushes_to_a_dead_receiver_grow_neither_threads_nor_memory_and_print_nothing() -> None:
    code = """
import sys, threading
sys.path[:0] = sys.argv[2:]
from test_otlp import FAMILIES
from tachoscope_service.metrics.otlp.push import OtlpPush, OtlpSettings
lines = []
settings = OtlpSettings(f"http://127.0.0.1:{sys.argv[1]}", interval_seconds=1, timeout_seconds=0.5)
push = OtlpPush(settings, families=lambda: FAMILIES, resource={}, start_time_seconds=1, log=lines.append)
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for _ in range(50):
    push.push()
before = rss()
for _ in range(200):
    push.push()
for thread in threading.enumerate():  # guards that were called off, and have not been scheduled since
    if thread is not threading.main_thread():
        thread.join(60)
assert threading.active_count() == 1, threading.enumerate()
assert push.exports["failed"] == 250, push.exports
assert rss() - before < 4 << 20, rss() - before  # 20 KiB a push
print(*lines)
"""
    line = run_python(code, str(free_port()), *sys.path)
    assert "Connection refused" in line and len(line.splitlines()) == 1


def test_nothing_of_opentelemetry_is_imported_before_a_push_is_made() -> None:
    code = """
import sys
import tachoscope_service.metrics.otlp.push as otlp
otlp.faults(otlp.OtlpSettings("http://c"))
print([name for name in sys.modules if name.startswith(("opentelemetry", "requests", "google.protobuf"))])
"""
    assert run_python(code) == "[]"


def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.metrics.otlp.push import OtlpPush, OtlpSettings, resource_attributes
for make in (
    lambda: OtlpPush(OtlpSettings("http://c"), families=list, resource={}, start_time_seconds=0, log=print),
    lambda: resource_attributes({}, "n1"),
):
    try:
        make()
    except TachoscopeError as error:
        print(error)
"""
    lines = run_python(code).splitlines()
    assert len(lines) == 2 and all("pip install 'tachoscope[otlp]'" in line for line in lines)
