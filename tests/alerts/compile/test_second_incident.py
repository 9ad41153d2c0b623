"""Two services that fail two minutes apart, in real time: Prometheus, the generated rules and Alertmanager as they are shipped."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helpers import REPOSITORY
from processes import wait_for
from tachoscope_alerts.compile import alertmanager
from tachoscope_alerts.compile.detection_time import detection
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_cli.drill import prometheus_alertmanager as drill_servers
from tachoscope_cli.drill.webhook_receiver import Arrival
from tachoscope_cli.drill.webhook_receiver import Receiver as Webhook

TIMING = Timing()
SLO = next(slo for slo in slo_files.load([REPOSITORY / "alerts" / "slos"]) if slo.name == "inference-availability")
RULES = REPOSITORY / "alerts" / "generated" / "prometheus" / "inference-availability.rules.yaml"
REQUESTS_A_SECOND = 10
APART_SECONDS = 120.0
SLACK_SECONDS = 15.0
"""A notification's way, and how far off the moments of scrape and evaluation may be beside those that are counted in."""


@dataclass
class Service:
    """Serves the counters of a service: while it fails, every request of it does."""

    name: str
    began: float = field(default_factory=time.time)
    failed: float = math.inf
    healed: float = math.inf

    def page(self) -> str:
        now = time.time()
        bad = max(min(self.healed, now) - self.failed, 0.0)
        counts = {"server_error": bad, "ok": now - self.began - bad}
        return "# TYPE tachoscope_requests_total counter\n" + "".join(
            f'tachoscope_requests_total{{service="{self.name}",model="m",cluster="a",outcome="{outcome}"}}'
            f" {round(seconds * REQUESTS_A_SECOND)}\n"
            for outcome, seconds in counts.items()
        )

    @contextmanager
    def served(self) -> Iterator[str]:
        """Yield where it can be scraped."""
        page = self.page

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = page().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield f"127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()


@contextmanager
def running(folder: Path, services: list[Service]) -> Iterator[tuple[Webhook, str]]:
    """Run all of it; yield who is told, and the URL of the Prometheus."""
    with ExitStack() as stack:
        targets = {one.name: stack.enter_context(one.served()) for one in services}
        told = stack.enter_context(Webhook())
        made = alertmanager.configuration(policy.load(REPOSITORY / "alerts" / "policy.yaml"), [SLO], webhook=told.url)
        manager = stack.enter_context(drill_servers.alertmanager(folder, made))
        url = stack.enter_context(
            drill_servers.prometheus(folder, rules=[RULES], targets=targets, alertmanager_url=manager, timing=TIMING)
        )
        yield told, url


def of(told: Webhook, service: Service, status: str) -> list[Arrival]:
    """Return the pages about a service; its tickets, which a page keeps quiet, are left out."""
    return [
        one
        for one in told.arrivals()
        if one.labels["service"] == service.name and one.status == status and one.labels["severity"] == "page"
    ]


@pytest.mark.bar
@pytest.mark.timeout(3600)
@pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None,
    reason="Prometheus or Alertmanager is not installed",
)
def test_two_services_that_fail_two_minutes_apart_are_two_incidents_each_told_in_time_and_each_ended(tmp_path: Path) -> None:
    """There is no history, in which bad events would be fewer of all: a page may come before its computed time, never after."""
    chat, code = services = [Service("chat"), Service("code")]
    expected = detection(SLO, "page", 1.0, TIMING)
    wait, change, _ = alertmanager.waits("page", TIMING)
    told_within = expected.fires + expected.interval + wait + SLACK_SECONDS
    ended_within = expected.clears + expected.interval + change + SLACK_SECONDS

    with running(tmp_path, services) as (told, url):
        wait_for(lambda: len(drill_servers.samples(url, 'slo:error:ratio{window="5m"} == 0')) == 2, 300)
        chat.failed = time.time()
        wait_for(lambda: time.time() >= chat.failed + APART_SECONDS, 2 * APART_SECONDS)
        code.failed = time.time()
        for service in services:
            wait_for(lambda service=service: of(told, service, "firing"), 2 * told_within)
        chat.healed = time.time()
        wait_for(lambda: time.time() >= chat.healed + APART_SECONDS, 2 * APART_SECONDS)
        assert not of(told, code, "resolved")
        code.healed = time.time()
        for service in services:
            wait_for(lambda service=service: of(told, service, "resolved"), 2 * ended_within)

    firsts = {service.name: of(told, service, "firing")[0] for service in services}
    ends = {service.name: of(told, service, "resolved")[0] for service in services}
    after = {one.name: firsts[one.name].time - one.failed for one in services}
    left = {one.name: ends[one.name].time - one.healed for one in services}
    print(f"told after {after}, computed {told_within}; ended after {left}, computed {ended_within}")
    assert firsts["chat"].group != firsts["code"].group
    assert max(after.values()) <= told_within
    assert max(left.values()) <= ended_within
    assert {one.name: ends[one.name].group for one in services} == {one.name: firsts[one.name].group for one in services}
    assert {one.labels["cluster"] for one in firsts.values()} == {"a"}
