"""The SLO board: thresholds are those at which alerts fire; its numbers are those of the rules, of planted services and jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import REPOSITORY
from planted import POLICY, RULES, Answer, colors, column, made, panels, steps, written, wrong
from tachoscope_alerts.spec import files, slo_files
from tachoscope_core import yaml_text
from tachoscope_core.metrics.training import EFFECTIVE_STATES, TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.fleet import board as fleet
from tachoscope_dashboards.boards.slos import board as slos
from tachoscope_dashboards.boards.slos.expressions import WINDOWS, burn_steps
from tachoscope_dashboards.boards.slos.spenders import JOB_TIME, LOST_STATES, NEVER
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.slo_objectives import every, objective

BOARD = made(slos.board(POLICY))
PANELS, WRITTEN = panels(BOARD), written(BOARD)
SLOS = slo_files.load([files.path_of("slos")])
CHAT, SEARCH = 'service="chat",model="llama"', 'service="search",model="bert"'
CHAT_KEY, SEARCH_KEY = '{model="llama",service="chat"}', '{model="bert",service="search"}'
AVAILABILITY = "inference-availability.rules.yaml"
REQUESTS = {
    f'tachoscope_requests_total{{{CHAT},outcome="ok"}}': "0+99x400",
    f'tachoscope_requests_total{{{CHAT},outcome="timeout"}}': "0+1x400",
    f'tachoscope_requests_total{{{SEARCH},outcome="ok"}}': "0+900x400",
}
"""One in a hundred requests to chat fails, ten times what the objective allows; none to search."""


def fires_from(name: str, window: str) -> float:
    """Return the burn rate from which on the alert on a long window fires, as its generated rule says."""
    for path in RULES.glob("*.rules.yaml"):
        for group in yaml_text.load(path.read_text())["groups"]:
            for rule in group["rules"]:
                labels = rule.get("labels", {})
                if "alert" in rule and labels.get("slo") == name and labels.get("long") == window:
                    (threshold,) = re.findall(rf'window="{window}"}} > (\S+)', rule["expr"])
                    return float(threshold) / objective(name).budget
    raise AssertionError(f"no alert of {name} on {window}")


@pytest.mark.parametrize(("window", "color"), [("1h", palette.BAD), ("1d", palette.WARN), ("3d", palette.WARN)])
def test_a_burn_rate_has_a_colour_from_where_on_its_alert_fires(window: str, color: str) -> None:
    for table in ("Objectives", "Who spends $slo: services and models"):
        if (table, window) != ("Who spends $slo: services and models", "3d"):
            found = {step["color"]: step["value"] for step in column(PANELS[table], f"Burn {window}")["thresholds"]["steps"]}
            fires = fires_from("inference-availability", window)
            assert found[color] == pytest.approx(fires if color == palette.BAD else min(1.0, fires), rel=1e-3)


def test_a_budget_that_is_spent_faster_than_allowed_is_never_green() -> None:
    for window in WINDOWS:
        for days in (1.0, 7.0, 28.0):
            slos = [replace(slo, period_days=days) for slo in every()]
            green, *steps = [step.at for step in burn_steps(window, slos)]
            assert green <= 1.0
            assert steps == sorted(steps)
            assert all(at > green for at in steps)


def test_what_is_left_has_the_colours_of_the_policy() -> None:
    levels = sorted(step.remaining_below for step in POLICY.budget)
    wanted = [(None, palette.BAD), (levels[0], palette.WARN), (levels[-1], palette.OK)]

    assert [steps(PANELS[title]) for title in ("Least budget left", "Budgets", "Budget of $slo")] == [wanted] * 3


def test_the_numbers_are_those_of_the_rules_the_worst_of_all_models(tmp_path: Path) -> None:
    spenders = "Who spends $slo: services and models"
    key = '{area="inference",slo="inference-availability"}'
    of_table = {"target": 0.999, "good1h": 0.99, "burn1h": 10.0, "burn1d": 10.0, "burn3d": 10.0, "left": -9.0}
    asked = [(WRITTEN["Objectives", name], "2h", {key: value}) for name, value in of_table.items()]
    of_models = {"A": (1.0, 0.0), "B": (1 / 30, 0.0), "C": (10.0, 0.0), "D": (10.0, 0.0), "E": (-9.0, 1.0)}
    for name, (chat, search) in of_models.items():
        asked.append((WRITTEN[spenders, name], "2h", {CHAT_KEY: round(chat, 6), SEARCH_KEY: search}))
    asked += [
        (WRITTEN["Budgets overdrawn", "A"], "2h", {"{}": 1.0}),
        (WRITTEN["Least budget left", "A"], "2h", {"{}": -9.0}),
        (WRITTEN["Budgets", "A"], "2h", {'{slo="inference-availability"}': -1.0}),  # cut off, for the others' sake
        (WRITTEN["Fastest burn in an hour", "A"], "2h", {"{}": 10.0}),
        (WRITTEN["Not measured", "A"], "2h", {"{}": 0.0}),
        (WRITTEN["Events of $slo", "A"], "2h", {"{}": round(1000 / 30, 6)}),
        (WRITTEN["Events of $slo", "B"], "2h", {"{}": round(1 / 30, 6)}),
    ]

    assert wrong(tmp_path, REQUESTS, asked, rules=[AVAILABILITY], choice={"slo": "inference-availability"}) == ""


def test_no_moment_lacks_what_is_recorded_every_few_minutes_only(tmp_path: Path) -> None:
    always = [
        *(WRITTEN["Objectives", name] for name in ("left", "burn1d", "burn3d")),
        *(WRITTEN["Burn rate of $slo by window", name] for name in "ABCDE"),
        WRITTEN["Budget of $slo", "A"],
    ]
    moments = [f"{minute}m{second}s" for minute in range(60, 71) for second in (0, 10, 59)]
    asked = [(f"count({expr}) > bool 0", at, {"{}": 1.0}) for expr in always for at in moments]

    assert wrong(tmp_path, REQUESTS, asked, rules=[AVAILABILITY]) == ""


def test_alerts_are_counted_once_on_all_boards_without_the_watchdog_and_those_of_others(tmp_path: Path) -> None:
    of_fleet = written(made(fleet.board(POLICY)))
    xid = 'alertname="GpuXidError",alertstate="firing",severity="page",area="infrastructure",instance="n1"'
    common = 'alertstate="firing",area="inference",slo="inference-availability",service="chat",model="llama"'
    planted = {
        f'ALERTS{{alertname="InferenceAvailabilityBurn",severity="page",long="1h",{common}}}': "1x9",
        f'ALERTS{{alertname="InferenceAvailabilityBurn",severity="page",long="6h",{common}}}': "1x9",
        f'ALERTS{{alertname="InferenceAvailabilityBurn",severity="ticket",long="1d",{common}}}': "1x9",
        **{f'ALERTS{{{xid},gpu="{gpu}"}}': "1x9" for gpu in range(8)},
        'ALERTS{alertname="Watchdog",alertstate="firing",severity="none",area="infrastructure"}': "1x9",
        'ALERTS{alertname="KubePodCrashLooping",alertstate="firing",severity="page"}': "1x9",
    }
    burn = 'alertname="InferenceAvailabilityBurn",area="inference",model="llama",service="chat"'
    told = {f'{{{burn},severity="{severity}",slo="inference-availability"}}': 1.0 for severity in ("page", "ticket")}
    told |= {'{alertname="GpuXidError",area="infrastructure",instance="n1",severity="page"}': 1.0}
    by_area = {
        '{area="infrastructure",severity="page"}': 1.0,
        **{f'{{area="inference",severity="{severity}"}}': 1.0 for severity in ("page", "ticket")},
    }
    asked = [
        *(
            (of_fleet[title, "A"], "2m", answer)
            for title, answer in (("Alerts that fire, by area", by_area), ("Alerts that fire", told))
        ),
        (of_fleet["Nodes with which something is wrong", "C"], "2m", {'{instance="n1"}': 1.0}),
        (WRITTEN["Pages firing", "A"], "2m", {"{}": 2.0}),
        (WRITTEN["Tickets firing", "A"], "2m", {"{}": 1.0}),
        (WRITTEN["Alerts that fire", "A"], "2m", told),
        (f"max by (severity) ({WRITTEN['Alerts', '']})", "30s", {'{severity="page"}': 1.0, '{severity="ticket"}': 1.0}),
    ]

    assert wrong(tmp_path, planted, asked) == ""


def test_no_alert_is_zero_alerts_only_where_rules_are_evaluated(tmp_path: Path) -> None:
    counts = [WRITTEN[title, "A"] for title in ("Pages firing", "Tickets firing", "Not measured")]
    quiet = {
        'slo:objective:ratio{slo="inference-availability",area="inference"}': "0.999x9",
        'slo:objective:ratio{slo="training-goodput",area="training"}': "0.95x9",
        'slo:total_events:base{slo="inference-availability",area="inference",service="chat",model="llama"}': "0x9",
        'slo:total_events:base{slo="training-goodput",area="training"}': "64x9",
    }

    answers = [(expr, "2m", {"{}": value}) for expr, value in zip(counts, (0.0, 0.0, 1.0), strict=True)]
    assert wrong(tmp_path, quiet, answers) == ""
    assert wrong(tmp_path, {"up": "1x9"}, [(expr, "2m", {}) for expr in counts]) == ""


def test_the_states_that_spend_the_goodput_are_all_that_its_spec_does_not_call_good() -> None:
    assert sorted([*EFFECTIVE_STATES, "queued", *LOST_STATES]) == sorted(TRAINING_STATES)
    assert colors(PANELS["What spends the budget of the effective training time"]) == {
        state: palette.STATE_COLORS[state] for state in LOST_STATES
    }


def test_jobs_are_ranked_by_what_they_lost_of_all(tmp_path: Path) -> None:
    # A large job that does well, and a small one that does not; both queue, which nobody pays for.
    ranks = {
        "large": {"compute": 90, "data_wait": 6, "checkpoint": 3, "straggler_wait": 1, "queued": 500},
        "small": {"compute": 6, "hung": 3, "unexplained": 1},
    }
    planted = {
        f'{JOB_TIME}{{training_job="{job}",state="{state}"}}': f"{value}x300"
        for job, states in ranks.items()
        for state, value in states.items()
    }
    table = "Who spends it: training jobs"
    large, small = '{training_job="large"}', '{training_job="small"}'
    asked: list[tuple[str, str, Answer]] = [
        (WRITTEN[table, "A"], "2h", {large: round(9 / 13, 6), small: round(4 / 13, 6)}),
        (WRITTEN[table, "B"], "2h", {large: 0.09, small: 0.4}),
        (WRITTEN[table, "C"], "2h", {large: 0.06}),
        (
            WRITTEN["What spends the budget of the effective training time", "A"],
            "2h",
            {
                f'{{state="{state}"}}': value
                for state, value in (("data_wait", 6), ("checkpoint", 3), ("hung", 3), ("unexplained", 1))
            },
        ),
    ]

    assert wrong(tmp_path, planted, asked) == ""


def test_slow_steps_are_those_beyond_the_bound_of_the_objective(tmp_path: Path) -> None:
    metric = "tachoscope_step_slowdown_ratio"
    gained = {"1.1": 80, "1.25": 96, "1.5": 100, "+Inf": 100}
    planted = {
        f'{metric}_bucket{{training_job="a",instance="{node}",le="{bound}"}}': f"0+{number}x99"
        for node in ("n1", "n2")
        for bound, number in gained.items()
    }
    planted |= {f'{metric}_count{{training_job="a",instance="{node}"}}': "0+100x99" for node in ("n1", "n2")}

    answer = {'{training_job="a"}': 0.04}
    assert wrong(tmp_path, planted, [(WRITTEN["Who spends it: training jobs", "D"], "30m", answer)]) == ""


def test_the_age_of_a_checkpoint_is_that_of_the_oldest_part_and_says_never_only_of_jobs_that_had_time_for_one(
    tmp_path: Path,
) -> None:
    verified, active = "tachoscope_checkpoint_verified_timestamp_seconds", "tachoscope_job_active"
    planted = {
        f'{active}{{training_job="saves",instance="n1"}}': "1x200",
        f'{verified}{{training_job="saves",instance="n1"}}': "5400x200",
        f'{verified}{{training_job="saves",instance="n2"}}': "3600x200",
        f'{active}{{training_job="never",instance="n1"}}': "1x200",
        f'{active}{{training_job="young",instance="n1"}}': "_x90 1x110",
        f'{active}{{training_job="ended",instance="n1"}}': "1x100 0x100",
        f'{verified}{{training_job="ended",instance="n1"}}': "0x200",
    }
    table = "Who spends it: training jobs"
    # At 90 minutes: the parts were verified half an hour and an hour before that.
    answer = {'{training_job="saves"}': 1800.0, '{training_job="never"}': NEVER}

    assert wrong(tmp_path, planted, [(WRITTEN[table, "F"], "90m", answer)]) == ""
    (mapping,) = column(PANELS[table], "Verified checkpoint")["mappings"]
    assert mapping["options"].keys() == {"1000000000000"}


def test_each_objective_is_told_with_what_it_promises_and_where_its_runbook_is() -> None:
    content = to_json(slos.board(POLICY))["panels"][-1]["options"]["content"]

    for slo in SLOS:
        (line,) = [line for line in content.splitlines() if line.startswith(f"| [{slo.name}]")]
        assert f"{slo.target * 100:g} %" in line
        assert slo.description in line
        assert f"{POLICY.runbook_base}/{slo.alert}.md" in line
        assert (REPOSITORY / "runbooks" / f"{slo.alert}.md").is_file()
