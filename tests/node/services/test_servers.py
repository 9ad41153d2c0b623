"""The agent looks at inference servers: real HTTP servers that serve real pages, or do what no server should."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import serving_pages as pages
from gpu.fake_dcgm_exporter import FakeDcgmExporter, fake_dcgm_exporter
from processes import agent_process, ask_prometheus, prometheus, wait_for
from spooling import agent_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.serving import REQUESTS, SERVER_UP
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.config.inference_servers import Server
from tachoscope_node.config.load import load
from tachoscope_node.services import scrape_collector as servers
from tachoscope_node.services.scrape_collector import ServersCollector, Watch
from tachoscope_node.spool.metric_samples import lines
from tachoscope_service.metrics.family import Family, joined
from tachoscope_service.metrics.otlp.points import Points
from tachoscope_service.metrics.prometheus_text import render


@pytest.fixture
def server() -> Iterator[FakeDcgmExporter]:
    """A fake only in that a test says what it answers."""
    with fake_dcgm_exporter(pages.vllm_page()) as fake:
        yield fake


@contextlib.contextmanager
def collector(*servers: Server) -> Iterator[ServersCollector]:
    made = ServersCollector(servers, [].append)
    try:
        yield made
    finally:
        made.close()


def values(families: list[Family]) -> dict[tuple[str, ...], float]:
    return {
        (family.metric.name, *labels): value for family in families for labels, value in family.points if isinstance(value, float)
    }


def test_a_server_is_looked_at_again_and_again(server: FakeDcgmExporter) -> None:
    with collector(Server("chat", server.url, interval_seconds=1.0)) as made:
        wait_for(lambda: values(_of(made))[SERVER_UP.name, "chat"] == 1.0)
        wait_for(lambda: values(_of(made))[REQUESTS.name, "chat", "tiny", "", "ok"] == 3.0)
        server.page = pages.grown(server.page, 7)
        wait_for(lambda: values(_of(made))[REQUESTS.name, "chat", "tiny", "", "ok"] == 21.0)


def _of(made: ServersCollector) -> list[Family]:
    try:
        return made.collect()
    except NoDataError:
        return []


@pytest.mark.parametrize("fault", FakeDcgmExporter.FAULTS)
def test_a_server_that_misbehaves_is_down_for_a_reason_and_has_no_other_series(
    server: FakeDcgmExporter, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 1.0 if fault in ("hang", "drip", "drip_head") else 60.0)
    server.fault, server.page = fault, server.page * 20
    said: list[str] = []
    watch = Watch(Server("chat", server.url, interval_seconds=60.0), said.append)
    watch.poll()

    assert [(metric.name, point) for metric, point in watch.points()] == [(SERVER_UP.name, (("chat",), 0.0))]
    (line,) = said
    assert line == f"server chat: failed: {watch.fault}"
    server.fault, server.page = "", pages.SGLANG
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 60.0)
    watch.poll()
    assert said[1:] == ["server chat: answers again"]
    assert len(watch.points()) > 10


def test_what_no_server_s_page_is_and_what_tells_of_too_many_models_is_down(server: FakeDcgmExporter) -> None:
    watch = Watch(Server("chat", server.url), [].append)
    many = "".join(f'vllm:num_requests_running{{model_name="{number}"}} 1\n' for number in range(33))
    for page, why in (
        ("up 1\n", "not the metrics page of a supported inference server"),
        ("vllm:num_requests_running x\n", "not a line"),
        (many, "33 models"),
    ):
        server.page = page
        watch.poll()
        assert why in watch.fault
        assert len(watch.points()) == 1


def test_a_server_whose_make_is_named_is_up_before_its_page_tells_anything(server: FakeDcgmExporter) -> None:
    server.page = "up 1\n"
    watch = Watch(Server("chat", server.url, kind="tgi"), [].append)
    watch.poll()

    assert [(metric.name, point) for metric, point in watch.points()] == [(SERVER_UP.name, (("chat",), 1.0))]


def test_servers_that_hang_do_not_delay_the_others(server: FakeDcgmExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 50.0)  # so that none has been given up yet, also on a slow machine
    with contextlib.ExitStack() as stack:
        hanging = [stack.enter_context(fake_dcgm_exporter()) for _ in range(8)]
        for one in hanging:
            one.fault = "hang"
        all_hang = [Server(f"hangs-{number}", one.url, interval_seconds=60.0) for number, one in enumerate(hanging)]
        made = stack.enter_context(collector(*all_hang, Server("chat", server.url)))
        wait_for(lambda: values(_of(made)).get((SERVER_UP.name, "chat")) == 1.0)

        assert [key for key in values(_of(made)) if key[0] == SERVER_UP.name] == [(SERVER_UP.name, "chat")]  # no other has ended


def test_a_look_that_is_too_long_ago_is_not_shown_as_current(server: FakeDcgmExporter) -> None:
    now = [100.0]
    watch = Watch(Server("chat", server.url, interval_seconds=15.0), [].append, lambda: now[0])
    watch.poll()
    assert len(watch.points()) > 1
    now[0] += 36.0

    assert [(metric.name, point) for metric, point in watch.points()] == [(SERVER_UP.name, (("chat",), 0.0))]


def test_a_server_whose_page_is_there_and_whose_check_fails_is_down_and_keeps_its_series(server: FakeDcgmExporter) -> None:
    """An engine that is stuck still counts: its page answers, and requests do not."""
    with fake_dcgm_exporter("ok") as engine:
        body = '{"model": "tiny", "prompt": "Hi", "max_tokens": 1}'
        watch = Watch(Server("chat", server.url, check_url=engine.url, check_body=body), [].append)
        looks = []
        for fault in ("", "error", "no_http", ""):
            engine.fault = fault
            watch.poll()
            ups = [point for metric, point in watch.points() if metric is SERVER_UP]
            looks.append((ups, len(watch.points()) > 10, watch.fault))

    assert engine.bodies == [body] * 4
    assert [(ups, counted) for ups, counted, _ in looks] == [([(("chat",), up)], True) for up in (1.0, 0.0, 0.0, 1.0)]
    assert [fault for *_, fault in looks] == [
        "",
        "its page is there, and its check failed: it answers 500 Internal Server Error",
        "its page is there, and its check failed: BadStatusLine: SSH-2.0-OpenSSH_9.2",
        "",
    ]


def test_a_check_that_is_not_answered_in_time_is_a_server_that_is_down(
    server: FakeDcgmExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 1.0)
    with fake_dcgm_exporter() as engine:
        engine.fault = "hang"
        watch = Watch(Server("chat", server.url, check_url=engine.url, interval_seconds=1.0), [].append)
        watch.poll()

    assert "no whole answer within 1 s" in watch.fault


def test_headers_are_sent_and_not_shown(tmp_path: Path) -> None:
    secret = Server("chat", "http://h/metrics", headers={"Authorization": "Bearer secret-23"})
    assert "secret-23" not in repr(secret)
    assert "Authorization" in repr(secret)
    with fake_dcgm_exporter(pages.TGI) as fake:
        seen: list[str | None] = []
        answer = fake.answer
        fake.answer = lambda handler: (seen.append(handler.headers["Authorization"]), answer(handler))[1]  # type: ignore[method-assign]
        Watch(Server("chat", fake.url, headers={"Authorization": "Bearer secret-23"}), [].append).poll()
        fake.fault = "redirect"
        Watch(Server("chat", fake.url, headers={"Authorization": "Bearer secret-23"}), [].append).poll()
    assert seen == ["Bearer secret-23"] * 2  # and not where it redirects to


BAD = """
servers:
  - {name: chat, url: "http://127.0.0.1:8000/metrics", kind: vlm}
  - {name: chat, url: "127.0.0.1:8000", interval_seconds: 0}
  - {name: "a b", url: "http://me:secret-23@h/metrics", headers: {"X Y": "secret-24\\n"}, what: 1}
  - text
  - {name: no-url}
  - {name: check, url: "http://h/metrics", check_body: "{prompt: x}"}
