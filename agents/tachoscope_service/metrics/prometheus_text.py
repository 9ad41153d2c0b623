"""Families as Prometheus's text, rendered at most once a tick, when somebody asks.

What prometheus-client renders, to the byte (a test holds the two together), in a fifth of its time: of 1,500 series it takes 8 ms,
and 14 ms as a scrape finds it, with nothing of it left in the processor's caches; see docs/develop/measurements.md. The agent's own
process is left to its ProcessCollector.
"""

from __future__ import annotations

import gzip
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE_LATEST
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.utils import floatToGoString

from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.family import Family, Histogram, Labels

_number: Callable[[float], str] = floatToGoString
_SPARE_NAMES = 500
_names: dict[tuple[str, Labels], str] = {}
"""Names with labels as they were made the first time, of the series of the last page, and of some that ended since."""


def render(families: Sequence[Family]) -> bytes:
    """Return families in the text format, version 0.0.4."""
    lines = list(itertools.chain.from_iterable(map(_lines, families)))
    if len(_names) > len(lines) + _SPARE_NAMES:  # jobs come and go, and the agent stays
        _names.clear()
    return "".join(lines).encode()


def _lines(family: Family) -> Iterator[str]:
    metric = family.metric
    yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n"
    for labels, value in family.points:
        if isinstance(value, Histogram):
            yield from _histogram(metric, labels, value)
        else:
            yield f"{_name(metric, labels)} {_number(value)}\n"


def _histogram(metric: Metric, labels: Labels, value: Histogram) -> Iterator[str]:
    total, bounds = 0, metric.buckets if value.bounds is None else value.bounds
    for bound, count in zip((*map(str, bounds), "+Inf"), value.counts, strict=True):
        total += count
        yield f"{_name(metric, labels, '_bucket', bound)} {_number(total)}\n"
    yield f"{_name(metric, labels, '_count')} {_number(total)}\n"
    yield f"{_name(metric, labels, '_sum')} {_number(value.sum)}\n"


def _name(metric: Metric, labels: Labels, suffix: str = "", bound: str = "") -> str:
    key = (metric.name + suffix, (*labels, bound))
    name = _names.get(key)
    if name is None:
        pairs = list(zip(metric.labels, labels, strict=True))
        if metric.namespaced and not labels[-1]:
            del pairs[-1]
        pairs += [("le", bound)] if bound else []
        text = ",".join(f'{label}="{_escaped(value)}"' for label, value in sorted(pairs))
        name = _names[key] = metric.name + suffix + (f"{{{text}}}" if text else "")
    return name


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Exposition:
    """The page of all metrics.

    Args:
        families: gives what is to be shown. tick: gives a value that changes with each tick; within one, the page is rendered once.
    """

    def __init__(self, families: Callable[[], Sequence[Family]], tick: Callable[[], object], *, proc: str = "/proc") -> None:
        self._families = families
        self._tick = tick
        self._rendered_at: object = None
        self._page = self._gzipped = b""
        self._lock = threading.Lock()
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process, proc=proc)

    def page(self, *, gzipped: bool = False) -> bytes:
        """Return the page, whose content type is `CONTENT_TYPE_LATEST`."""
        tick = self._tick()
        with self._lock:
            if tick != self._rendered_at:
                self._page = render(self._families()) + generate_latest(self._process)
                self._gzipped, self._rendered_at = b"", tick
            if gzipped and not self._gzipped:
                self._gzipped = gzip.compress(self._page, compresslevel=1)
            return self._gzipped if gzipped else self._page
