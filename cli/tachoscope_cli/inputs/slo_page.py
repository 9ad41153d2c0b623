"""The buckets that a page of metrics has: those on it, and those that the node agent makes of an inference server's."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tachoscope_cli.inputs.live_server import page_url
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.http_client import HttpError
from tachoscope_core.servers import metrics_page
from tachoscope_node.services import scraped_metrics as server_families
from tachoscope_service.common.http_get import get
from tachoscope_service.metrics.family import Histogram

_PATIENCE_SECONDS = 10.0
_MOST_BYTES = 32 << 20

Bucket = tuple[str, Mapping[str, str]]
"""Name of the histogram, and the labels of the bucket."""


def buckets(place: str, histograms: Iterable[str]) -> list[Bucket]:
    """Return the buckets of histograms.

    Args:
        place: URL of a page, with or without `/metrics`, or a file with one. histograms: names without `_bucket`.

    Raises:
        TachoscopeError: there is no page, it is not in Prometheus's text format, or it has none of the histograms.
    """
    text = _read(place)
    rows = metrics_page.samples(text, histograms)
    found = [(row.name.removesuffix("_bucket"), row.labels) for row in rows if row.name.endswith("_bucket") and "le" in row.labels]
    found += _of_the_agent(text)
    if not found:
        raise TachoscopeError(
            f"{place} has no histogram that an objective uses",
            fix="give the metrics page of an inference server, a gateway, a job or a node agent",
        )
    return found


def _of_the_agent(text: str) -> Iterator[Bucket]:
    known = metrics_page.server_of(text)
    if known is None:
        return
    for metric, (values, point) in server_families.points("", metrics_page.read(text, time.time(), server=known), {}):
        if isinstance(point, Histogram):
            labels = dict(zip(metric.labels, values, strict=False))
            for bound in (*(metric.buckets if point.bounds is None else point.bounds), float("inf")):
                yield metric.name, labels | {"le": str(bound)}


def _read(place: str) -> str:
    try:
        if "://" not in place:
            return Path(place).read_text(errors="replace")
        return get(page_url(place), seconds=_PATIENCE_SECONDS, most_bytes=_MOST_BYTES).decode(errors="replace")
    except HttpError as error:
        raise TachoscopeError(f"{place} could not be read: {error}", fix="is this the address of a metrics page?") from None
    except OSError as error:
        raise TachoscopeError(f"{place} could not be read: {error.strerror}", fix="give a file, or a URL with http://") from None
