"""What happened on a server between one look and the next: the one form in which all classes of inference are judged.

Counters that fall say that the server was restarted; what they held before is then gone, and the new value counts from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tachoscope_core.servers import OWN
from tachoscope_core.servers.snapshot import COUNTERS, GAUGES, HISTOGRAMS, Buckets, EngineState, Snapshot
from tachoscope_core.servers.snapshot import together as together

Vector = npt.NDArray[np.float64]

LOADING = "the engine was loading"
"""The fault of a look at which a service's own records say so: no restart of a process is needed to know that it was a start."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """K intervals of a server, over all of its engines and models. What the server does not say is absent.

    Attributes:
        server: its make. start, end: Unix seconds of the first and last look. seconds: length of each interval, shape (K,).
        answered: whether the looks at both ends of an interval were answered, shape (K,).
        engines: how many there are. models: their names.
        gauges: mean of the two looks at an interval's ends, summed over engines, but of ratios their mean, shape (K,).
        counters, counts, sums: increase in each interval, shape (K,); the last two are those of a histogram.
        totals: increase of each histogram over all intervals. outcomes: requests that ended.
        started: Unix seconds at which the server's process started, at each look that was answered; 0: not said.
        faults: looks that were not answered, with the reason.
        request_states, engine_states: seconds in each interval by ledger state, where records tell them, shape (K,) each.
    """

    server: str
    start: float
    end: float
    seconds: Vector
    answered: npt.NDArray[np.bool_]
    engines: int
    models: tuple[str, ...]
    gauges: dict[str, Vector]
    counters: dict[str, Vector]
    counts: dict[str, Vector]
    sums: dict[str, Vector]
    totals: dict[str, Buckets]
    outcomes: dict[str, float]
    started: list[tuple[float, float]] = field(default_factory=list)
    faults: list[tuple[float, str]] = field(default_factory=list)
    kv_cache_tokens: float = 0.0
    request_states: dict[str, Vector] = field(default_factory=dict)
    engine_states: dict[str, Vector] = field(default_factory=dict)

    @property
    def wall_seconds(self) -> float:
        """From the first look to the last."""
        return self.end - self.start

    def total(self, name: str) -> float:
        """Return the increase of a counter, or of a histogram's sum, over all intervals; 0 where it is absent."""
        rows = self.counters.get(name, self.sums.get(name))
        return 0.0 if rows is None else float(rows.sum())

    def count(self, name: str) -> float:
        """Return how many observations a histogram gained; 0 where it is absent."""
        return float(self.counts[name].sum()) if name in self.counts else 0.0


def traffic(looks: Sequence[Snapshot]) -> Traffic:
    """Return what happened between the looks, which are in the order of time.

    Raises:
        ValueError: fewer than two looks, or none that was answered.
    """
    good = [look for look in looks if not look.fault]
    if len(looks) < 2 or not good:
        raise ValueError("at least two readings, one of them answered")
    last: Snapshot | None = None
    rows: list[tuple[float, bool, dict[str, dict[str, float]]]] = []
    totals: dict[str, Buckets] = {}
    outcomes: dict[str, float] = {}
    for before, after in pairwise(looks):
        if not before.fault:
            last = before
        parts: dict[str, dict[str, float]] = {"gauges": {}, "counters": {}, "counts": {}, "sums": {}}
        if not after.fault:
            _add(parts, totals, outcomes, last, after)
        rows.append((after.time - before.time, not before.fault and not after.fault, parts))
    states = [state for look in good for state in look.engines]
    return Traffic(
        server=good[-1].server,
        start=looks[0].time,
        end=looks[-1].time,
        seconds=np.array([seconds for seconds, _, _ in rows]),
        answered=np.array([answered for _, answered, _ in rows]),
        engines=max(1, len({state.engine for state in states})),
        models=tuple(sorted({state.model for state in states if state.model})),
        gauges=_columns(rows, "gauges", GAUGES),
        counters=_columns(rows, "counters", COUNTERS),
        counts=_columns(rows, "counts", HISTOGRAMS),
        sums=_columns(rows, "sums", HISTOGRAMS),
        totals=totals,
        outcomes=outcomes,
        started=[(look.time, look.started) for look in good],
        faults=[(look.time, look.fault) for look in looks if look.fault],
        kv_cache_tokens=max((state.kv_cache_tokens for state in states), default=0.0),
    )


def _columns(rows: Sequence[tuple[float, bool, dict[str, dict[str, float]]]], part: str, names: Sequence[str]) -> dict[str, Vector]:
    there = [name for name in names if any(name in parts[part] for _, _, parts in rows)]
    return {name: np.array([parts[part].get(name, 0.0) for _, _, parts in rows]) for name in there}


def _add(
    parts: dict[str, dict[str, float]],
    totals: dict[str, Buckets],
    outcomes: dict[str, float],
    before: Snapshot | None,
    after: Snapshot,
) -> None:
    """Add the changes between two answered samples; without a predecessor only gauges."""
    earlier = {(state.model, state.engine): state for state in before.engines} if before else {}
    anew = before is not None and is_restart(before, after)
    shares = [name for name in GAUGES if name.endswith("_ratio")]
    for state in after.engines:
        past = earlier.get((state.model, state.engine))
        restarted = past is not None and (anew or _fell(past, state))
        for name, value in state.gauges.items():
            mean = value if past is None or restarted else (value + past.gauges.get(name, value)) / 2
            parts["gauges"][name] = parts["gauges"].get(name, 0.0) + (mean / len(after.engines) if name in shares else mean)
        if before is None:
            continue
        base = EngineState(model="", engine="") if past is None or restarted else past
        for name, value in state.counters.items():
            _sum(parts["counters"], name, value - base.counters.get(name, 0.0))
        for outcome, value in state.outcomes.items():
            _sum(outcomes, outcome, value - base.outcomes.get(outcome, 0.0))
        for name, buckets in state.histograms.items():
            grown = difference(buckets, base.histograms.get(name))
            _sum(parts["counts"], name, grown.count)
            _sum(parts["sums"], name, grown.sum)
            totals[name] = together(totals[name], grown) if name in totals else grown


def _sum(values: dict[str, float], name: str, value: float) -> None:
    values[name] = values.get(name, 0.0) + max(value, 0.0)


def is_restart(before: Snapshot, after: Snapshot) -> bool:
    """Return whether the server's one process was started again between two answered looks.

    The page of a node agent reports many processes: there each engine is looked at by itself.
    """
    return after.server != OWN and 0.0 < before.started < after.started - 1.0


def _fell(before: EngineState, after: EngineState) -> bool:
    """Return whether an engine's counters decreased, as after a restart."""
    pairs = [(value, after.counters.get(name, value)) for name, value in before.counters.items()]
    pairs += [(one.count, after.histograms[name].count) for name, one in before.histograms.items() if name in after.histograms]
    return any(now < then for then, now in pairs)


def difference(after: Buckets, before: Buckets | None) -> Buckets:
    """Return what a histogram gained; all of it where there is no earlier one of the same bounds."""
    if before is None or before.bounds != after.bounds:
        return after
    counts = tuple(max(now - then, 0.0) for now, then in zip(after.counts, before.counts, strict=True))
    return Buckets(after.bounds, counts, max(after.sum - before.sum, 0.0))
