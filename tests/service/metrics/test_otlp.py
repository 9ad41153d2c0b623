"""The OTLP push: what arrives is what the families said, and a receiver in any state costs nothing else."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from urllib.parse import quote

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from fake_otlp_receiver import (
    Behaviour,
    FakeReceiver,
    answers,
    attributes_of,
    closes,
    drips,
    is_no_http,
    metrics_of,
    never_ends,
    points_of,
    rejects,
    waits,
)
from tachoscope_core.metrics.agent import OTLP_EXPORTS
from tachoscope_core.metrics.host import DISK_IO_SECONDS, INFINIBAND_LINK_RATE, NETWORK_BYTES
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.metrics.training import HEARTBEAT_AGE, STEP_SECONDS, STEPS, TIME_SECONDS
from tachoscope_service.metrics.family import Family, Histogram
from tachoscope_service.metrics.otlp.push import OtlpPush, OtlpSettings, faults

BOOT, START = 1_700_000_000.0, 1_700_086_400.5
SECRET = "Bearer c0rrect-h0rse"
GPU = Metric("tachoscope_gpu_busy_ratio", "Busy share of a GPU.", ("gpu",))
FAMILIES = [
    Family(
        TIME_SECONDS, [(("llama", "0", "compute"), 12.5), (("llama", "0", "data_wait"), 1.5), (("llama", "1", "compute"), 13.0)]
    ),
    Family(STEPS, [(("llama", "0"), 40), (("llama", "1"), 41)]),
    Family(HEARTBEAT_AGE, [(("llama", "0"), 0.25)]),
    Family(STEP_SECONDS, [(("llama",), Histogram((0, 0, 3, 23, *([0] * 7), 1), 12.75))]),
    Family(NETWORK_BYTES, [(("eth0", "receive"), 1e12)]),
    Family(DISK_IO_SECONDS, [(("nvme0n1",), 0.5)]),
    Family(INFINIBAND_LINK_RATE, [(("mlx5_0", "1"), 5e10)]),
    Family(GPU, [(("GPU-7",), 0.5)]),
    Family(OTLP_EXPORTS, [(("ok",), 3), (("failed",), 0)]),
]


class Push:
    """A push with the lines that it logged."""

    def __init__(self, url: str, families: Callable[[], list[Family]] = lambda: FAMILIES, **settings: object) -> None:
        self.lines: list[str] = []
        options = {"interval_seconds": 120.0, "timeout_seconds": 60.0} | settings
        self.settings = OtlpSettings(url, **options)
        assert faults(self.settings) == []
        self.push = OtlpPush(
            self.settings,
            families=families,
            resource={"host.name": "n1"},
            start_time_seconds=START,
            boot_time_seconds=BOOT,
            log=self.lines.append,
        )

    def __enter__(self) -> Push:
        return self

    def __exit__(self, *_: object) -> None:
        self.push.stop(0)


def expected_points(families: list[Family]) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (family.metric.name, tuple(sorted(zip(family.metric.labels, labels, strict=True))))
        for family in families
        for labels, _ in family.points
    }


def arrived_points(request: object) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return [
        (name, tuple(sorted(pair for pair in attributes_of(point).items() if not pair[0].startswith("hw."))))
        for name, metric in metrics_of(request).items()
        for point in points_of(metric)
    ]


def assert_as_in_the_families(request: object) -> None:
    """Each point once, with its attributes, unit, type, value, start time and bounds."""
    arrived = arrived_points(request)
    assert len(arrived) == len(set(arrived))
    assert set(arrived) == expected_points(FAMILIES)
    metrics = metrics_of(request)
    for family in FAMILIES:
        metric = metrics[family.metric.name]
        assert metric.description == family.metric.help
        assert metric.unit == {"seconds": "s", "bytes": "By", "ratio": "1", "": ""}[family.metric.unit]
        assert metric.WhichOneof("data") == {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}[family.metric.type]
        if family.metric.type != "gauge":
            data = metric.sum if family.metric.type == "counter" else metric.histogram
            assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            began = START if family.metric is OTLP_EXPORTS else BOOT
            assert {point.start_time_unix_nano for point in data.data_points} == {int(began * 1e9)}
        if family.metric.type != "histogram":
            assert [point.as_double for point in points_of(metric)] == [value for _, value in family.points]
        assert all(abs(point.time_unix_nano / 1e9 - time.time()) < 60 for point in points_of(metric))
    assert metrics[TIME_SECONDS.name].sum.is_monotonic
    [histogram] = metrics[STEP_SECONDS.name].histogram.data_points
    assert tuple(histogram.explicit_bounds) == STEP_SECONDS.buckets
    assert list(histogram.bucket_counts) == [0, 0, 3, 23, *([0] * 7), 1]
    assert (histogram.count, histogram.sum) == (27, 12.75)
    assert not histogram.HasField("min") and not histogram.HasField("max")


def hardware_of(request: object, metric: Metric) -> dict[str, str]:
    [point] = points_of(metrics_of(request)[metric.name])
    return {key: value for key, value in attributes_of(point).items() if key.startswith("hw.")}


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_every_point_of_the_families_arrives_once_as_it_was(compression: str) -> None:
    with FakeReceiver() as receiver, Push(receiver.url, compression=compression, headers={"X-Scope-OrgID": "ml"}) as it:
        assert it.push.push() == "ok"
    [(path, headers, request)] = receiver.requests
    assert path == "/v1/metrics"
    assert headers["x-scope-orgid"] == "ml"
    assert headers["content-type"] == "application/x-protobuf"
    assert headers.get("content-encoding", "none") == compression
    assert_as_in_the_families(request)
    assert hardware_of(request, NETWORK_BYTES) == {"hw.id": "eth0", "hw.type": "network"}
    assert hardware_of(request, INFINIBAND_LINK_RATE) == {"hw.id": "mlx5_0", "hw.type": "network"}
    assert hardware_of(request, DISK_IO_SECONDS) == {"hw.id": "nvme0n1", "hw.type": "physical_disk"}
    assert hardware_of(request, GPU) == {"hw.id": "GPU-7", "hw.type": "gpu"}
    assert hardware_of(request, HEARTBEAT_AGE) == {}
    [resource] = [one.resource for one in request.resource_metrics]
    assert attributes_of(resource) == {"host.name": "n1"}


def test_a_path_in_the_endpoint_is_kept_and_the_settings_attributes_win() -> None:
    with FakeReceiver() as receiver, Push(f"{receiver.url}/otlp/v1/metrics", resource={"host.name": "mine"}) as it:
        it.push.push()
    [(path, _, request)] = receiver.requests
    assert path == "/otlp/v1/metrics"
    assert attributes_of(request.resource_metrics[0].resource) == {"host.name": "mine"}


def test_families_of_one_metric_arrive_as_one_metric() -> None:
    halves = [Family(STEPS, [(("a", "0"), 1)]), Family(STEPS, [(("b", "0"), 2)])]
    with FakeReceiver() as receiver, Push(receiver.url, lambda: halves) as it:
        it.push.push()
    assert len(arrived_points(receiver.requests[0][2])) == 2


def test_a_counter_keeps_its_start_until_it_is_counted_anew() -> None:
    values = iter([5, 9, 2, 4])
    with FakeReceiver() as receiver, Push(receiver.url, lambda: [Family(STEPS, [(("llama", "0"), next(values))])]) as it:
        for _ in range(4):
            it.push.push()
    points = [metrics_of(request)[STEPS.name].sum.data_points[0] for _, _, request in receiver.requests]
    assert [point.as_double for point in points] == [5, 9, 2, 4]
    starts = [point.start_time_unix_nano for point in points]
    assert starts == [int(BOOT * 1e9)] * 2 + [points[1].time_unix_nano] * 2


def test_series_that_ended_are_forgotten() -> None:
    jobs = itertools.count()
    with FakeReceiver() as receiver, Push(receiver.url, lambda: [Family(STEPS, [((f"job{next(jobs)}", "0"), 1)])]) as it:
        for _ in range(20):
            it.push.push()
        assert sum(map(len, it.push._points._series.values())) == 1


@pytest.mark.parametrize(
    ("behaviour", "why", "patience"),
    [
        (answers(400), "answered 400 Bad Request", 30.0),
        (answers(401), "answered 401 Unauthorized; it is tried again every 60 s (check otlp.headers)", 30.0),
        (answers(429), "answered 429 Too Many Requests", 4.0),
        (answers(503), "answered 503 Service Unavailable", 4.0),
        (answers(503, Retry_After="1"), "answered 503 Service Unavailable", 4.0),
        (answers(302, Location="/elsewhere"), "answered 302 Found", 30.0),
        (answers(200, b"<html>log in", "text/html; charset=utf-8"), "answered with text/html", 30.0),
        (answers(200, b"\xff\xff\xff"), "not an ExportMetricsServiceResponse", 30.0),
        (answers(200, b'{"partialSuccess": 7}', "application/json"), "not an ExportMetricsServiceResponse", 30.0),
        (never_ends, "it sends more than 65536 bytes", 30.0),
        (waits(30), "no whole answer within", 1.0),
        (drips, "OTLP: could not push", 1.0),
        (closes, "OTLP: could not push", 1.0),
        (is_no_http, "OTLP: could not push", 1.0),
    ],
)
def test_a_push_that_fails_ends_in_time_is_counted_and_says_why_once(behaviour: Behaviour, why: str, patience: float) -> None:
    # What is answered for good may take its time on a crowded machine; all else is tried until the time is over.
    with FakeReceiver(behaviour) as receiver, Push(receiver.url, interval_seconds=60, timeout_seconds=patience) as it:
        for _ in range(2):
            began = time.monotonic()
            assert it.push.push() == "failed"
            assert time.monotonic() - began < 20.0
    assert it.push.exports == {"ok": 0, "partial": 0, "failed": 2}
    [line] = it.lines
    assert why in line and receiver.url in line


@pytest.mark.parametrize(
    "behaviour",
    [answers(204), answers(200, b"{}", "application/json"), answers(200, b'{"partialSuccess":{}}', "application/json")],
)
def test_success_in_other_forms_is_success(behaviour: Behaviour) -> None:
    with FakeReceiver(behaviour) as receiver, Push(receiver.url) as it:
        assert it.push.push() == "ok"


@pytest.mark.parametrize(
    "behaviour",
    [
        rejects(7, "too old"),
        answers(200, b'{"partialSuccess":{"rejectedDataPoints":"7","errorMessage":"too old"}}', "application/json"),
    ],
)
def test_points_that_are_rejected_are_known(behaviour: Behaviour) -> None:
    with FakeReceiver(behaviour) as receiver, Push(receiver.url) as it:
        assert it.push.push() == "partial"
    assert it.push.exports == {"ok": 0, "partial": 1, "failed": 0}
    assert it.lines == [f"OTLP: {receiver.url}/v1/metrics rejects metrics: 7 of 13 points: too old"]


def test_a_short_refusal_is_retried_within_the_push() -> None:
    with (
        FakeReceiver(answers(503, Retry_After="0"), answers(429, Retry_After="0"), answers(200)) as receiver,
        Push(receiver.url) as it,
    ):
        assert it.push.push() == "ok"
    assert len(receiver.requests) == 3


def test_a_long_retry_after_delays_the_next_push(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    def wait(seconds: float) -> bool:
        delays.append(seconds)
        return len(delays) == 3

    with FakeReceiver(answers(503, Retry_After="250"), answers(200)) as receiver, Push(receiver.url) as it:
        monkeypatch.setattr(it.push._stopping, "wait", wait)  # all that the thread does is here, without its waiting
        it.push._run()
    assert it.push.exports == {"ok": 1, "partial": 0, "failed": 1}
    assert delays[0] <= 120.0 < 180.0 < delays[1] <= 250.0


class Records(logging.Handler):
    """What reaches a handler that an application gives to the root logger, but from threads that other tests left."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread not in self._others:
            self.texts.append(f"{record.name}: {record.getMessage()}")

    def __enter__(self) -> Records:
        root = logging.getLogger()
        self._level = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)
        logging.getLogger().setLevel(self._level)


def test_each_change_of_the_outcome_is_logged_once_and_libraries_log_nothing() -> None:
    bad, good = answers(500), answers(200)
    with Records() as records, FakeReceiver(bad, bad, bad, good, good, bad, good) as receiver, Push(receiver.url) as it:
        outcomes = [it.push.push() for _ in range(7)]
    assert outcomes == ["failed"] * 3 + ["ok"] * 2 + ["failed", "ok"]
    assert [("could not" in line) for line in it.lines] == [True, False, True, False]
    assert records.texts == []


def test_secrets_are_in_no_log_and_no_repr() -> None:
    echo = rejects(1, f"not for Authorization: {SECRET}\nnext line")
    with Records() as records, FakeReceiver(answers(401), echo) as receiver:
        with Push(f"{receiver.url}/v1/metrics?token={quote(SECRET)}", headers={"Authorization": SECRET}) as it:
            it.push.push()
            it.push.push()
        assert receiver.requests[0][1]["authorization"] == SECRET
    said = [*it.lines, repr(it.settings), str(it.settings), repr(it.push), *records.texts]
    assert "not for Authorization: *** next line" in it.lines[1]
    assert "Authorization" in repr(it.settings)
    assert "c0rrect" not in "".join(said)
