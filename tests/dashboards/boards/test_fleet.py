"""The board of the fleet: what it says of hours, jobs and nodes that are known, and that it reads what is recorded only."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import REPOSITORY
from planted import POLICY, colors, expression, filled, links, made, panels, steps, written, wrong
from tachoscope_alerts import promql
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_alerts.spec.slo_files import load
from tachoscope_core.metrics.training import TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.fleet import board as fleet
from tachoscope_dashboards.parts import slo_objectives

BOARD = made(fleet.board(POLICY))
PANELS = panels(BOARD)
AT = "20m30s"


def of_job(job: str, node: str, cluster: str = "x", **ranks: int) -> dict[str, str]:
    """Return the ledger of a job on a node: so many ranks in each state; the agent gives the other states too."""
    return {
        f'tachoscope_job_time_seconds_total{{training_job="{job}", state="{state}", instance="{node}", cluster="{cluster}"}}': (
            f"0+{15 * ranks.get(state, 0)}x90"
        )
        for state in TRAINING_STATES
    }


SERIES = {
    # "good" does nothing but steps, "hungry" waits for data, of "stuck" half hangs, and "waits" has no accelerators yet.
    **of_job("good", "n1", compute=7, communication=1),
    **of_job("hungry", "n2", compute=6, data_wait=2),
    **of_job("stuck", "n3", compute=4, hung=4),
    **of_job("waits", "n4", queued=8),
    **of_job("far", "n9", cluster="y", compute=8),
    **{
        f'tachoscope_job_ranks{{training_job="{job}", state="{state}", instance="{node}", cluster="x"}}': f"{count}x90"
        for job, node, hung in (("good", "n1", 0), ("hungry", "n2", 0), ("stuck", "n3", 4))
        for state, count in (("working", 8 - hung), ("silent", 0), ("hung", hung))
    },
    **{f'tachoscope_gpus{{kind="expected", instance="n{n}", cluster="x"}}': "8x90" for n in range(1, 6)},
    **{f'tachoscope_gpus{{kind="seen", instance="n{n}", cluster="x"}}': f"{8 - (n == 4)}x90" for n in range(1, 6)},
    **{f'tachoscope_gpus_held{{instance="n{n}", cluster="x"}}': f"{gpus}x90" for n, gpus in ((1, 8), (2, 8), (3, 8), (4, 3))},
    **{
        f'tachoscope_node_health{{state="{state}", instance="n{n}", cluster="x"}}': f"{int(state == is_in)}x90"
        for n, is_in in ((1, "healthy"), (2, "healthy"), (3, "degraded"), (4, "unhealthy"))
        for state in ("healthy", "degraded", "unhealthy", "unknown")
    },
    'tachoscope_agent_info{version="1", instance="n1", cluster="x"}': "1x90",
    'up{job="tachoscope", instance="n1", cluster="x"}': "1x90",
    'up{job="tachoscope", instance="n2", cluster="x"}': "0x90",
    'tachoscope_step_seconds_sum{training_job="good", instance="n1", cluster="x"}': "0+30x90",
    'tachoscope_step_seconds_count{training_job="good", instance="n1", cluster="x"}': "0+60x90",
    'tachoscope_job_sm_active_ratio_sum{training_job="good", instance="n1", cluster="x"}': "0+9x90",
    'tachoscope_job_sm_active_ratio_count{training_job="good", instance="n1", cluster="x"}': "0+10x90",
    # Two watches ask the scheduler; it counts each accelerator once.
    **{
        f'tachoscope_scheduler_accelerators{{state="{state}", instance="w{watch}", cluster="x"}}': f"{count}x90"
        for state, count in (("allocated", 30), ("idle", 4), ("drained", 4), ("down", 2))
        for watch in (1, 2)
    },
    **{
        f'tachoscope_scheduler_accelerators_held{{account="{who}", activity="{activity}", instance="w1", cluster="x"}}': f"{n}x90"
        for who, activity, n in (
            ("nlp", "stepping", 16),
            ("nlp", "idle", 0),
            ("vision", "idle", 8),
            ("vision", "unreported", 6),
        )
    },
    'tachoscope_scheduler_pending_accelerators{partition="train", state="eligible", instance="w1", cluster="x"}': "24x90",
    'tachoscope_scheduler_oldest_pending_seconds{partition="train", instance="w1", cluster="x"}': "900x90",
    'tachoscope_scheduler_requeue_seconds_sum{partition="train", instance="w1", cluster="x"}': "0+10x90",
    'tachoscope_scheduler_requeue_seconds_count{partition="train", instance="w1", cluster="x"}': "0+0.1x90",
    **{
        f'tachoscope_watch_nodes{{state="{state}", instance="w{watch}", cluster="x"}}': f"{count}x90"
        for state, count in (("quarantined", 2), ("testing", 1))
        for watch in (1, 2)
    },
    'tachoscope_watch_nodes_held{instance="w1", cluster="x"}': "1x90",
    'tachoscope_slow_links{training_job="good", place="switch leaf-3", instance="w1", cluster="x"}': "4x90",
    'slo:error_budget:remaining_ratio{slo="training-goodput"}': "0.4x90",
    'ALERTS{alertname="GpuLost", alertstate="firing", severity="page", area="infrastructure", instance="n4"}': "1x90",
    'ALERTS{alertname="TrainingGoodputBurn", alertstate="firing", severity="ticket", area="training"}': "1x90",
    'ALERTS{alertname="Watchdog", alertstate="firing", severity="none", area="infrastructure"}': "1x90",
    'ALERTS{alertname="Pending", alertstate="pending", severity="page", area="training"}': "1x90",
}
TEN_MINUTES = {"__range": "10m"}


def of(title: str, name: str = "A") -> str:
    return expression(BOARD, title, name, cluster="x", **TEN_MINUTES)


def differs(folder: Path, series: dict[str, str], wanted: dict[str, dict[str, float]]) -> str:
    """Return where the answers, with what rules record of the series, are not what is wanted of expressions."""
    asked = [(expr, AT, answer) for expr, answer in wanted.items()]
    return wrong(folder, series, asked, rules=["recordings.rules.yaml"], interval="15s")


TRUTH: dict[tuple[str, str], dict[str, float]] = {
    # 8 + 6 + 4 of the 24 accelerators that jobs hold; the 8 in the queue are none.
    ("ETTR", "A"): {"{}": 18 / 24},
    ("ETTR and compute share", "A"): {"{}": 18 / 24},
    ("ETTR and compute share", "B"): {"{}": 17 / 24},
    ("Budget left", "A"): {'{slo="training-goodput"}': 0.4},
    # Six accelerators for ten minutes are one hour; 39 GPUs answer and 27 are held, so that twelve are two hours.
    ("Hours lost", "A"): {"{}": 1.0},
    ("Hours idle", "A"): {"{}": 2.0},
    ("Jobs", "A"): {"{}": 3.0},
    ("Jobs stuck", "A"): {"{}": 1.0},
    ("GPUs missing", "A"): {"{}": 1.0},
    ("Agents down", "A"): {"{}": 1.0},
    ("Accelerators by what they do", "A"): {
        '{state="communication"}': 1.0,
        '{state="compute"}': 17.0,
        '{state="data_wait"}': 2.0,
        '{state="hung"}': 4.0,
        '{state="queued"}': 8.0,
    },
    ("Accelerators by what they do", "B"): {"{}": 3.0},
    ("Accelerators by what they do", "C"): {"{}": 12.0},
    ("GPUs", "A"): {"{}": 40.0},
    ("GPUs", "B"): {"{}": 39.0},
    ("GPUs", "C"): {"{}": 27.0},
    ("Nodes by health", "A"): {'{state="healthy"}': 2.0, '{state="degraded"}': 1.0, '{state="unhealthy"}': 1.0},
    ("Nodes out of service", "A"): {'{state="quarantined"}': 2.0, '{state="testing"}': 1.0},
    ("Nodes out of service", "B"): {"{}": 1.0},
    ("Slow links, by the host or switch that they share", "A"): {'{cluster="x", training_job="good", place="switch leaf-3"}': 4.0},
    ("From a preemption until the job runs again", "A"): {'{partition="train"}': 100.0},
    ("Jobs, the worst first", "A"): {
        '{cluster="x", training_job="good"}': 1.0,
        '{cluster="x", training_job="hungry"}': 0.75,
        '{cluster="x", training_job="stuck"}': 0.5,
    },
    ("Jobs, the worst first", "B"): {f'{{cluster="x", training_job="{job}"}}': 8.0 for job in ("good", "hungry", "stuck")},
    ("Jobs, the worst first", "C"): {
        '{cluster="x", training_job="good", state="communication"}': 0.125,
        '{cluster="x", training_job="hungry", state="data_wait"}': 0.25,
        '{cluster="x", training_job="stuck", state="hung"}': 0.5,
    },
    ("Jobs, the worst first", "D"): {
        '{cluster="x", training_job="good"}': 0.0,
        '{cluster="x", training_job="hungry"}': 0.0,
        '{cluster="x", training_job="stuck"}': 4.0,
    },
    ("Jobs, the worst first", "E"): {
        '{cluster="x", training_job="good"}': 0.0,
        '{cluster="x", training_job="hungry"}': 0.25,
        '{cluster="x", training_job="stuck"}': 0.0,
    },
    ("Jobs, the worst first", "F"): {'{cluster="x", training_job="good"}': 0.9},
    ("Jobs, the worst first", "G"): {'{cluster="x", training_job="good"}': 0.5},
    ("Nodes with which something is wrong", "A"): {
        '{instance="n3", state="degraded"}': 1.0,
        '{instance="n4", state="unhealthy"}': 1.0,
    },
    ("Nodes with which something is wrong", "B"): {'{instance="n4"}': 1.0},
    ("Nodes with which something is wrong", "C"): {'{instance="n4"}': 1.0},
    ("Accelerators by state", "A"): {
        '{state="allocated"}': 30.0,
        '{state="idle"}': 4.0,
        '{state="drained"}': 4.0,
        '{state="down"}': 2.0,
    },
    ("Allocated, without a step", "A"): {
        '{account="vision", activity="idle"}': 8.0,
        '{account="vision", activity="unreported"}': 6.0,
    },
    ("Accelerators waited for", "A"): {'{partition="train", state="eligible"}': 24.0},
    ("Oldest job in the queue", "A"): {'{partition="train"}': 900.0},
    # Alerts of all clusters together have no cluster, and are told of whichever is chosen.
    ("Alerts that fire, by area", "A"): {
        '{area="infrastructure", severity="page"}': 1.0,
        '{area="training", severity="ticket"}': 1.0,
    },
    ("Alerts that fire", "A"): {
        '{alertname="GpuLost", area="infrastructure", instance="n4", severity="page"}': 1.0,
        '{alertname="TrainingGoodputBurn", area="training", severity="ticket"}': 1.0,
    },
}


def test_each_panel_says_what_is_true_of_the_cluster_that_is_chosen(tmp_path: Path) -> None:
    assert set(TRUTH) == {key for key in written(BOARD) if key[1]}
    assert differs(tmp_path, SERIES, {of(title, name): answer for (title, name), answer in TRUTH.items()}) == ""


def test_each_panel_has_an_answer_of_all_clusters(tmp_path: Path) -> None:
    asking = [filled(expr, TEN_MINUTES) for (_, name), expr in written(BOARD).items() if name]
    wanted = {f"count({expr}) > bool 0": {"{}": 1.0} for expr in asking}

    assert differs(tmp_path, SERIES, wanted) == ""


def test_where_no_gpu_is_held_all_are_idle_and_where_there_is_none_nothing_is_said(tmp_path: Path) -> None:
    free = {key: values for key, values in SERIES.items() if "gpus_held" not in key}
    none = {key: values for key, values in free.items() if "tachoscope_gpus" not in key}

    assert differs(tmp_path, free, {of("Accelerators by what they do", "C"): {"{}": 39.0}}) == ""
    assert differs(tmp_path, none, {of("Accelerators by what they do", "C"): {}, of("Hours idle"): {}}) == ""


def test_where_no_job_is_stuck_the_number_is_zero_and_not_missing(tmp_path: Path) -> None:
    well = {key: values for key, values in SERIES.items() if "stuck" not in key}

    assert differs(tmp_path, well, {of("Jobs stuck"): {"{}": 0.0}}) == ""


def test_no_panel_reads_a_series_of_an_agent() -> None:
    known = catalogue(load([REPOSITORY / "alerts" / "slos"]))
    read = {
        series.metric
        for (_, name), expr in written(BOARD).items()
        if name
        for series, _ in promql.read(promql.parse(filled(expr, {})))
    }

    assert {name for name in read if not known[name].recorded} == {"ALERTS"}


def test_each_state_of_the_ledger_has_its_colour_and_so_have_accelerators_without_a_ledger() -> None:
    drawn = colors(PANELS["Accelerators by what they do"])

    assert drawn == {state: palette.STATE_COLORS[state] for state in (*TRAINING_STATES, "elsewhere", "idle")}
    assert len(set(drawn.values())) == len(drawn)


@pytest.mark.parametrize(
    ("title", "start"),
    [
        ("Jobs, the worst first", "/d/tachoscope-training?"),
        ("Jobs, the worst first", f"{POLICY.explorer_base}/job?job=${{__data.fields.Job}}"),
        (
            "Jobs, the worst first",
            "/d/tachoscope-training?${cluster:queryparam}&var-training_job=${__data.fields.Job}&var-job_cluster=${__data.fields.Cluster}&",
        ),
        ("Nodes with which something is wrong", "/d/tachoscope-gpu-node?"),
        ("GPUs missing", "/d/tachoscope-gpu-node?"),
        ("Agents down", "/d/tachoscope-agents?"),
        ("ETTR", "/d/tachoscope-slos?${cluster:queryparam}&var-slo=training-goodput"),
        ("ETTR", f"{POLICY.runbook_base}/TrainingGoodputBurn.md"),
    ],
)
def test_it_leads_down_to_jobs_nodes_and_runbooks(title: str, start: str) -> None:
    assert any(url.startswith(start) for url in links(PANELS[title]))


def test_the_target_of_goodput_is_the_objectives() -> None:
    assert [at for at, _ in steps(PANELS["ETTR"])] == [None, slo_objectives.objective("training-goodput").target]
