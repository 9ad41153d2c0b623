"""The drill's receiver keeps what Alertmanager posts, with its times, and refuses what is not a notification."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tachoscope_cli.drill.webhook_receiver import Receiver

ALERT = {
    "status": "resolved",
    "labels": {"alertname": "A"},
    "annotations": {"summary": "1 is lost"},
    "startsAt": "2026-03-01T00:00:00.5Z",
    "endsAt": "2026-03-01T01:00:01.123456789+01:00",
}


def post(url: str, body: bytes) -> int:
    return int(urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=60).status)


def test_each_alert_of_a_notification_is_kept_with_its_receiver_and_its_times() -> None:
    with Receiver() as receiver:
        assert post(receiver.url, json.dumps({"receiver": "storage-page", "alerts": [ALERT, ALERT]}).encode()) == 200
        first, second = receiver.arrivals()

    assert (first.receiver, first.name, first.status) == ("storage-page", "A", "resolved")
    assert first.ends_at - first.starts_at == pytest.approx(0.623456, abs=1e-5)
    assert first.time == second.time


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"receiver": "r", "alerts": [{}]}'])
def test_what_is_no_notification_is_refused_and_the_next_one_kept(body: bytes) -> None:
    with Receiver() as receiver:
        with pytest.raises(urllib.error.HTTPError, match="400"):
            post(receiver.url, body)
        assert post(receiver.url, json.dumps({"receiver": "r", "alerts": [ALERT]}).encode()) == 200
        assert len(receiver.arrivals()) == 1
