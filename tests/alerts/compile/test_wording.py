"""What a burn-rate alert says, as Prometheus fills it in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from promtool_running import faults
from sample_slos import AVAILABILITY, PLACES
from tachoscope_alerts.compile.annotations import annotations_of, filled_in
from tachoscope_alerts.compile.planted_series import PlantedStretch, of_events
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.sli_expressions import BUDGET_REMAINING, quoted
from tachoscope_alerts.spec.burn_rate_windows import Timing, duration, tiers
from tachoscope_alerts.spec.slo import Slo, with_identity

TIMING = Timing()
SLO = replace(AVAILABILITY, by=with_identity(AVAILABILITY.by), target=0.9, least_bad_events=0)
"""Its tier of six hours is the one that pages from 56 % on."""
ODD = {"cluster": "a b", "workload_namespace": "x", "service": 'chat "beta"\\2', "model": "llama & co"}


def said(slo: Slo, labels: dict[str, str], *, bad: float, left: float) -> dict[str, str]:
    _, tier = (tier for tier in tiers(slo) if tier.severity == "page")
    found = annotations_of(slo, tier, PLACES, TIMING, filled_in(slo, TIMING, labels, bad, left))
    for value in labels.values():
        found["dashboard_url"] = found["dashboard_url"].replace(f"={value}", f"={quote_plus(value)}")
    return found


def test_numbers_are_those_of_the_alert(tmp_path: Path) -> None:
    words = said(SLO, {"service": "chat", "model": "llama"}, bad=0.75, left=0.625)

    assert words["summary"] == (
        "Availability of service chat, model llama: 75% of the events in 6h were bad, 7.5 times what the objective allows; "
        "62 % of the error budget of 28d is left"
    )
    assert words["description"].endswith("The objective is 90 % over 28d; at this rate the whole budget is gone in 89.6 h.")


def test_prometheus_says_it_so_of_labels_with_any_character_and_of_the_budget_of_these_labels(tmp_path: Path) -> None:
    """The budget is given: that of the alert's own labels, and another's. Eight of the six hours' minutes were measured.

    "fresh" is a budget recorded before the outage: eight minutes with 75 % bad spend 0.15 % of it, and six hours would 6.7 %.
    """

    def test_of(name: str, left: float | None) -> dict[str, Any]:
        series = of_events(SLO, [PlantedStretch(40, 1000, 750)], ODD)
        own = ",".join(f"{label}={quoted(value)}" for label, value in {"slo": SLO.name, "area": SLO.area, **ODD}.items())
        if left is not None:
            series.append({"series": f"{BUDGET_REMAINING}{{{own}}}", "values": f"{left:g}x40"})
        series.append(
            {"series": f'{BUDGET_REMAINING}{{slo="{SLO.name}",area="inference",service="other",model="m"}}', "values": "0.1x40"}
        )
        _, tier = (tier for tier in tiers(SLO) if tier.severity == "page")
        windows = {
            "long": duration(tier.long_seconds),
            "short": duration(tier.short_seconds),
            "window": duration(tier.long_seconds),
        }
        labels = {"severity": "page", "area": SLO.area, "slo": SLO.name, "owner": SLO.owner, **windows, **ODD}
        words = said(SLO, ODD, bad=0.75, left=left or 0.0)
        if left is None:
            words["summary"] = words["summary"].replace("0 % of the error", "an unknown part of the error")
        alert = {"exp_labels": labels, "exp_annotations": words}
        asked = [{"eval_time": "8m", "alertname": SLO.alert, "exp_alerts": [alert]}]
        return {"name": name, "interval": "15s", "input_series": series, "alert_rule_test": asked}

    rules = {"groups": groups(SLO, PLACES, TIMING)[:1]}
    tests = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "30s",
        "tests": [test_of("known", 0.625), test_of("fresh", 1.0), test_of("unknown", None)],
    }

    assert faults(tmp_path, {"rules.yaml": rules}, {"words_test.yaml": tests}) == {}
