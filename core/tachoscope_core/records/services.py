"""What an inference service records: its processes, requests and the windows of its engines."""

from __future__ import annotations

from typing import Literal

from tachoscope_core.records.base import Amount, Count, Name, Record, Seconds, Text, UnixSeconds


class ServiceStarted(Record, frozen=True, kw_only=True, tag="ServiceStarted"):
    """A process that serves requests began to record: a server, an engine's worker, or a client. `job` is the service's name.

    Attributes:
        role: whether it answers requests (`server`), works on them (`engine`), or sends them (`client`).
        process_time: Unix seconds at which the operating system started the process; 0: not known.
        model, version: what it serves, as far as it is known by then.
    """

    pid: Count
    role: Literal["server", "engine", "client"] = "server"
    process_time: UnixSeconds = 0.0
    model: Text = ""
    version: Text = ""
    device: Name = "cpu"
    device_name: Name = ""
    gpu_uuid: Name = ""
    pod_uid: Name = ""


class RequestDone(Record, frozen=True, kw_only=True, tag="RequestDone"):
    """One inference request, written when it ended, at `time`; it arrived `wall_seconds` before.

    Attributes:
        request: id of the request, made by who recorded it.
        phase_seconds: by ledger state (`queued`, `prefill`, `decode`, `preempted`, `cold_start`); what they lack of `wall_seconds`
            is unexplained. Empty where nobody said in which state the request was.
        outcome: one of `tachoscope_core.metrics.serving.OUTCOMES`. status: of the HTTP answer; 0: there was none.
        first_token_seconds: from arrival to the first token (TTFT); None: there was none, or it was not seen.
        inter_token_seconds: sum of the times from one token to the next; inter_token_count: how many these are;
            inter_token_max_seconds: the longest. inter_token_buckets: how many are in each bucket of
            `serving_metrics.INTER_TOKEN_BUCKETS`, not cumulative, the last for above all bounds; zeros at the end are left out.
        preemptions: how often it was put back in the queue.
        side: who saw it so: the server, or the client that sent it.
    """

    request: Name
    wall_seconds: Seconds
    phase_seconds: dict[Name, Seconds]
    outcome: Name
    status: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    model: Text = ""
    version: Text = ""
    first_token_seconds: Seconds | None = None
    inter_token_seconds: Seconds = 0.0
    inter_token_count: Count = 0
    inter_token_max_seconds: Seconds = 0.0
    inter_token_buckets: list[Count] = []
    preemptions: Count = 0
    side: Literal["server", "client"] = "server"


class EngineWindow(Record, frozen=True, kw_only=True, tag="EngineWindow"):
    """What an engine did since its last such record, a second or so; written by the process that it runs in.

    Attributes:
        engine: its name within the process. window_seconds: length of the window, which ends at `monotonic_ns`.
        capacity: most requests that it works on at once; 0: not known.
        state_seconds: by `serving_metrics.ENGINE_STATES`; they sum to `window_seconds`.
        iterations: forward passes. prompt_tokens, generation_tokens: that they computed.
        iteration_seconds: what they took together.
        running_mean, waiting_mean: requests, over the window; None: not said. kv_cache_usage_ratio: at its end; None: not said.
        preemptions: requests put back in the queue.
    """

    engine: Name = "0"
    model: Text = ""
    capacity: Count = 0
    window_seconds: Seconds
    state_seconds: dict[Name, Seconds]
    iterations: Count = 0
    iteration_seconds: Seconds = 0.0
    prompt_tokens: Count = 0
    generation_tokens: Count = 0
    running_mean: Amount | None = None
    waiting_mean: Amount | None = None
    kv_cache_usage_ratio: Amount | None = None
    preemptions: Count = 0


class ServiceEnded(Record, frozen=True, kw_only=True, tag="ServiceEnded"):
    """A process that serves requests ended in order. `in_flight`: requests that it did not finish."""

    in_flight: Count = 0
    dropped_total: Count = 0
