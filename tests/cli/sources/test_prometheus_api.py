"""What a real Prometheus scraped of servers comes back as the looks that were taken of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import serving_pages as pages
from gpu.fake_dcgm_exporter import FakeDcgmExporter, fake_dcgm_exporter
from processes import ask_prometheus, prometheus, wait_for
from tachoscope_analyzers.serving.records.traffic import traffic
from tachoscope_cli.sources import prometheus as prometheus_api
from tachoscope_cli.sources.prometheus import read
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.servers import metrics_page
from tachoscope_core.servers.snapshot import Snapshot

needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


def _target(server: FakeDcgmExporter) -> str:
    return server.url.removeprefix("http://").removesuffix("/metrics")


def scraped(port: int, query: str) -> float:
    ((_, text),) = [row["value"] for row in ask_prometheus(port, "query", query=query)["result"]]
    return float(text)


def ok(look: Snapshot) -> float:
    return sum(engine.outcomes["ok"] for engine in look.engines)


@needs_prometheus
def test_scrapes_of_one_server_come_back_whole_with_their_times_and_failures(tmp_path: Path) -> None:
    page = pages.vllm_page()
    with fake_dcgm_exporter(page) as server:
        job = {"job_name": "vllm", "static_configs": [{"targets": [_target(server)]}]}
        with prometheus(tmp_path, job) as port:
            url, asked = f"http://127.0.0.1:{port}", 'vllm:request_success_total{finished_reason="length"}'
            for times in (1, 2, 5):
                server.page = pages.grown(page, times)
                wait_for(lambda times=times: scraped(port, asked) == 3.0 * times)
            server.fault = "error"
            wait_for(lambda: scraped(port, "up") == 0.0)
            server.fault = ""
            wait_for(lambda: scraped(port, "up") == 1.0)
            looks = read(url, '{job="vllm"}', 600)
            assert read(f"{url}/", 'job="vllm",', 600)[: len(looks)] == looks
            for selector, why in (
                ('job="none"', r"has no series \{job=\"none\"\} in the last 60s \(it scrapes the jobs vllm\)"),
                ('job="vllm",__name__="up"', "do not come from a supported inference server: up"),
                ("job=", "refuses count by .*: .*parse error"),
            ):
                with pytest.raises(TachoscopeError, match=why):
                    read(url, selector, 60)

    answered = [look for look in looks if not look.fault]
    assert {look.fault for look in looks} == {"", prometheus_api.NOT_SCRAPED}
    assert {look.server for look in answered} == {"vllm"}
    for look in answered:
        same = metrics_page.read(pages.grown(page, round(ok(look) / 3)), look.time)
        assert (look.engines, look.started) == (same.engines, same.started)
    assert {ok(look) for look in answered} == {3.0, 6.0, 15.0}
    assert all(before.time < after.time for before, after in pairwise(looks))
    assert traffic(looks).outcomes["ok"] == 12.0


@needs_prometheus
def test_several_servers_are_one_service_and_a_restart_of_one_counts_nothing_twice(tmp_path: Path) -> None:
    page = pages.vllm_page()
    with fake_dcgm_exporter(pages.grown(page, 10)) as one, fake_dcgm_exporter(pages.grown(page, 20)) as other:
        job = {"job_name": "vllm", "static_configs": [{"targets": [_target(one), _target(other)]}]}
        with prometheus(tmp_path, job) as port:
            total = 'sum(vllm:request_success_total{finished_reason="length"})'
            wait_for(lambda: scraped(port, total) == 90.0)
            wait_for(lambda: scraped(port, 'min(count_over_time(up{job="vllm"}[10m]))') >= 3)  # both were looked at together
            one.page = pages.grown(page, 15)  # 15 requests more
            wait_for(lambda: scraped(port, total) == 105.0)
            other.page = pages.grown(page, 2)  # restarted, and 6 since
            wait_for(lambda: scraped(port, total) == 51.0)
            scrapes = 'min(count_over_time(up{job="vllm"}[10m]))'
            least = scraped(port, scrapes) + 2.0
            wait_for(lambda: scraped(port, scrapes) >= least)  # a look is at the last scrapes of both
            looks = read(f"http://127.0.0.1:{port}", 'job="vllm"', 600)

    assert {engine.engine for look in looks for engine in look.engines} == {f"{_target(one)} 0", f"{_target(other)} 0"}
    assert all(len(look.engines) == 2 for look in looks)
    happened = traffic(looks)
    assert (happened.outcomes["ok"], happened.count("first_token_seconds"), happened.engines) == (21.0, 21.0, 2)
    assert happened.total("generation_tokens_total") == 32 * 21


# --- a fake Prometheus: answers of its form, for what cannot be had of a real one in time ----------------------------------------


@pytest.fixture
def fake() -> Iterator[FakeDcgmExporter]:
    with fake_dcgm_exporter() as server:
        yield server


def answers(fake: FakeDcgmExporter, series: list[dict[str, Any]]) -> str:
    """Let it answer every query with the names, then the samples; return its address."""
    names = [{"metric": {"__name__": one["metric"]["__name__"]}, "value": [0, "1"]} for one in series]

    def answer(handler: Any) -> None:
        query = fake.bodies[-1]
        body = json.dumps({"status": "success", "data": {"result": names if query.startswith("query=count") else series}}).encode()
        fake._whole(handler, 200, body, "application/json")

    fake.answer = answer  # type: ignore[method-assign]
    return fake.url.removesuffix("/metrics")


def one(name: str, instance: str, values: list[tuple[float, float]], **labels: str) -> dict[str, Any]:
    return {"metric": {"__name__": name, "instance": instance, **labels}, "values": [[at, str(value)] for at, value in values]}


def test_a_server_that_comes_later_counts_from_its_start_and_one_that_leaves_is_kept_without_gauges(fake: FakeDcgmExporter) -> None:
    a = [(float(t), 10.0 + t) for t in range(0, 100, 10)]
    leaves = [(3.0 + t, 500.0) for t in range(0, 50, 10)]
    comes = [(55.0 + t, 7.0) for t in range(0, 40, 10)]
    url = answers(
        fake,
        [one("vllm:generation_tokens_total", name, rows) for name, rows in (("a", a), ("b", leaves), ("c", comes))]
        + [one("vllm:num_requests_running", name, [(at, 2.0) for at, _ in rows]) for name, rows in (("a", a), ("b", leaves))],
    )
    looks = read(url, 'job="x"', 100)

    assert [look.time for look in looks] == [10.0 * n for n in range(1, 10)]
    happened = traffic(looks)
    assert happened.total("generation_tokens_total") == 80 + 7
    assert [len(look.engines) for look in looks] == [2] * 5 + [3] * 4
    running = [sum(engine.gauges.get("requests_running", 0.0) for engine in look.engines) for look in looks]
    assert running == [4.0] * 5 + [2.0] * 4


def test_names_whose_colons_became_underscores_on_the_way_are_known(fake: FakeDcgmExporter) -> None:
    """As Prometheus 2.42 stores what a server with prometheus-client 0.26 serves it in the OpenMetrics form: seen."""
    url = answers(fake, [one("vllm_generation_tokens_total", "a", [(1.0, 5.0), (2.0, 7.0)], model_name="m")])
    looks = read(url, 'job="x"', 100)

    assert [(look.server, look.engines[0].counters["generation_tokens_total"]) for look in looks] == [("vllm", 5.0), ("vllm", 7.0)]


def test_what_is_no_prometheus_does_not_answer_or_has_too_much_is_said(
    fake: FakeDcgmExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fake.url.removesuffix("/metrics")
    fake.page = "up 1\n"
    for fault, why in (
        ("", "is not a Prometheus server"),
        ("html", "is not a Prometheus server"),
        ("error", "is not a Prometheus server: it answers 500"),
        ("no_http", "could not query the Prometheus"),
        ("break_off", "could not query|is not a Prometheus server"),
    ):
        fake.fault = fault
        with pytest.raises(TachoscopeError, match=why):
            read(url, 'job="x"', 60)
    with pytest.raises(TachoscopeError, match="could not query the Prometheus http://127.0.0.1:1: .*refused"):
        read("http://127.0.0.1:1", 'job="x"', 60)
    with pytest.raises(TachoscopeError, match="is not an http:// or https:// URL of a Prometheus"):
        read("file:///etc", 'job="x"', 60)
    monkeypatch.setattr(prometheus_api, "MOST_BYTES", 1000)
    url = answers(fake, [one("vllm:num_requests_running", "a", [(float(n), 1.0) for n in range(100)])])
    with pytest.raises(TachoscopeError, match="has more than 0 MiB .*ask for less time, or for fewer servers"):
        read(url, 'job="x"', 60)


def test_a_day_of_one_server_is_asked_for_by_the_names_that_are_there_and_read_whole(fake: FakeDcgmExporter) -> None:
    samples = metrics_page.samples(pages.SGLANG, metrics_page.server_of(pages.SGLANG).metrics())  # type: ignore[union-attr]
    series = [one(s.name, "a", [(15.0 * n, s.value * n) for n in range(5760)], **s.labels) for s in samples]
    url = answers(fake, series)
    looks = read(url, 'job="x"', 86400)

    assert len(looks) == 5760
    assert looks[2].engines[0].counters["generation_tokens_total"] == 2 * 7557572
    assert "sglang%3Anum_running_reqs%7C" in fake.bodies[-1]
    assert "%5B86400s%5D" in fake.bodies[-1]
