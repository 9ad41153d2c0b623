"""Where the time of single requests went."""

from __future__ import annotations

import numpy as np
import pytest

from serving_making import Server
from tachoscope_analyzers.serving.records.request_phases import SHARES, by_slowness, in_order, slowest
from tachoscope_core.records.records import RequestDone


def requests_of(server: Server) -> list[RequestDone]:
    return [row for row in server.rows if isinstance(row, RequestDone)]


def test_slow_requests_stand_at_the_end_with_what_they_waited_for() -> None:
    server = Server()
    for number in range(400):
        server.request(float(number), queued=0.001 * number, prefill=0.1, gaps=(0.05,) * 4)

    found = by_slowness(requests_of(server))

    assert found is not None
    assert len(found.wall) == SHARES and found.edges[-1] == 1.0
    assert found.requests.sum() == 400
    assert np.all(np.diff(found.wall) >= 0)
    assert found.seconds["queued"][-1] == pytest.approx(0.3945)
    assert found.seconds["decode"] == pytest.approx(np.full(SHARES, 0.2))
    assert sum(found.seconds.values()) == pytest.approx(found.wall)


def test_few_requests_are_a_share_each_and_refused_ones_are_in_none() -> None:
    server = Server()
    server.request(0.0)
    server.request(1.0, rest=2.0)
    server.refuse(2.0)

    found = by_slowness(requests_of(server))

    assert found is not None
    assert list(found.requests) == [1, 1]
    assert found.seconds["unexplained"][1] == pytest.approx(2.0)
    refused = Server()
    refused.refuse(0.0)
    assert by_slowness(requests_of(refused)) is None


def test_the_slowest_come_first_and_their_states_in_the_order_of_time() -> None:
    server = Server()
    for seconds in (1.0, 3.0, 2.0):
        server.request(0.0, queued=seconds, gaps=(0.1,), rest=0.5)

    first, second = slowest(requests_of(server), 2)

    assert (first.phase_seconds["queued"], second.phase_seconds["queued"]) == (3.0, 2.0)
    assert [state for state, _ in in_order(first)] == ["queued", "prefill", "decode", "unexplained"]
    assert sum(spent for _, spent in in_order(first)) == pytest.approx(first.wall_seconds)