"""


def test_all_faults_of_servers_are_named_at_once_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(BAD)
    with pytest.raises(TachoscopeError) as raised:
        load(tmp_path / "agent.yaml")
    text = str(raised.value)

    for fault in (
        "servers[0].kind: 'vlm': must be one of auto, triton, vllm",
        "servers[1].url: '127.0.0.1:8000' is not an http:// or https:// URL",
        "servers[1].interval_seconds: 0.0 is not between 1 and 3600",
        "servers[2].name: 'a b' is not the name of a service",
        "servers[2].url: (not shown): has a user in it",
        "servers[2].headers: 'X Y' is not the name of a header",
        "servers[2].headers.X Y: its value (not shown) has a line break",
        "servers[2].what: no such key; there are name, url, kind, interval_seconds, headers, namespace, node, check_url",
        "servers[3]: str where a set of keys and values belongs",
        "servers[4].url: '' is not an http:// or https:// URL",
        "servers: 'chat' names 2 of them",
        "servers[5].check_body: is sent nowhere: give check_url as well",
        "servers[5].check_body: '{prompt: x}' is not JSON",
    ):
        assert fault in text
    assert "secret-2" not in text
    (tmp_path / "agent.yaml").write_text("servers: {name: chat}")
    with pytest.raises(TachoscopeError, match="servers: .*Expected `array`"):
        load(tmp_path / "agent.yaml")


def test_the_page_the_push_and_the_samples_have_what_the_server_said(tmp_path: Path, server: FakeDcgmExporter) -> None:
    agent = agent_of(tmp_path, servers=[{"name": "chat", "url": server.url}])
    wait_for(lambda: (agent.tick(), values(agent.families())[SERVER_UP.name, "chat"])[1] == 1.0)
    families = agent.families()
    agent.close()

    page = render(families).decode()
    assert 'tachoscope_requests_total{model="tiny",outcome="ok",service="chat",version=""} 3.0' in page
    assert 'tachoscope_request_first_token_seconds_bucket{le="0.25",model="tiny",service="chat",version=""} 3.0' in page
    assert 'tachoscope_request_first_token_seconds_bucket{le="0.45"' not in page
    sampled = [json.loads(line) for line in lines(families, 1.0).splitlines()]
    (first,) = [line for line in sampled if line["name"] == "tachoscope_request_first_token_seconds"]
    ((_, histogram),) = first["points"]
    assert sum(histogram["counts"]) == 3
    assert len(histogram["bounds"]) == len(histogram["counts"]) - 1
    data, _ = Points({}, 0.0, 0.0).convert(families, 10**18)
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    (point,) = metrics["tachoscope_request_first_token_seconds"].data.data_points
    assert (list(point.explicit_bounds), list(point.bucket_counts)) == (histogram["bounds"], histogram["counts"])


def test_a_server_of_another_node_is_left_to_that_node_s_agent(tmp_path: Path, server: FakeDcgmExporter) -> None:
    shared = [{"name": name, "url": server.url, "node": node} for name, node in (("chat", "gpu-7"), ("code", "gpu-8"))]
    agent = agent_of(tmp_path, servers=shared, node="gpu-8")
    wait_for(lambda: (agent.tick(), values(agent.families()).get((SERVER_UP.name, "code")))[1] == 1.0)
    found = values(agent.families())
    agent.close()

    assert (SERVER_UP.name, "chat") not in found


def test_two_families_of_one_metric_are_one_on_the_page() -> None:
    families = [Family(SERVER_UP, [(("a",), 1.0)]), Family(REQUESTS, []), Family(SERVER_UP, [(("b",), 0.0)])]
    page = render(joined(families)).decode()

    assert page.count("# TYPE tachoscope_server_up gauge") == 1
    assert (
        page.index('server_up{service="a"} 1.0')
        < page.index('server_up{service="b"} 0.0')
        < page.index("tachoscope_requests_total")
    )


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
def test_a_real_prometheus_sees_the_growth_and_a_restart_of_a_server_through_the_agent(
    tmp_path: Path, server: FakeDcgmExporter
) -> None:
    page = server.page
    asked = 'tachoscope_requests_total{service="chat",outcome="ok"}'
    job = {"job_name": "agent", "static_configs": [{"targets": ["127.0.0.1:1"]}]}
    settings = [{"name": "chat", "url": server.url, "kind": "vllm", "interval_seconds": 1.0}]
    with agent_process(tmp_path, servers=settings) as agent:
        job["static_configs"] = [{"targets": [agent.url.removeprefix("http://")]}]
        with prometheus(tmp_path, job) as port:

            def value(query: str) -> float:
                ((_, text),) = [row["value"] for row in ask_prometheus(port, "query", query=query)["result"]]
                return float(text)

            wait_for(lambda: value(asked) == 3.0)
            server.page = pages.grown(page, 100)
            wait_for(lambda: value(asked) == 300.0)
            server.page = page
            wait_for(lambda: value(asked) == 3.0)
            assert value(f"resets({asked}[10m])") == 1.0
            ours, theirs = wait_for(  # a scrape may fail in between, and then there is neither
                lambda: [value(one) for one in ("sum(tachoscope_request_time_seconds_total)", "tachoscope_request_seconds_sum")]
            )
            assert ours == pytest.approx(theirs)
            server.fault = "error"
            wait_for(lambda: value("tachoscope_server_up") == 0.0)
            assert ask_prometheus(port, "query", query=asked)["result"] == []
            agent.write_config(servers=[])
            agent.signal(signal.SIGHUP)
            wait_for(lambda: "tachoscope_server_up{" not in agent.get("/metrics"))
