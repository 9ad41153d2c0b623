"""Reads the metrics page of an inference server into a snapshot. It is foreign input: odd lines are errors, odd values left out."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.serving import OUTCOMES
from tachoscope_core.servers import SERVERS, Catalogue, Signal, catalogue
from tachoscope_core.servers.snapshot import GAUGES, HISTOGRAMS, Buckets, EngineState, Snapshot

MAX_ENGINES = 256
"""A page that reports more engines and models is refused: each of them is series and memory."""
MAX_SERIES = 30_000
"""A page with more series that are read is refused: a server of vLLM 0.32 has about 240 for each engine."""
MOST = 1e30
"""More than any counter, size or time can come to: a device of 10 petaflops has done so many operations after 3 million years."""
PARTS = ("", "_bucket", "_sum", "_count")
"""What the names of a metric's samples end in."""
# https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format, and OpenMetrics' exemplar after a `#`
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PAIR = r'[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"(?:[^"\\]|\\.)*"'
_REST = re.compile(rf"[ \t]*(?:\{{[ \t]*((?:{_PAIR}[ \t]*(?:,[ \t]*|(?=\}})))*)\}})?[ \t]*(\S+)(?:[ \t]+[0-9.e+-]+)?[ \t]*(?:#.*)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_LINE = re.compile(r"[^\n]+")


class Sample(NamedTuple):
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


def lines(text: str) -> Iterator[str]:
    """Yield the lines that are not empty, one at a time: a list of them can be ten times as large as the page."""
    return (match[0] for match in _LINE.finditer(text))


def samples(text: str, wanted: Iterable[str]) -> list[Sample]:
    """Return the samples of the named metrics; histograms are named without `_bucket`, `_sum` and `_count`.

    Values that are not plausible are left out, and so is a series' second sample.

    Raises:
        TachoscopeError: the page is not in Prometheus's text format, and the message quotes the line; or it has too many series.
    """
    names = {spelt + part: name + part for name in wanted for spelt in spellings(name) for part in PARTS}
    found: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
    for line in lines(text):
        start = _NAME.match(line)
        if start is None or start[0] not in names:
            continue
        sample = _sample(names[start[0]], line[start.end() :].rstrip("\r"))
        if plausible(sample.value):
            found.setdefault((sample.name, frozenset(sample.labels.items())), sample)
        if len(found) > MAX_SERIES:
            raise TachoscopeError(f"it has more than {MAX_SERIES} series", fix="name the page of one server, not of a fleet")
    return list(found.values())


def plausible(value: float) -> bool:
    """Return whether a counter, size or time can have the value: not negative, NaN, infinite or beyond MOST."""
    return 0.0 <= value <= MOST


def spellings(name: str) -> tuple[str, ...]:
    """Return how a name may be written: prometheus-client 0.26 has no colons in its OpenMetrics form."""
    return tuple(dict.fromkeys((name, name.replace(":", "_"))))


def _sample(name: str, rest: str) -> Sample:
    parts = _REST.fullmatch(rest)
    try:
        if parts is not None:
            labels = {label: _ESCAPE.sub(_unescaped, value) for label, value in _LABEL.findall(parts[1] or "")}
            return Sample(name, labels, float(parts[2]))
    except ValueError:
        pass
    raise TachoscopeError(f"not a line in Prometheus's text format: {(name + rest)[:120]!r}")


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def server_of(text: str) -> Catalogue | None:
    """Return the catalogue of the make of server whose page it is: the first with a metric on it; None: of none."""
    known = [(catalogue(server), spellings(catalogue(server).prefix)) for server in SERVERS]
    there = {one.server for line in lines(text) for one, prefixes in known if line.startswith(prefixes)}
    return next((one for one, _ in known if one.server in there), None)


def read(text: str, time: float, *, server: Catalogue | None = None) -> Snapshot:
    """Return what a page says.

    Args:
        time: Unix seconds at which it was asked for. server: whose page it is; default: it is looked at.

    Raises:
        TachoscopeError: it is not a page of a server that is understood, or not in Prometheus's text format.
    """
    known = server or server_of(text)
    if known is None:
        titles = ", ".join(catalogue(name).title for name in SERVERS)
        raise TachoscopeError("it is not the metrics page of a supported inference server", fix=f"supported: {titles}")
    return snapshot(samples(text, known.metrics()), time, known)


def snapshot(rows: Iterable[Sample], time: float, known: Catalogue) -> Snapshot:
    """Return what the samples of one moment say."""
    rows = list(rows)
    started = max((row.value for row in rows if row.name == known.started), default=0.0)
    return Snapshot(time=time, engines=tuple(engines(rows, known)), server=known.server, started=started)


def engines(rows: Iterable[Sample], known: Catalogue) -> list[EngineState]:
    """Return the state of each engine and model that the samples report.

    Raises:
        TachoscopeError: there are more than MAX_ENGINES.
    """
    by_engine: dict[tuple[str, str], dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.name != known.started:
            key = row.labels.get(known.model_label, ""), row.labels.get(known.engine_label, "")
            by_engine[key][row.name].append(row)
    if len(by_engine) > MAX_ENGINES:
        raise TachoscopeError(f"it reports {len(by_engine)} engines and models, more than {MAX_ENGINES}")
    _share_what_names_no_engine(by_engine)
    return [_engine(*key, parts, known) for key, parts in sorted(by_engine.items())]


def _share_what_names_no_engine(by_engine: dict[tuple[str, str], dict[str, list[Sample]]]) -> None:
    """Move samples that lack the label of model or engine to one that they can be of.

    Of several engines of the one model that they can be of the first has them: what counts is that no sum lacks them.
    """
    for key in sorted(by_engine):
        fitting = [
            other
            for other in sorted(by_engine)
            if other != key and all(mine in {"", theirs} for mine, theirs in zip(key, other, strict=True))
        ]
        if "" in key and fitting and len({model for model, _ in fitting}) == 1:
            for name, rows in by_engine.pop(key).items():
                by_engine[fitting[0]][name] += rows


def _engine(model: str, engine: str, parts: Mapping[str, list[Sample]], known: Catalogue) -> EngineState:
    gauges: dict[str, float] = {}
    counters: dict[str, float] = {}
    histograms: dict[str, Buckets] = {}
    for name, signal in known.signals.items():
        if name in HISTOGRAMS:
            if (buckets := _histogram(parts, signal)) is not None:
                histograms[name] = buckets
        elif (value := _value(parts, signal)) is not None:
            (gauges if name in GAUGES else counters)[name] = value
    return EngineState(
        model=model,
        engine=engine,
        gauges=gauges,
        counters=counters,
        histograms=histograms,
        outcomes=_outcomes(parts, known),
        kv_cache_tokens=_kv_cache_tokens(parts, known),
    )


def _kept(rows: Iterable[Sample], only: Mapping[str, str]) -> list[Sample]:
    return [row for row in rows if all(row.labels.get(name, "") == value for name, value in only.items())]


def _total(parts: Mapping[str, list[Sample]], name: str, only: Mapping[str, str]) -> float | None:
    rows = _kept(parts.get(name, ()), only)
    return sum(row.value for row in rows) if rows else None


def _value(parts: Mapping[str, list[Sample]], signal: Signal) -> float | None:
    for name in signal.names:
        if (total := _total(parts, name, signal.only)) is not None:
            return total * signal.scale
    return _value(parts, signal.otherwise) if signal.otherwise else None


def _histogram(parts: Mapping[str, list[Sample]], signal: Signal) -> Buckets | None:
    if signal.sum:
        total, count = _total(parts, signal.sum, signal.only), _total(parts, signal.count, {})
        if total is not None and count is not None:
            return Buckets((), (count,), total * signal.scale)
    for name in signal.names:
        total, count = (_total(parts, f"{name}_{part}", signal.only) for part in ("sum", "count"))
        buckets = _kept(parts.get(f"{name}_bucket", ()), signal.only)
        if total is not None and (buckets or count is not None):
            return _buckets(buckets, total, count or 0.0, signal.scale)
    return _histogram(parts, signal.otherwise) if signal.otherwise else None


def _buckets(rows: Iterable[Sample], total: float, count: float, scale: float) -> Buckets:
    counts: dict[float, float] = defaultdict(float)
    for row in rows:
        counts[_bound(row.labels.get("le", ""))] += row.value
    counts[math.inf] = max(counts[math.inf], count)  # a bucket +Inf may be missing
    bounds = sorted(counts)
    # A page may be written while requests end: then a bucket can be ahead of the next.
    cumulative = accumulate((counts[bound] for bound in bounds), max)
    return Buckets(tuple(bound * scale for bound in bounds[:-1]), tuple(cumulative), total * scale)


def _bound(text: str) -> float:
    try:
        bound = float(text)
    except ValueError:
        bound = math.nan
    if not bound > -math.inf:
        raise TachoscopeError(f"a bucket's bound {text[:40]!r} is not a number")
    return bound


def _outcomes(parts: Mapping[str, list[Sample]], known: Catalogue) -> dict[str, float]:
    found: dict[str, float] = {}
    for counter in known.outcomes:
        for row in parts.get(counter.metric, ()):
            outcome = counter.values.get(row.labels.get(counter.label, ""), counter.outcome)
            if outcome in OUTCOMES:
                found[outcome] = found.get(outcome, 0.0) + row.value
    return found


def _kv_cache_tokens(parts: Mapping[str, list[Sample]], known: Catalogue) -> float:
    fact = known.kv_cache_tokens
    for row in parts.get(fact.metric, ()) if fact else ():
        try:
            tokens = float(row.labels[fact.label]) if fact and fact.label else row.value
        except (KeyError, ValueError):
            continue
        if plausible(tokens):
            return tokens
    return 0.0
