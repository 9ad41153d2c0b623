"""What an inference server says of itself at one moment, in our terms, whatever its make.

A server's page is turned into this by a catalogue (`tachoscope_core.servers`): readers of live pages, of recordings and of
Prometheus all make it, and the analyzers know nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
COUNTERS = (
    "preemptions_total",
    "prompt_tokens_total",
    "cached_prompt_tokens_total",
    "generation_tokens_total",
    "read_bytes_total",
    "flops_total",
)
"""`cached_prompt_tokens_total`: those of `prompt_tokens_total` that were found in the prefix cache. The last two: of one device."""
HISTOGRAMS = (
    "first_token_seconds",
    "inter_token_seconds",
    "output_token_seconds",
    "request_seconds",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
    "iteration_tokens",
    "iteration_seconds",
    "prompt_tokens",
    "generation_tokens",
)
"""`output_token_seconds`: mean over a request of the time from one token to the next (TPOT); `inter_token_seconds`: each of these
times (ITL); `iteration_tokens`: tokens, prompt and output, in one forward pass; `iteration_seconds`: what it took."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """A cumulative histogram. `counts` has one more than `bounds`, the last is of all observations; without bounds only that."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float

    @property
    def count(self) -> float:
        """All observations: the count of the last, unbounded bucket."""
        return self.counts[-1]


def together(one: Buckets, other: Buckets) -> Buckets:
    """Return two histograms as one; of different bounds only those count that both have."""
    bounds = tuple(bound for bound in one.bounds if bound in other.bounds)
    counts = [(*(part.counts[part.bounds.index(bound)] for bound in bounds), part.counts[-1]) for part in (one, other)]
    return Buckets(bounds, tuple(a + b for a, b in zip(*counts, strict=True)), one.sum + other.sum)


@dataclass(frozen=True, slots=True)
class EngineState:
    """One engine and model: values by the names above; what the server does not say is absent.

    Attributes:
        outcomes: requests that ended, by outcome, as far as the server counts them.
        kv_cache_tokens: tokens that the KV cache holds; 0: not known.
    """

    model: str
    engine: str
    gauges: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, Buckets] = field(default_factory=dict)
    outcomes: dict[str, float] = field(default_factory=dict)
    kv_cache_tokens: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A look at a server.

    Attributes:
        time: Unix seconds. seconds: how long the look took.
        server: the catalogue that the page was read with. started: Unix seconds at which the process started; 0: not said.
        fault: why there is no page, such as `connection refused`; then there are no engines.
    """

    time: float
    engines: tuple[EngineState, ...] = ()
    server: str = ""
    started: float = 0.0
    seconds: float = 0.0
    fault: str = ""


def size_bytes(look: Snapshot) -> int:
    """Return about how many bytes a look takes in memory: a bound and its count are 64, an engine's own tables are 2,000."""
    return 1000 + len(look.fault) + sum(map(_engine_bytes, look.engines))


def _engine_bytes(state: EngineState) -> int:
    values = (
        len(state.gauges) + len(state.counters) + len(state.outcomes) + sum(len(one.counts) for one in state.histograms.values())
    )
    return 2000 + 4 * (len(state.model) + len(state.engine)) + 64 * values
