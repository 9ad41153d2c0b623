"""What each make of server says is found on its page, in our terms."""

from __future__ import annotations

import pytest

import serving_pages as pages
from tachoscope_core.metrics.serving import SERVING_METRICS
from tachoscope_core.servers import SERVERS, catalogue
from tachoscope_core.servers.metrics_page import read, server_of
from tachoscope_core.servers.snapshot import Buckets, EngineState


def only_engine(page: str, server: str) -> EngineState:
    look = read(page, 5.0)
    (engine,) = look.engines
    assert (look.server, look.time, look.fault) == (server, 5.0, "")
    return engine


def test_a_real_page_of_vllm_is_read() -> None:
    page = pages.vllm_page()
    engine = only_engine(page, "vllm")

    assert read(page, 5.0).started == 1795245471.65
    assert (engine.model, engine.engine, engine.kv_cache_tokens) == ("tiny", "0", 131072.0)
    assert engine.gauges == {"requests_running": 0.0, "requests_waiting": 0.0, "kv_cache_usage_ratio": 0.0}
    assert (engine.counters["prompt_tokens_total"], engine.counters["generation_tokens_total"]) == (12.0, 96.0)
    assert engine.outcomes == {"ok": 3.0, "client_error": 0.0, "server_error": 0.0, "shed": 0.0}
    counts = {name: histogram.count for name, histogram in engine.histograms.items()}
    per_request = ("first_token_seconds", "request_seconds", "queue_seconds", "prefill_seconds", "decode_seconds", "prompt_tokens")
    assert {name: counts[name] for name in per_request} == dict.fromkeys(per_request, 3.0)
    assert (counts["inter_token_seconds"], counts["iteration_tokens"]) == (93.0, 96.0)
    assert engine.histograms["iteration_tokens"].sum == 12 + 96  # each token passes once
    assert set(engine.histograms) | set(engine.counters) | set(engine.gauges) == set(catalogue("vllm").signals)


def test_triton_says_its_times_in_microseconds_and_milliseconds() -> None:
    engine = only_engine(pages.TRITON, "triton")

    assert (engine.model, engine.gauges) == ("my_model", {"requests_waiting": 95.0})
    assert engine.histograms["request_seconds"] == Buckets((), (161.0,), pytest.approx(32.2))
    assert engine.histograms["queue_seconds"] == Buckets((), (161.0,), pytest.approx(0.01111))
    first = engine.histograms["first_token_seconds"]
    assert (first.bounds, first.counts, first.sum) == (pytest.approx((0.1, 0.5, 2, 5)), (8, 30, 36, 37, 37), pytest.approx(10.771))
    assert engine.outcomes == {"ok": 161.0, "shed": 5.0, "client_error": 3.0, "server_error": 3.0}


def test_what_triton_s_backends_say_themselves_goes_before_what_triton_says() -> None:
    tensorrt = {engine.model: engine for engine in read(pages.TRITON_TENSORRT_LLM, 5.0).engines}
    assert tensorrt["tensorrt_llm"].gauges == {"requests_running": 4.0, "requests_waiting": 7.0, "kv_cache_usage_ratio": 0.6}
    assert tensorrt["my_model"].gauges == {"requests_waiting": 95.0}

    engine = only_engine(pages.TRITON_VLLM, "triton")
    assert engine.counters == {"prompt_tokens_total": 10.0, "generation_tokens_total": 16.0}
    assert engine.histograms["first_token_seconds"].sum == 0.032


def test_sglang_is_read_as_its_documents_show_it() -> None:
    engine = only_engine(pages.SGLANG, "sglang")

    assert engine.gauges == {"requests_running": 162.0, "requests_waiting": 2826.0, "kv_cache_usage_ratio": 0.28}
    assert engine.counters["cached_prompt_tokens_total"] == 61000.0
    assert (engine.counters["preemptions_total"], engine.kv_cache_tokens) == (12.0, 442357.0)
    assert engine.histograms["inter_token_seconds"].counts == (11685, 4950195, 4950195)
    assert engine.outcomes == {"ok": 11228.0, "client_error": 17.0}


