"""Events are marked from when to when they were true."""

from __future__ import annotations

from grafana_preview.annotations import stretches


def test_times_that_follow_each_other_are_one_stretch() -> None:
    assert stretches([60.0, 120.0, 180.0, 600.0, 660.0], 60.0) == [(60.0, 180.0), (600.0, 660.0)]
    assert stretches([60.0, 180.0], 60.0) == [(60.0, 60.0), (180.0, 180.0)]
    assert stretches([], 60.0) == []
