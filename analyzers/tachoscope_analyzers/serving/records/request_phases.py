"""Where the time of single requests went: from the fastest to the slowest, and the slowest one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

import numpy as np

from tachoscope_analyzers.serving.records.time_bins import Vector
from tachoscope_core.metrics.serving import REQUEST_STATES
from tachoscope_core.records import serving as serving_records
from tachoscope_core.records.records import RequestDone

SHARES = 40
"""Of all requests, from the fastest to the slowest."""
_ORDER = ("cold_start", "queued", "prefill", "decode", "preempted", "unexplained")
"""As a request goes through them: see `from_records`."""


@dataclass(frozen=True, slots=True)
class BySlowness:
    """Requests that were worked on, in shares of equal size, the fastest first; a few requests are a share each.

    Attributes:
        edges: of the shares, 0 to 1, shape (N + 1,). requests: in each. seconds: mean of a request by state, shape (N,) each.
        wall: mean of the whole.
    """

    edges: Vector
    requests: Vector
    seconds: dict[str, Vector]
    wall: Vector


def by_slowness(requests: Sequence[RequestDone]) -> BySlowness | None:
    """Return where the time of fast and of slow requests went; None: there are none that were worked on."""
    worked = [row for row in requests if serving_records.was_worked_on(row)]
    if not worked:
        return None
    wall = np.array([row.wall_seconds for row in worked])
    order = np.argsort(wall, kind="stable")
    edges = np.unique(np.linspace(0, len(worked), min(SHARES, len(worked)) + 1).astype(np.int64))
    counts = np.diff(edges).astype(np.float64)
    parts = [serving_records.request_states(row) for row in worked]

    def means(values: Vector) -> Vector:
        return np.asarray(np.add.reduceat(values[order], edges[:-1]) / counts, dtype=np.float64)

    seconds = {state: means(np.array([part[state] for part in parts])) for state in REQUEST_STATES}
    return BySlowness(edges / len(worked), counts, {state: seconds[state] for state in _ORDER if seconds[state].any()}, means(wall))


def slowest(requests: Sequence[RequestDone], most: int) -> list[RequestDone]:
    """Return the requests that took longest, the slowest first."""
    return nlargest(most, requests, key=lambda row: row.wall_seconds)


def in_order(request: RequestDone) -> list[tuple[str, float]]:
    """Return the states of a request with the seconds that it was in each, in the order in which it goes through them."""
    states = serving_records.request_states(request)
    return [(state, states[state]) for state in _ORDER if states[state] > 0.0]
