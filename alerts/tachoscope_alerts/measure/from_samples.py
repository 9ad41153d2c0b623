"""Objectives measured from recorded samples alone, with no Prometheus: from a store, or from Parquet files.

Hours are read one after the other and only their sums are kept: memory is that of the series of `CHUNK_SECONDS`, 23 KiB each at a
sample every 15 s, however long the period is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tachoscope_alerts.measure import parquet_cache
from tachoscope_alerts.measure.evaluator import Events, bad_and_total, history_seconds, needed_metrics
from tachoscope_alerts.measure.events import Ask, Measured, add, following_each_other
from tachoscope_alerts.measure.stored_samples import Samples, Wanted, joined
from tachoscope_alerts.spec.burn_rate_windows import HOUR, Timing
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.redaction import redact
from tachoscope_core.storage.store import Store

CHUNK_SECONDS = 6 * HOUR
_TOLD = 3
"""So many errors are told in full."""

Reader = Callable[[Wanted, float, float], Samples]
"""Gives the samples of metrics from a time to another, both included, in Unix seconds."""


def store_reader(store: Store, *, cache: Path | None = None) -> Reader:
    """Return a reader of a store's samples, of all hosts. cache: a folder for what was decoded; None: nothing is kept."""

    def read(names: Wanted, start: float, end: float) -> Samples:
        hosts = store.sample_hosts(start=start, end=end)
        return joined(parquet_cache.cached(store, host, names, start=start, end=end, cache=cache) for host in hosts)

    return read


def parquet_reader(paths: Sequence[Path]) -> Reader:
    """Return a reader of files that `parquet_cache.write` wrote. They are read whole, once."""
    everything: list[Samples] = []

    def read(names: Wanted, start: float, end: float) -> Samples:
        del names, start, end
        if not everything:
            everything.append(joined(map(parquet_cache.read, paths)))
        return everything[0]

    return read


class SamplesSource:
    """An `events.EventSource` of recorded samples."""

    def __init__(self, read: Reader, name: str, *, on_progress: Callable[[float], None] = lambda _: None) -> None:
        self.name = name
        self.notes: list[str] = []
        self.instance: Literal["host", "instance"] = "host"
        self.raw_only_bad: set[str] = set()
        self._read = read
        self._on_progress = on_progress

    def measure(self, asks: Sequence[Ask], timing: Timing) -> list[Measured]:
        """Return the sums; what could not be read is told in `notes`."""
        measured: list[Measured] = [{} for _ in asks]
        spans = [(min(one.start for one in ask.windows), max(one.end for one in ask.windows)) for ask in asks]
        begin, end = min(start for start, _ in spans), max(end for _, end in spans)
        garbage, unread = 0, dict[str, None]()
        at = begin // CHUNK_SECONDS * CHUNK_SECONDS  # at multiples, so that the next report finds the same in its cache
        while at < end:
            following = at + CHUNK_SECONDS
            here = [number for number, (first, last) in enumerate(spans) if first < following and last > at]
            samples = self._read_for([asks[number].slo for number in here], at, following, timing)
            garbage, unread = garbage + samples.garbage, unread | dict.fromkeys(samples.unread)
            for number in here:
                first, last = spans[number]
                part = max(first, at), min(last, following)
                add(bad_and_total(asks[number].slo, samples.by_metric, *part, timing), asks[number], measured[number])
            at = following
            self._on_progress(min((at - begin) / (end - begin), 1.0))
        self.notes = _notes(garbage, list(unread))
        return measured

    def moments(self, slo: Slo, start: float, end: float, timing: Timing) -> Events:
        """Return the events at each evaluation after `start` up to `end`; what could not be read is told in `notes`."""
        parts, garbage, unread = list[Events](), 0, dict[str, None]()
        at = start // CHUNK_SECONDS * CHUNK_SECONDS
        while at < end:
            following = at + CHUNK_SECONDS
            samples = self._read_for([slo], at, following, timing)
            garbage, unread = garbage + samples.garbage, unread | dict.fromkeys(samples.unread)
            parts.append(bad_and_total(slo, samples.by_metric, max(start, at), min(end, following), timing))
            at = following
            self._on_progress(min((at - start) / (end - start), 1.0))
        self.notes = _notes(garbage, list(unread))
        return following_each_other(parts)

    def _read_for(self, slos: Sequence[Slo], start: float, end: float, timing: Timing) -> Samples:
        history = max(history_seconds(slo, timing) for slo in slos)
        return self._read(needed_metrics(slos), start - history, end)


def of_store(url: str, *, cache: Path | None = None, on_progress: Callable[[float], None] = lambda _: None) -> SamplesSource:
    """Return the source of a store's samples.

    Args:
        cache: where decoded samples are kept, such as `parquet.folder()`; None: nothing is kept.

    Raises:
        TachoscopeError: there is no such store.
    """
    if cache is not None:
        parquet_cache.prune(cache)
    return SamplesSource(store_reader(Store(url), cache=cache), redact(url), on_progress=on_progress)


def _notes(garbage: int, unread: Sequence[str]) -> list[str]:
    found = [f"{garbage} lines or points make no sense, or are older than the one before"] if garbage else []
    found += unread[:_TOLD]
    return found + ([f"and {len(unread) - _TOLD} more objects that could not be read"] if len(unread) > _TOLD else [])
