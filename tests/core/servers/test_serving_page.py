"""Whatever a server's page holds, it is a sound snapshot or a TachoscopeError."""

from __future__ import annotations

import math
import time
import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

import serving_pages as pages
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.servers import SERVERS, catalogue
from tachoscope_core.servers.metrics_page import read, samples
from tachoscope_core.servers.snapshot import Snapshot

MADE = (pages.TRITON, pages.TRITON_TENSORRT_LLM, pages.TRITON_VLLM, pages.SGLANG, pages.TGI, pages.OTEL)
TTFT = "vllm:time_to_first_token_seconds"


def assert_sound(look: Snapshot) -> None:
    """No number is NaN, infinite or negative; no histogram falls; its last count is of all."""
    numbers = [look.started]
    for engine in look.engines:
        numbers += [*engine.gauges.values(), *engine.counters.values(), *engine.outcomes.values(), engine.kv_cache_tokens]
        for histogram in engine.histograms.values():
            numbers += [histogram.sum, *histogram.counts]
            assert len(histogram.counts) == len(histogram.bounds) + 1
            assert list(histogram.bounds) == sorted(set(histogram.bounds))
            assert list(histogram.counts) == sorted(histogram.counts)
    assert all(math.isfinite(number) and number >= 0 for number in numbers)


def read_or_refuse(page: str) -> None:
    try:
        look = read(page, 5.0)
    except TachoscopeError:
        return
    assert_sound(look)


def vllm(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


# --- hostile ----------------------------------------------------------------------------------------------------------------

values = st.sampled_from(
    ["NaN", "+Inf", "-Inf", "-1", "1e308", "1e400", "-0.0", "0x1p3", "", "1 2 3", "five", "1_0"]
) | st.floats().map(repr)
texts = st.text(max_size=12) | st.sampled_from(["0", 'a"b', "a\\", "+Inf", "NaN", "-Inf", "1e400", "}", ",", "\\n", "# "])
lines = st.builds(
    lambda name, part, labels, value, tail: name + part + "{" + ",".join(f'{k}="{v}"' for k, v in labels) + "} " + value + tail,
    st.sampled_from(sorted({name for server in SERVERS for name in catalogue(server).metrics()})),
    st.sampled_from(["", "_bucket", "_sum", "_count", "_created"]),
    st.lists(
        st.tuples(st.sampled_from(["le", "model_name", "model", "engine", "reason", "err", "kv_cache_size_tokens"]), texts),
        max_size=4,
    ),
    values,
    st.sampled_from(["", " 1700000000", ' # {trace_id="a"} 0.5', " # EOF", "\r", " "]),
)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(lines, max_size=25))
def test_lines_of_known_metrics_with_any_labels_and_values_are_sound_or_refused(rows: list[str]) -> None:
    read_or_refuse("\n".join(rows) + "\n")


@given(st.sampled_from(MADE), st.data())
def test_a_page_that_is_damaged_anywhere_is_sound_or_refused(page: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(page)))
    end = data.draw(st.integers(start, min(start + 40, len(page))))
    read_or_refuse(page[:start] + data.draw(st.text(max_size=20)) + page[end:])


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(TachoscopeError, match="not the metrics page of a supported inference server"):
        read(garbage.decode(errors="replace"), 5.0)


def test_a_line_that_is_not_in_the_format_is_quoted() -> None:
    for line in ('vllm:num_requests_running{model_name="m} 1', "vllm:num_requests_running", "vllm:num_requests_running{a=1} 2"):
        with pytest.raises(TachoscopeError, match="not a line in Prometheus's text format: 'vllm:num_requests_running"):
            read(line + "\n", 5.0)
    with pytest.raises(TachoscopeError, match="a bucket's bound 'much' is not a number"):
        read(vllm(f'{TTFT}_bucket{{le="much"}} 1', f"{TTFT}_sum 1"), 5.0)


def test_a_line_that_would_make_a_search_go_back_and_forth_costs_nothing() -> None:
    """The time is that of a search without memory, if the expressions had one: years."""
    hostile = "vllm:num_requests_running{" + 'a="\\\\' * 5000 + " " * 5000 + "," * 5000
    with pytest.raises(TachoscopeError):
        read(hostile + "\n", 5.0)


# --- odd, and sound -----------------------------------------------------------------------------------------------------------


def test_numbers_that_nothing_can_have_are_left_out() -> None:
    page = vllm(
        'vllm:num_requests_running{engine="0"} NaN',
        'vllm:num_requests_waiting{engine="0"} +Inf',
        'vllm:num_preemptions_total{engine="0"} -3',
        'vllm:generation_tokens_total{engine="0"} 7',
    )
    (engine,) = read(page, 5.0).engines

    assert (engine.gauges, engine.counters) == ({}, {"generation_tokens_total": 7.0})


