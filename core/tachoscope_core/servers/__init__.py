"""The makes of inference servers that are understood: one file each, which maps their metrics onto ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tachoscope_core.servers.snapshot import COUNTERS, GAUGES, HISTOGRAMS

OWN = "tachoscope"
"""The catalogue of our own names, which no make of server has."""
SERVERS = ("triton", "vllm", "sglang", "tgi", "tachoscope", "otel")
"""In the order in which a page is tried: Triton serves vLLM's names for its vLLM backend, and any may serve OpenTelemetry's."""
SIGNALS = (*GAUGES, *COUNTERS, *HISTOGRAMS)


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a signal is found.

    Attributes:
        metric: its name, or names of several versions of which the first that is there counts. Of a histogram without `_bucket`.
        scale: what a value is multiplied with to be in our unit. sum, count: counters that stand for a histogram without buckets.
        only: label values that a sample must have, those of `count` excepted; an empty one: the label is absent or empty.
        otherwise: read where this is not there.
    """

    metric: str | list[str] = ""
    scale: float = 1.0
    sum: str = ""
    count: str = ""
    only: dict[str, str] = {}
    otherwise: Signal | None = None

    @property
    def names(self) -> list[str]:
        """Its names, the first that is there counts."""
        return [self.metric] if isinstance(self.metric, str) else self.metric

    def metrics(self) -> frozenset[str]:
        """Return the names of all metrics that it may be read from."""
        others = self.otherwise.metrics() if self.otherwise else frozenset()
        return frozenset({*self.names, self.sum, self.count} - {""}) | others


class OutcomeCounter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A counter of requests that ended: told apart by a label's values; those not named, or all, have `outcome`."""

    metric: str
    outcome: str = ""
    label: str = ""
    values: dict[str, str] = {}


class ConfigValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that stands in a label of an info metric, or is a gauge's value."""

    metric: str
    label: str = ""


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One make of server.

    Attributes:
        server: its slug. title: its name. prefix: of names by which its page is known.
        model_label, engine_label: labels that tell models and engines apart; empty: none does.
        signals: by our names (`SIGNALS`). outcomes: counters of requests that ended.
        started: gauge of the Unix seconds at which its process started.
    """

    server: str
    title: str
    prefix: str
    signals: dict[str, Signal]
    model_label: str = ""
    engine_label: str = ""
    outcomes: list[OutcomeCounter] = []
    kv_cache_tokens: ConfigValue | None = None
    started: str = "process_start_time_seconds"

    def metrics(self) -> frozenset[str]:
        """Return the names of all metrics that it reads; histograms without `_bucket`, `_sum` and `_count`."""
        names = {name for signal in self.signals.values() for name in signal.metrics()} | {self.started}
        names |= {outcome.metric for outcome in self.outcomes}
        return frozenset(names | ({self.kv_cache_tokens.metric} if self.kv_cache_tokens else set()))


@cache
def catalogue(server: str) -> Catalogue:
    """Return the catalogue of a make, checked; KeyError where there is none."""
    from tachoscope_core import yaml_text  # PyYAML is not among what a training job needs

    if server not in SERVERS:
        raise KeyError(server)
    data: Any = yaml_text.load(Path(__file__).with_name(f"{server}.yaml").read_bytes())
    found = msgspec.convert(data, Catalogue)
    unknown = set(found.signals) - set(SIGNALS)
    if unknown:
        raise ValueError(f"{server}.yaml: no signal {', '.join(sorted(unknown))}")
    return found
