"""Metrics of inference: requests, and the engines that serve them."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

REQUEST_STATES = ("queued", "prefill", "decode", "preempted", "cold_start", "unexplained")
"""Where a second of a request goes: exactly one of these."""
ENGINE_STATES = ("busy", "idle", "starved", "cold_start", "unexplained")
"""Where a second of an engine goes. `starved`: requests wait and none runs. `cold_start`: it is not ready yet, or away."""
OUTCOMES = ("ok", "client_error", "server_error", "shed", "timeout", "cut")
"""How a request ended. `client_error`: its own fault, or its client left. `shed`: refused for lack of capacity. `cut`: the stream
broke off before its end."""
DIRECTIONS = ("in", "out")

MET = ("yes", "no")
JOINT_FIRST_TOKEN_SECONDS = 2.5
JOINT_OUTPUT_TOKEN_SECONDS = 0.1
"""Within which a request has its first token, and on average its others, to attain all objectives at once."""

_SERVICE = ("service", "model", "version")
_ENGINE = ("service", "model")

# The thresholds of the objectives are boundaries: 0.45 s and 40 ms, 6 s and 175 ms of MLPerf Inference 5.0, 0.2 s and 50 ms, 0.5 s
# and 150 ms of GuideLLM, 3 s of llm-d; the others are those of vLLM and of OpenTelemetry, so that what they count can be mapped.
# https://mlcommons.org/2025/04/llm-inference-v5/ https://github.com/vllm-project/guidellm
REQUEST_BUCKETS = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
FIRST_TOKEN_BUCKETS = (0.01, 0.04, 0.1, 0.2, 0.25, 0.3, 0.45, 0.5, 0.75, 1.0, 2.0, 2.5, 3.0, 5.0, 6.0, 7.5, 10.0, 20.0, 40.0)
INTER_TOKEN_BUCKETS = (0.01, 0.025, 0.04, 0.05, 0.075, 0.1, 0.15, 0.175, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0)
QUEUE_BUCKETS = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 2.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = Metric(
    "tachoscope_requests_total",
    "Requests that ended, by how: ok, client_error, server_error, shed (no capacity left), timeout, cut (stream broke off).",
    (*_SERVICE, "outcome"),
)
REQUESTS_JOINT = Metric(
    "tachoscope_requests_joint_total",
    "Requests by whether they met all objectives together: ended ok, first token within 2.5 s, then on average at most 0.1 s to "
    "each next. Only of models that answer in tokens; no client errors, and none that ended ok with its tokens unseen.",
    (*_SERVICE, "met"),
)
REQUEST_SECONDS = Metric(
    "tachoscope_request_seconds",
    "Time from a request's arrival to the end of its answer, of those that ended ok.",
    _SERVICE,
    buckets=REQUEST_BUCKETS,
)
FIRST_TOKEN_SECONDS = Metric(
    "tachoscope_request_first_token_seconds",
    "Time from a request's arrival to its first token (TTFT).",
    _SERVICE,
    buckets=FIRST_TOKEN_BUCKETS,
)
INTER_TOKEN_SECONDS = Metric(
    "tachoscope_request_inter_token_seconds",
    "Time from one token of a request to its next (ITL).",
    _SERVICE,
    buckets=INTER_TOKEN_BUCKETS,
)
QUEUE_SECONDS = Metric(
    "tachoscope_request_queue_seconds", "Time that a request waited before it was first worked on.", _SERVICE, buckets=QUEUE_BUCKETS
)
REQUEST_TIME_SECONDS = Metric(
    "tachoscope_request_time_seconds_total",
    "Time of requests that ended by ledger state; the states add up to their time from arrival to end.",
    (*_SERVICE, "state"),
    REQUEST_STATES,
)
REQUEST_TOKENS = Metric("tachoscope_request_tokens_total", "Tokens of requests: in (prompt) and out.", (*_SERVICE, "direction"))
REQUESTS_RUNNING = Metric("tachoscope_requests_running", "Requests that an engine works on.", _ENGINE)
REQUESTS_WAITING = Metric("tachoscope_requests_waiting", "Requests that wait for an engine.", _ENGINE)
REQUEST_PREEMPTIONS = Metric(
    "tachoscope_request_preemptions_total", "Requests put back in the queue to make room in the KV cache.", _ENGINE
)
KV_CACHE_USAGE = Metric("tachoscope_kv_cache_usage_ratio", "Share of the KV cache that is in use.", _ENGINE)
ENGINE_TIME_SECONDS = Metric(
    "tachoscope_engine_time_seconds_total",
    "Time of an engine by ledger state; the states add up to the wall time.",
    (*_ENGINE, "state"),
    ENGINE_STATES,
)
ENGINE_ITERATIONS = Metric(
    "tachoscope_engine_iterations_total", "Forward passes of an engine: each brings running requests one token.", _ENGINE
)
ENGINE_PROMPT_TOKENS = Metric(
    "tachoscope_engine_prompt_tokens_total", "Prompt tokens that an engine computed, cached ones excluded.", _ENGINE
)
SERVER_UP = Metric(
    "tachoscope_server_up",
    "1 if the inference server's metrics could be read at the last look, and its check, if it has one, was answered; 0 if not.",
    ("service",),
)
SERVER_START = Metric(
    "tachoscope_server_start_time_seconds", "Unix time at which the inference server's process started.", ("service",)
)

SERVING_METRICS = (
    REQUESTS,
    REQUESTS_JOINT,
    REQUEST_SECONDS,
    FIRST_TOKEN_SECONDS,
    INTER_TOKEN_SECONDS,
    QUEUE_SECONDS,
    REQUEST_TIME_SECONDS,
    REQUEST_TOKENS,
    REQUESTS_RUNNING,
    REQUESTS_WAITING,
    REQUEST_PREEMPTIONS,
    KV_CACHE_USAGE,
    ENGINE_TIME_SECONDS,
    ENGINE_ITERATIONS,
    ENGINE_PROMPT_TOKENS,
    SERVER_UP,
    SERVER_START,
)
