"""When alerts fired, as a Prometheus answers it."""

from __future__ import annotations

from typing import Any

import pytest

from tachoscope_alerts.measure import alert_history as history_module
from tachoscope_alerts.measure.alert_history import history

START, END = 1_700_000_000.0, 1_700_100_000.0


def answered(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    asked: list[tuple[str, float]] = []

    def ask_over(url: str, query: str, *, start: float, end: float, step: float) -> list[dict[str, Any]]:
        asked.append((query, step))
        return rows

    monkeypatch.setattr(history_module.prometheus_query, "range_query", ask_over)
    return asked


def test_looks_that_follow_each_other_are_one_time_and_a_gap_makes_two(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [START + 100 * n for n in (3, 4, 5, 9)]
    labels = {"__name__": "ALERTS", "alertname": "Burn", "alertstate": "firing", "severity": "page", "slo": "a", "service": "chat"}
    asked = answered(monkeypatch, [{"metric": labels, "values": [[time, "1"] for time in times]}])

    found = history("http://prometheus", START, END)

    assert found.step == 100.0
    assert asked[0][0] == 'max_over_time(ALERTS{alertstate="firing"}[99999ms])'
    assert [(one.start - START, one.end - START) for one in found.fired] == [(800.0, 900.0), (200.0, 500.0)]
    assert {(one.alert, one.severity, one.slo, one.still) for one in found.fired} == {("Burn", "page", "a", False)}
    assert found.fired[0].of == {"service": "chat"}


def test_what_fires_at_the_end_still_fires_and_a_short_window_has_the_steps_of_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(monkeypatch, [{"metric": {"alertname": "Down"}, "values": [[START + 570, "1"], [START + 600, "1"]]}])

    found = history("http://prometheus", START, START + 600)

    assert found.step == 30.0
    assert [one.still for one in found.fired] == [True]
