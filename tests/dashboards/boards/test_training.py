"""The board of a job: what it says of a job with one slow rank, that it speaks of the chosen job alone, and where it leads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planted import POLICY, Answer, colors, expression, filled, links, made, panels, written, wrong
from tachoscope_alerts import promql
from tachoscope_core.metrics.training import RANK_STATES, TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.training import board as training
from tachoscope_dashboards.parts import slo_objectives

BOARD = made(training.board(POLICY))
PANELS = panels(BOARD)
AT = "20m30s"
RANKS, SLOW = 4, 2
HEAT, TABLE = "Own time of each rank over that of the middle rank", "Ranks, the slowest first"


def counter(a_second: float) -> str:
    return f"0+{15 * a_second:g}x90"


def histogram(name: str, labels: str, a_second: float, mean: float, bounds: dict[str, float]) -> dict[str, str]:
    """Return a histogram that counts so many a second of a mean value; bounds: which part of them is within each."""
    buckets = {
        f'{name}_bucket{{{labels}, le="{bound}"}}': counter(a_second * part) for bound, part in {**bounds, "+Inf": 1.0}.items()
    }
    return buckets | {f"{name}_sum{{{labels}}}": counter(a_second * mean), f"{name}_count{{{labels}}}": counter(a_second)}


def job(name: str, node: str) -> dict[str, str]:
    """Return the series of a job of four ranks on one node: one computes for all of a step, the others for 0.8 and then wait."""
    of, place = f'training_job="{name}"', f'instance="{node}", cluster="x", namespace="ml"'
    mine = f"{of}, {place}"
    together = {"compute": 3.0, "straggler_wait": 0.6, "data_wait": 0.2, "checkpoint": 0.2}
    of_rank = {"compute": 0.75, "straggler_wait": 0.2, "data_wait": 0.05}
    of_slow = {"compute": 0.9, "data_wait": 0.1, "host_wait": 0.0}
    return {
        **{f'tachoscope_job_time_seconds_total{{{mine}, state="{s}"}}': counter(together.get(s, 0.0)) for s in TRAINING_STATES},
        **{
            f'tachoscope_time_seconds_total{{{mine}, rank="{rank}", state="{state}"}}': counter(seconds)
            for rank in range(RANKS)
            for state, seconds in (of_slow if rank == SLOW else of_rank | {"host_wait": 0.0, "communication": 0.0}).items()
        },
        **{f'tachoscope_data_wait_ratio{{{mine}, rank="{r}"}}': f"{0.1 if r == SLOW else 0.05}x90" for r in range(RANKS)},
        **{f'tachoscope_heartbeat_age_seconds{{{mine}, rank="{r}"}}': f"{70 if r == 1 else 3}x90" for r in range(RANKS)},
        **{f'tachoscope_steps_total{{{mine}, rank="{r}"}}': counter(2.0) for r in range(RANKS)},
        **{f'tachoscope_job_ranks{{{mine}, state="{s}"}}': f"{n}x90" for s, n in zip(RANK_STATES, (3, 1, 0), strict=True)},
        **histogram("tachoscope_step_seconds", mine, 8.0, 0.4, {"0.2": 0.0, "0.5": 1.0, "1.0": 1.0}),
        **histogram("tachoscope_step_slowdown_ratio", mine, 2.0, 1.1, {"1.1": 0.5, "1.25": 0.75, "1.5": 1.0}),
        **histogram("tachoscope_job_sm_active_ratio", mine, 1.0, 0.6, {"0.5": 0.0, "0.6": 0.5, "0.7": 1.0}),
        **histogram("tachoscope_checkpoint_blocking_seconds", mine, 0.1, 4.0, {"5.0": 1.0}),
        **histogram("tachoscope_checkpoint_background_seconds", mine, 0.1, 40.0, {"60.0": 1.0}),
        f"tachoscope_slowdown_ratio{{{mine}}}": "1.25x90",
        f"tachoscope_checkpoint_age_seconds{{{mine}}}": "90x90",
        f"tachoscope_checkpoint_verified_timestamp_seconds{{{mine}}}": "30x90",
        f'tachoscope_bottleneck_ratio{{{mine}, class="compute_straggler"}}': "0.2x90",
        f"tachoscope_restarts_total{{{mine}}}": "0x60 1x29",
        f'tachoscope_worker_failures_total{{{mine}, host="{node}"}}': "0x80 4x10",
        f"tachoscope_hangs_total{{{mine}}}": "0x80 1x10",
        f'tachoscope_integrity_events_total{{{mine}, kind="loss"}}': "0x80 1x10",
    }


SERIES = {**job("mine", "n1"), **job("other", "n2")}
MINE = {"training_job": "mine", "job_cluster": "x", "namespace": "ml", "__range": "10m"}


def of(title: str, name: str = "A", **values: str) -> str:
    return expression(BOARD, title, name, **MINE | values)


def of_ranks(slow: float, others: float) -> dict[str, float]:
    return {f'{{rank="{rank}"}}': slow if rank == SLOW else others for rank in range(RANKS)}


def differs(folder: Path, series: dict[str, str], wanted: dict[str, Answer]) -> str:
    """Return where the answers are not what is wanted of expressions."""
    return wrong(folder, series, [(expr, AT, answer) for expr, answer in wanted.items()], interval="15s")


def without_an_answer(folder: Path, **more: str) -> list[str]:
    """Return the panels and marks that find nothing about a job that has all its signals; no alert fires."""
    return [
        title
        for (title, name), expr in written(BOARD).items()
        if title != "Alerts" and differs(folder, SERIES, {f"count({filled(expr, MINE | more)}) > bool 0": {"{}": 1.0}})
    ]


def test_the_slow_rank_stands_out_though_all_take_equally_long_for_a_step(tmp_path: Path) -> None:
    """Its own time is 1, that of the others 0.8."""
    wanted = {of(HEAT): of_ranks(1.25, 1.0), of(TABLE): of_ranks(1.25, 1.0)}

    assert differs(tmp_path, SERIES, wanted) == ""


def test_the_colours_of_the_heat_map_go_from_the_middle_rank_to_where_a_step_counts_as_irregular() -> None:
    scale = PANELS[HEAT]["options"]["color"]

    assert (scale["min"], scale["max"]) == (1.0, slo_objectives.bound("training-step-regularity"))


def test_a_rank_is_compared_with_all_ranks_of_the_job_also_where_it_alone_is_shown(tmp_path: Path) -> None:
    assert differs(tmp_path, SERIES, {of(HEAT, rank=str(SLOW)): {f'{{rank="{SLOW}"}}': 1.25}}) == ""


def test_where_no_rank_does_steps_nothing_is_compared(tmp_path: Path) -> None:
    still = {name: "7x90" if name.startswith("tachoscope_time_seconds_total") else values for name, values in SERIES.items()}

    assert differs(tmp_path, still, {of(HEAT): {}}) == ""


TRUTH: dict[tuple[str, str], Answer] = {
    ("ETTR", "A"): {"{}": 0.9},
    ("Step", "A"): {"{}": 0.4},
    ("Slowdown", "A"): {"{}": 1.25},
    ("Ranks", "A"): {"{}": 4.0},
    ("Hung, silent", "A"): {"{}": 1.0},
    ("Restarts", "A"): {"{}": 1.0},
    ("Checkpoint", "A"): {"{}": 1200.0},
    ("SM activity", "A"): {"{}": 0.6},
    ("Ranks by what they do", "A"): {
        '{state="compute"}': 3.0,
        '{state="straggler_wait"}': 0.6,
        '{state="data_wait"}': 0.2,
        '{state="checkpoint"}': 0.2,
    },
    ("Bottlenecks by name", "A"): {'{class="compute_straggler"}': 0.2},
    # Half of the way through the only bucket that holds any, from 0.2 to 0.5.
    ("Time of a step", "A"): {"{}": 0.4},
    ("Time of a step", "B"): {"{}": 0.35},
    (TABLE, "B"): of_ranks(0.1, 0.05),
    (TABLE, "D"): {labels: value for labels, value in of_ranks(0.0, 0.2).items() if value},
    ("Slowdown by stragglers, by node", "A"): {'{instance="n1"}': 1.25},
    ("Irregular steps", "A"): {"{}": 0.25},
    ("Waiting for data", "A"): of_ranks(0.1, 0.05),
    ("Ranks by state", "A"): {'{state="working"}': 3.0, '{state="silent"}': 1.0, '{state="hung"}': 0.0},
    ("Since the last record", "A"): {f'{{rank="{rank}"}}': 70.0 if rank == 1 else 3.0 for rank in range(RANKS)},
    ("Time lost to checkpoints", "A"): {"{}": 0.05},
    ("Age of checkpoints", "A"): {"{}": 90.0},
    ("Blocking, each", "A"): {"{}": 4.0},
    ("In the background, each", "A"): {"{}": 40.0},
}


def test_panels_say_what_is_true_of_the_job_that_is_chosen(tmp_path: Path) -> None:
    """As many digits as people read: floats that were added in another order differ in their last ones."""
    wanted = {f"round({of(title, name)}, 0.001)": samples for (title, name), samples in TRUTH.items()}

    assert differs(tmp_path, SERIES, wanted) == ""


def test_every_panel_and_mark_has_an_answer_of_a_job_that_has_all_its_signals(tmp_path: Path) -> None:
    assert without_an_answer(tmp_path) == ["Restarts"]
    assert without_an_answer(tmp_path, __rate_interval="10m") == []


def test_no_panel_shows_anything_of_another_job(tmp_path: Path) -> None:
    others = job("other", "n2")
    wanted: dict[str, Answer] = {filled(expr, MINE): {} for (_, name), expr in written(BOARD).items() if name}

    assert differs(tmp_path, others, wanted) == ""


def test_every_series_is_limited_to_the_job_and_the_scope_that_are_chosen() -> None:
    for (title, name), expr in written(BOARD).items():
        for series, _ in (
            promql.read(promql.parse(re.sub(r"\[\$\w+\]", "[1m]", expr).replace("$__interval_ms", "60000"))) if name else ()
        ):
            values = {matcher.label: matcher.value for matcher in series.matchers}
            assert values["training_job"] == "$training_job", title
            assert (values["cluster"], values["namespace"]) == ("$job_cluster", "$namespace"), title
            assert (values["workload_namespace"], values["team"]) == ("$job_namespace", "$job_team"), title


def test_each_state_of_the_ledger_and_of_ranks_has_its_colour() -> None:
    assert colors(PANELS["Ranks by what they do"]) == {state: palette.STATE_COLORS[state] for state in TRAINING_STATES}
    assert colors(PANELS["Ranks by state"]).keys() == set(RANK_STATES)


@pytest.mark.parametrize(
    ("title", "start"),
    [
        ("Ranks by what they do", f"{POLICY.explorer_base}/job?job=${{training_job}}"),
        (TABLE, f"{POLICY.explorer_base}/trace?job=${{training_job}}&rank=${{__data.fields.Rank}}"),
        (TABLE, "/d/tachoscope-gpu-node?"),
        ("Waiting for data", "/d/tachoscope-data?"),
        ("Age of checkpoints", "/d/tachoscope-storage?"),
        ("Ranks by what they do", "/d/tachoscope-fleet?"),
        ("Hung, silent", f"{POLICY.runbook_base}/CollectiveHang.md"),
    ],
)
def test_it_leads_to_the_explorer_other_boards_and_runbooks(title: str, start: str) -> None:
    assert any(url.startswith(start) for url in links(PANELS[title]))


def test_only_one_job_of_one_cluster_namespace_and_team_can_be_chosen() -> None:
    assert [one["name"] for one in BOARD["templating"]["list"] if one["type"] == "query" and not one["multi"]] == [
        "training_job",
        "job_cluster",
        "job_namespace",
        "job_team",
    ]


def test_lines_are_of_the_ranks_that_have_most_over_the_whole_time_and_not_at_each_moment(tmp_path: Path) -> None:
    """Of twelve ranks, two have least: one of them has most now."""
    place = 'cluster="x", namespace="ml", training_job="mine", instance="n1"'
    steady = {f'tachoscope_data_wait_ratio{{{place}, rank="{rank}"}}': "0.5x90" for rank in range(10)}
    rest = {
        f'tachoscope_data_wait_ratio{{{place}, rank="10"}}': "0.1x80 0.9x10",
        f'tachoscope_data_wait_ratio{{{place}, rank="11"}}': "0.1x90",
    }
    wanted = {f'{{rank="{rank}"}}': 0.5 for rank in range(10)}

    assert differs(tmp_path, steady | rest, {of("Waiting for data"): wanted}) == ""
