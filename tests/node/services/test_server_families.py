"""What a server said becomes our metrics, and nothing that it did not say."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

import serving_pages as pages
from tachoscope_core.metrics import serving as names
from tachoscope_core.servers.metrics_page import read
from tachoscope_core.servers.snapshot import Buckets, EngineState, Snapshot
from tachoscope_node.services.scraped_metrics import Unexplained, by_model, families, in_our_buckets, points
from tachoscope_node.spool.metric_samples import lines
from tachoscope_service.metrics.family import Histogram
from tachoscope_service.metrics.otlp.points import Points
from tachoscope_service.metrics.prometheus_text import render
from trying import each


def found(page: str, unexplained: Unexplained | None = None) -> dict[tuple[str, ...], float | Histogram]:
    """Return the points of service `chat` by metric and labels."""
    every = points("chat", read(page, 5.0), {} if unexplained is None else unexplained)
    by_key = {(metric.name, *labels): value for metric, (labels, value) in every}
    assert len(by_key) == len(every)
    for metric, (labels, _) in every:
        assert len(labels) == len(metric.labels)
    return by_key


def test_a_page_of_vllm_becomes_requests_times_tokens_and_engines() -> None:
    page = pages.vllm_page()
    (engine,) = read(page, 5.0).engines
    got = found(page)

    assert got["tachoscope_requests_total", "chat", "tiny", "", "ok"] == 3.0
    assert got["tachoscope_request_tokens_total", "chat", "tiny", "", "in"] == 12.0
    assert got["tachoscope_request_tokens_total", "chat", "tiny", "", "out"] == 96.0
    assert got["tachoscope_engine_iterations_total", "chat", "tiny"] == 96.0
    assert got["tachoscope_requests_running", "chat", "tiny"] == 0.0
    assert got["tachoscope_server_start_time_seconds", "chat"] == 1795245471.65
    states = {key[-1]: value for key, value in got.items() if key[0] == "tachoscope_request_time_seconds_total"}
    assert set(states) == {"queued", "prefill", "decode", "unexplained"}
    assert abs(sum(states.values()) - engine.histograms["request_seconds"].sum) < 1e-9


def test_of_a_histogram_only_bounds_that_both_have_are_shown() -> None:
    first = found(pages.vllm_page())["tachoscope_request_first_token_seconds", "chat", "tiny", ""]

    assert isinstance(first, Histogram)
    assert sum(first.counts) == 3
    assert first.bounds is not None
    assert {0.25, 0.5, 10.0} <= set(first.bounds)
    assert not {0.2, 0.3, 0.45, 2.0, 6.0} & set(first.bounds)  # which vLLM does not count by


def test_a_server_that_tells_no_states_has_its_time_unexplained_and_one_without_buckets_has_none() -> None:
    got = found(pages.TRITON)
    whole = got["tachoscope_request_seconds", "chat", "my_model", ""]

    assert whole == Histogram((161,), got["tachoscope_request_seconds", "chat", "my_model", ""].sum, ())
    assert abs(whole.sum - 32.2) < 1e-9
    assert got["tachoscope_request_time_seconds_total", "chat", "my_model", "", "unexplained"] == whole.sum - 11110 * 1e-6
    assert not [key for key in got if key[0] in {"tachoscope_kv_cache_usage_ratio", "tachoscope_requests_running"}]


@given(
    st.dictionaries(st.sampled_from([*names.FIRST_TOKEN_BUCKETS, 0.06, 0.08, 7.0]), st.integers(0, 50), max_size=12),
    st.integers(0, 50),
)
def test_at_each_shared_bound_as_many_are_below_as_the_server_says(theirs: dict[float, int], above: int) -> None:
    bounds = sorted(theirs)
    counts = [*accumulate([*(theirs[bound] for bound in bounds), above])]
    ours = in_our_buckets(Buckets(tuple(bounds), tuple(map(float, counts)), 1.0), names.FIRST_TOKEN_BUCKETS)

    assert ours.bounds == tuple(bound for bound in names.FIRST_TOKEN_BUCKETS if bound in theirs)
    below = dict(zip(bounds, counts, strict=False))
    assert [*accumulate(ours.counts)] == [*(below[bound] for bound in ours.bounds), counts[-1]]


def test_bounds_that_differ_by_their_conversion_only_are_the_same() -> None:
    milliseconds = Buckets(tuple(bound * 1000 * 0.001 for bound in names.INTER_TOKEN_BUCKETS), (1.0,) * 16, 1.0)

    assert in_our_buckets(milliseconds, names.INTER_TOKEN_BUCKETS).bounds == names.INTER_TOKEN_BUCKETS


@given(st.lists(st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)), min_size=2, max_size=20))
def test_no_counter_falls_while_the_server_runs_though_queues_are_counted_before_their_requests_end(
    steps: list[tuple[float, float]],
) -> None:
    unexplained: Unexplained = {}
    request = queue = last = 0.0
    for longer, waited in steps:
        request, queue = request + longer, queue + waited
        page = f"sglang:e2e_request_latency_seconds_sum {request}\nsglang:e2e_request_latency_seconds_count 5\n"
        page += f"sglang:queue_time_seconds_sum {queue}\nsglang:queue_time_seconds_count 5\n"
        rest = found(page, unexplained)["tachoscope_request_time_seconds_total", "chat", "", "", "unexplained"]
        assert isinstance(rest, float)
        assert rest >= max(last, request - queue)
        last = rest


def test_after_a_restart_of_the_server_counters_begin_anew() -> None:
    unexplained: Unexplained = {}
    page = pages.vllm_page()
    before, after = found(pages.grown(page, 100), unexplained), found(page, unexplained)
    key = ("tachoscope_request_time_seconds_total", "chat", "tiny", "", "unexplained")

    assert before["tachoscope_requests_total", "chat", "tiny", "", "ok"] == 300.0
    assert after["tachoscope_requests_total", "chat", "tiny", "", "ok"] == 3.0
    assert after[key] == found(page)[key]


def test_engines_of_a_model_are_added_and_of_their_ratios_the_mean_is_taken() -> None:
    def engine(name: str, model: str, running: float, usage: float) -> EngineState:
        gauges = {"requests_running": running, "kv_cache_usage_ratio": usage}
        return EngineState(model, name, gauges, {"preemptions_total": 2.0}, {}, {"ok": running})

    look = Snapshot(time=5.0, engines=(engine("0", "a", 3, 0.5), engine("1", "a", 5, 1.0), engine("0", "b", 7, 0.25)))
    states = by_model(look)

    assert states["a"].gauges == {"requests_running": 8.0, "kv_cache_usage_ratio": 0.75}
    assert (states["a"].counters, states["a"].outcomes) == ({"preemptions_total": 4.0}, {"ok": 8.0})
    assert states["b"].gauges == {"requests_running": 7.0, "kv_cache_usage_ratio": 0.25}


@each("times", [10**12, 10**20, 10**26, 10**32])
def test_a_server_that_lies_about_its_counts_breaks_neither_the_page_nor_the_samples_nor_the_push(times: int) -> None:
    page = pages.grown(pages.vllm_page(), times)
    every = families(points("chat", read(page, 5.0), {}))
    encoded = encode_metrics(Points({}, 0.0, 0.0).convert(every, 10**18)[0])

    assert encoded.ByteSize() > 0
    assert len(lines(every, 1.0).splitlines()) == len([family for family in every if family.points])
    assert {float(line.rpartition(" ")[2]) >= 0 for line in render(every).decode().splitlines() if line[0] != "#"} == {True}


def test_a_model_whose_name_is_endless_has_a_label_that_is_not() -> None:
    got = found(f'vllm:num_requests_running{{model_name="{"m" * 100_000}"}} 1\n')

    assert max(len(label) for key in got for label in key) == 200