def test_a_histogram_without_its_last_bucket_has_its_count_and_one_that_falls_does_not_fall() -> None:
    page = vllm(f'{TTFT}_bucket{{le="0.5"}} 4', f'{TTFT}_bucket{{le="1.0"}} 3', f"{TTFT}_sum 2.5", f"{TTFT}_count 6")
    (engine,) = read(page, 5.0).engines

    assert engine.histograms["first_token_seconds"].counts == (4, 4, 6)


def test_labels_keep_their_escapes() -> None:
    (engine,) = read('vllm:num_requests_running{model_name="a\\"b\\\\c\\nd, {x}", engine = "1",} 2\n', 5.0).engines

    assert (engine.model, engine.engine) == ('a"b\\c\nd, {x}', "1")


def test_a_series_that_stands_there_twice_counts_once() -> None:
    (engine,) = read(
        vllm('vllm:generation_tokens_total{a="1",b="2"} 5', 'vllm:generation_tokens_total{b="2",a="1"} 9'), 5.0
    ).engines

    assert engine.counters == {"generation_tokens_total": 5.0}


def test_engines_and_models_are_told_apart_and_what_names_no_engine_is_in_the_sum_once() -> None:
    rows = [
        f'vllm:num_requests_running{{engine="{e}",model_name="{m}"}} {n}' for e, m, n in ((0, "a", 1), (1, "a", 2), (0, "b", 4))
    ]
    look = read(vllm(*rows, 'vllm:admission_rejections_total{model_name="a",reason="x"} 8'), 5.0)

    assert {(one.model, one.engine): one.gauges["requests_running"] for one in look.engines} == {
        ("a", "0"): 1.0,
        ("a", "1"): 2.0,
        ("b", "0"): 4.0,
    }
    assert {(one.model, one.engine): one.outcomes.get("shed") for one in look.engines if one.outcomes} == {("a", "0"): 8.0}


def test_the_openmetrics_form_with_exemplars_says_the_same() -> None:
    registry = CollectorRegistry()
    histogram = Histogram(TTFT, "h", ["model_name"], registry=registry, buckets=(0.1, 0.5))
    histogram.labels("m").observe(0.2, exemplar={"trace_id": "abc # }"})
    Counter("vllm:generation_tokens", "c", ["model_name"], registry=registry).labels("m").inc(23)
    text, other = generate_latest(registry).decode(), openmetrics(registry).decode()

    assert "# EOF" in other
    assert "trace_id" in other
    assert read(text, 5.0) == read(other, 5.0)
    assert read(text, 5.0).engines[0].histograms["first_token_seconds"].counts == (0, 1, 1)


@given(st.dictionaries(st.text(max_size=20), st.floats(0, 1e12), max_size=5))
def test_what_prometheus_s_own_client_writes_is_read_back(by_model: dict[str, float]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("vllm:num_requests_running", 'help "with" \\ and \n', ["model_name"], registry=registry)
    for model, value in by_model.items():
        gauge.labels(model).set(value)
    found = samples(generate_latest(registry).decode(), ["vllm:num_requests_running"])

    assert {sample.labels["model_name"]: sample.value for sample in found} == by_model


def test_ten_megabytes_are_read_whole_and_too_many_engines_refused() -> None:
    made = [pages.SGLANG.replace(pages._LLAMA, f'{pages._LLAMA},dp_rank="{rank}"') for rank in range(257)]
    filler = 'sglang:other{reason="x"} 1\n' * 400_000
    look = read("".join(made[:256]) + filler, 5.0)

    assert len(filler) > 10_000_000
    assert len(look.engines) == 256
    assert_sound(look)
    with pytest.raises(TachoscopeError, match="reports 257 engines and models, more than 256"):
        read("".join(made), 5.0)


def seconds_to_read_page_of(engines: int) -> float:
    """Return the CPU seconds without garbage collection, whose cost is that of all objects of the process."""
    one = pages.vllm_page()
    page = "".join(one.replace('engine="0"', f'engine="{engine}"') for engine in range(engines))
    return min(timeit.repeat(lambda: read(page, 5.0), timer=time.thread_time, number=1, repeat=3))


@pytest.mark.bar  # a speed
def test_the_cost_of_a_page_grows_as_its_length() -> None:
    """Measured: 0.08 s for a megabyte on one core of a server of 2026."""
    assert seconds_to_read_page_of(engines=100) < 30 * seconds_to_read_page_of(engines=10)
