"""When an alert of a drill has to fire and end: computed from the windows, and never sooner than they allow."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tachoscope_alerts.compile.detection_time import detection
from tachoscope_alerts.spec.burn_rate_windows import Timing, tiers
from tachoscope_cli.drill import expected_times as drill_times
from tachoscope_cli.drill import run as drill_run

TIMING = Timing(interval=0.5, scrape=1.0, scale=1 / 100)
SPECS = drill_run.shipped()
AVAILABILITY = SPECS.source_of("InferenceAvailabilityBurn")
AGENT_DOWN = SPECS.source_of("AgentDown")


def times(bad_ratio: float, timing: Timing = TIMING) -> drill_times.Times:
    return drill_times.of_objective(AVAILABILITY, "page", [tiers(AVAILABILITY)[0]], timing, bad_ratio=bad_ratio, seen=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad_ratio", [0.02, 0.1, 1.0])
def test_the_time_of_the_windows_is_within_what_is_allowed(bad_ratio: float) -> None:
    found = times(bad_ratio)

    assert found.earliest < detection(AVAILABILITY, "page", bad_ratio, TIMING).fires < found.latest  # type: ignore[arg-type]


def test_the_worse_the_fault_the_sooner_its_alert_and_the_longer_the_windows_the_later() -> None:
    latest = [times(bad_ratio).latest for bad_ratio in (0.02, 0.05, 0.2, 1.0)]
    longer = [times(0.05, replace(TIMING, scale=scale)) for scale in (0.01, 0.02, 0.1)]

    assert latest == sorted(latest, reverse=True)
    assert all(one.latest < two.latest and one.clears < two.clears for one, two in itertools.pairwise(longer))


def test_an_event_fires_once_its_expression_has_seen_the_fault_for_long_enough() -> None:
    timing = Timing(interval=0.5, scrape=1.0, scale=0.1)
    found = drill_times.of_event(AGENT_DOWN, timing, holds=300.0, lasts=300.0, seen=0.0)  # type: ignore[arg-type]

    assert found.earliest < 30.0 < found.latest
    assert found.clears > 30.0


def test_what_is_seen_no_more_at_once_ends_sooner_than_what_is_still_in_a_window() -> None:
    over, lasting = (drill_times.of_event(AGENT_DOWN, TIMING, holds=300.0, lasts=lasts, seen=0.0) for lasts in (0.0, 3000.0))  # type: ignore[arg-type]

    assert (over.earliest, over.latest) == (lasting.earliest, lasting.latest)
    assert over.clears + 20.0 < lasting.clears
