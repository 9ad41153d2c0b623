"""Pages of inference servers as the servers' own documents show them, and the real one of vLLM.

Triton: docs/user_guide/metrics.md, the README of tensorrtllm_backend and that of vllm_backend. SGLang:
docs/references/production_metrics.md and metrics_collector.py. TGI: docs/source/reference/metrics.md. OpenTelemetry:
docs/gen-ai/gen-ai-metrics.md. Names, labels and buckets are theirs; the numbers are planted.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

DATA = Path(os.environ.get("TACHOSCOPE_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data") / "serving"


def vllm_page() -> str:
    """Return the page of a vLLM 0.32.0 that had served three requests."""
    path = DATA / "vllm_0.32.0_metrics.txt"
    if not path.exists():
        pytest.skip(f"no recorded page {path} (set TACHOSCOPE_TEST_DATA)")
    return path.read_text()


def histogram(name: str, labels: str, counts: Mapping[str, int], total: float) -> str:
    """Return a histogram's lines: cumulative counts by bound, without +Inf, which is the last one's."""
    every = [*counts.items(), ("+Inf", max(counts.values(), default=0))]
    comma = "," if labels else ""
    lines = [f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}\n' for bound, count in every]
    braces = f"{{{labels}}}" if labels else ""
    return "".join(lines) + f"{name}_sum{braces} {total}\n{name}_count{braces} {every[-1][1]}\n"


def lines(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


_MY = 'model="my_model",version="1"'
TRITON = lines(
    [
        "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes",
        "# TYPE nv_inference_request_success counter",
        f"nv_inference_request_success{{{_MY}}} 161",
        *[
            f'nv_inference_request_failure{{model="my_model",reason="{reason}",version="1"}} {count}'
            for reason, count in (("REJECTED", 5), ("CANCELED", 3), ("BACKEND", 2), ("OTHER", 1))
        ],
        f"nv_inference_pending_request_count{{{_MY}}} 95",
        f"nv_inference_request_duration_us{{{_MY}}} 32200000",
        f"nv_inference_queue_duration_us{{{_MY}}} 11110",
        'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.78',
    ]
) + histogram("nv_inference_first_response_histogram_ms", _MY, {"100": 8, "500": 30, "2000": 36, "5000": 37}, 10771)

_TRT = 'model="tensorrt_llm",version="1"'
TRITON_TENSORRT_LLM = TRITON + lines(
    [
        f"nv_inference_pending_request_count{{{_TRT}}} 0",
        *[
            f'nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="{kind}",version="1"}} {count}'
            for kind, count in (("waiting", 7), ("context", 1), ("scheduled", 4), ("max", 512), ("active", 11))
        ],
        *[
            f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",model="tensorrt_llm",version="1"}} {value}'
            for kind, value in (("fraction", 0.6), ("used", 2000), ("free", 4000), ("max", 6239))
        ],
    ]
)
_VLLM = 'model="vllm_model",version="1"'
TRITON_VLLM = (
    lines(
        [
            f"nv_inference_request_success{{{_VLLM}}} 1",
            f"vllm:prompt_tokens_total{{{_VLLM}}} 10",
            f"vllm:generation_tokens_total{{{_VLLM}}} 16",
        ]
    )
    + histogram("vllm:time_to_first_token_seconds", _VLLM, {"0.001": 0, "0.1": 1}, 0.032)
    + histogram("nv_inference_first_response_histogram_ms", _VLLM, {"100": 1}, 33)
)

_LLAMA = 'model_name="meta-llama/Llama-3.1-8B-Instruct"'
SGLANG = lines(
    [
        f"sglang:prompt_tokens_total{{{_LLAMA}}} 8.128902e+06",
        f"sglang:generation_tokens_total{{{_LLAMA}}} 7.557572e+06",
        f'sglang:cached_tokens_total{{cache_source="device",{_LLAMA}}} 60000',
        f'sglang:cached_tokens_total{{cache_source="host",{_LLAMA}}} 1000',
        f"sglang:token_usage{{{_LLAMA}}} 0.28",
        f"sglang:num_running_reqs{{{_LLAMA}}} 162.0",
        f"sglang:num_queue_reqs{{{_LLAMA}}} 2826.0",
        f"sglang:num_retracted_requests_total{{{_LLAMA}}} 12",
        f"sglang:num_requests_total{{{_LLAMA}}} 11228",
        f"sglang:num_aborted_requests_total{{{_LLAMA}}} 17",
        f"sglang:max_total_num_tokens{{{_LLAMA}}} 442357",
    ]
) + (
    histogram("sglang:time_to_first_token_seconds", _LLAMA, {"0.1": 6, "0.5": 6, "1.0": 27, "30.0": 2513}, 2.35e6)
    + histogram("sglang:e2e_request_latency_seconds", _LLAMA, {"0.5": 6, "60.0": 1513}, 3.1e6)
    + histogram("sglang:time_per_output_token_seconds", _LLAMA, {"0.05": 11685, "0.1": 4950195}, 866964.5)
    + histogram("sglang:queue_time_seconds", _LLAMA, {"0.0": 0, "0.1": 900, "10": 1100}, 950.0)
)

TGI = (
    lines(
        [
            "# TYPE tgi_request_count counter",
            "tgi_request_count 120",
            "tgi_request_success 100",
            *[
                f'tgi_request_failure{{err="{why}"}} {count}'
                for why, count in (("overloaded", 9), ("validation", 5), ("generation", 4), ("dropped", 2))
            ],
            "tgi_queue_size 3",
            "tgi_batch_current_size 8",
        ]
    )
    + histogram("tgi_request_duration", "", {"0.00015000000000000001": 0, "0.985": 100}, 61.5)
    + histogram("tgi_request_queue_duration", "", {"0.00015000000000000001": 90, "0.29": 100}, 2.5)
    + histogram("tgi_request_mean_time_per_token_duration", "", {"0.011": 80, "0.017": 100}, 1.1)
    + histogram("tgi_request_input_length", "", {"40.95": 100}, 2000)
    + histogram("tgi_request_generated_tokens", "", {"81.9": 100}, 5500)
)

_CHAT = 'gen_ai_operation_name="chat",gen_ai_provider_name="openai",gen_ai_request_model="gpt-4"'
OTEL = (
    histogram("gen_ai_server_request_duration_seconds", _CHAT, {"0.5": 30, "1.0": 40}, 20.0)
    + histogram("gen_ai_server_request_duration_seconds", f'error_type="timeout",{_CHAT}', {"0.5": 0, "1.0": 2}, 120.0)
    + histogram("gen_ai_server_request_duration_seconds", f'error_type="429",{_CHAT}', {"0.5": 3, "1.0": 3}, 0.1)
    + histogram("gen_ai_server_request_duration_seconds", f'error_type="_OTHER",{_CHAT}', {"0.5": 1, "1.0": 1}, 0.1)
    + histogram("gen_ai_server_time_to_first_token_seconds", _CHAT, {"0.1": 10, "0.25": 40}, 5.0)
    + histogram("gen_ai_server_time_per_output_token_seconds", _CHAT, {"0.025": 10, "0.05": 40}, 1.6)
    + histogram("gen_ai_client_token_usage", f'gen_ai_token_type="input",{_CHAT}', {"64": 40}, 900)
    + histogram("gen_ai_client_token_usage", f'gen_ai_token_type="output",{_CHAT}', {"256": 40}, 3000)
)


def grown(page: str, times: int) -> str:
    """Return vLLM's page after so many times as many requests of the same kind: gauges as they are."""

    def line(row: str) -> str:
        name, _, value = row.rpartition(" ")
        gauges = ("vllm:num_requests", "vllm:kv_cache_usage", "vllm:cache_config", "vllm:engine_sleep")
        keeps = not row.startswith("vllm:") or row.startswith(gauges) or "_created{" in row
        return row if keeps else f"{name} {float(value) * times}"

    return "".join(f"{line(row)}\n" for row in page.splitlines())