def test_of_sglang_s_gauges_by_priority_only_the_total_counts() -> None:
    page = 'sglang:num_queue_reqs{model_name="m",priority=""} 5\n' + "".join(
        f'sglang:num_queue_reqs{{model_name="m",priority="{priority}"}} {count}\n' for priority, count in ((0, 2), (1, 3))
    )

    assert only_engine(page, "sglang").gauges == {"requests_waiting": 5.0}


def test_tgi_is_read_though_it_names_no_model() -> None:
    engine = only_engine(pages.TGI, "tgi")

    assert (engine.model, engine.gauges) == ("", {"requests_running": 8.0, "requests_waiting": 3.0})
    assert engine.counters == {"prompt_tokens_total": 2000.0, "generation_tokens_total": 5500.0}
    assert engine.histograms["queue_seconds"].counts == (90, 100, 100)
    assert engine.outcomes == {"ok": 100.0, "shed": 9.0, "client_error": 7.0, "server_error": 4.0}


def test_gen_ai_metrics_tell_requests_that_ended_well_from_the_others() -> None:
    engine = only_engine(pages.OTEL, "otel")

    assert engine.model == "gpt-4"
    assert engine.histograms["request_seconds"] == Buckets((0.5, 1.0), (30.0, 40.0, 40.0), 20.0)
    assert engine.outcomes == {"ok": 40.0, "timeout": 2.0, "shed": 3.0, "server_error": 1.0}
    assert engine.counters == {"prompt_tokens_total": 900.0, "generation_tokens_total": 3000.0}


def test_our_own_metrics_can_be_read_and_their_server_did_not_start_when_the_agent_did() -> None:
    labels = 'model="m",service="chat",version="2"'
    page = (
        'process_start_time_seconds 99\ntachoscope_server_start_time_seconds{service="chat"} 42\n'
        'tachoscope_requests_running{model="m",service="chat"} 3\n'
        + "".join(
            f'tachoscope_request_time_seconds_total{{state="{s}",{labels}}} {v}\n' for s, v in (("prefill", 2), ("decode", 5))
        )
        + "".join(f'tachoscope_requests_total{{outcome="{o}",{labels}}} {n}\n' for o, n in (("ok", 7), ("cut", 1)))
        + pages.histogram("tachoscope_request_seconds", labels, {"0.5": 6, "1.0": 7}, 8.0)
    )
    engine = only_engine(page, "tachoscope")

    assert read(page, 5.0).started == 42.0
    assert (engine.model, engine.engine) == ("m", "chat")
    assert engine.histograms["prefill_seconds"] == Buckets((), (7.0,), 2.0)
    assert engine.histograms["decode_seconds"] == Buckets((), (7.0,), 5.0)
    assert engine.outcomes == {"ok": 7.0, "cut": 1.0}


def test_a_page_of_one_make_with_gen_ai_metrics_beside_its_own_is_that_make_s() -> None:
    made = {"vllm": 'vllm:num_requests_running{model_name="m"} 1\n', "triton": pages.TRITON_VLLM, "sglang": pages.SGLANG}

    for server, page in made.items():
        for text in (page + pages.OTEL, pages.OTEL + page):
            found = server_of(text)
            assert found is not None
            assert found.server == server


def test_a_page_of_something_else_is_of_no_make() -> None:
    for page in ("", "node_cpu_seconds_total 1\n", "# HELP vllm:num_requests_running what vLLM would say\n", "<html>vllm:</html>"):
        assert server_of(page) is None


def test_every_catalogue_is_sound_and_no_two_makes_have_one_prefix() -> None:
    known = [catalogue(server) for server in SERVERS]

    assert [one.server for one in known] == list(SERVERS)
    assert len({one.prefix for one in known}) == len(known)
    ours = {metric.name for metric in SERVING_METRICS}
    assert {name.removesuffix("_count") for name in catalogue("tachoscope").metrics()} <= ours
    with pytest.raises(KeyError):
        catalogue("nobody")
