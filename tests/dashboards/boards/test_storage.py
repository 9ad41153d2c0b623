"""The board Checkpoints and recovery: how old sound checkpoints are, what a failure would undo, and how jobs come back and end."""

from pathlib import Path
from typing import get_args

import pytest

from planted import POLICY, differs, expression, lines_of_what_happens_now_and_then, made, panel, steps, unmarked_alerts
from tachoscope_core.checkpoints.verification import Result
from tachoscope_core.metrics.training import ENDS, RECOVERY_SECONDS, TRAINING_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.checkpoints import board as storage
from tachoscope_dashboards.boards.checkpoints import checkpoints as checkpoint_panels
from tachoscope_dashboards.boards.checkpoints import recovery as recovery_panels
from tachoscope_dashboards.parts.slo_objectives import bound, objective

BOARD = made(storage.board(POLICY))
LLAMA = 'training_job="llama"'
SAVED = {
    f'tachoscope_job_active{{{LLAMA},instance="n1"}}': "1x150",
    f'tachoscope_job_active{{{LLAMA},instance="n2"}}': "1x150",
    f'tachoscope_checkpoint_verified_timestamp_seconds{{{LLAMA},instance="n1"}}': "600x150",
    f'tachoscope_checkpoint_verified_timestamp_seconds{{{LLAMA},instance="n2"}}': "1200x150",
    'tachoscope_job_active{training_job="ended",instance="n3"}': "1x100 0x50",
    'tachoscope_checkpoint_verified_timestamp_seconds{training_job="ended",instance="n3"}': "60x150",
    'tachoscope_job_active{training_job="new",instance="n4"}': "_x130 1x20",
}
"""At 70 minutes: a job whose nodes have sound checkpoints of an hour and of 50 minutes ago, one that ended, and a new one."""


def test_of_a_job_the_node_with_the_oldest_sound_checkpoint_counts_and_jobs_that_ended_do_not(tmp_path: Path) -> None:
    expr = expression(BOARD, "Age of the newest sound checkpoint")
    assert differs(tmp_path, expr, SAVED, {f"{{{LLAMA}}}": 3600.0}, at="70m") == ""
    assert differs(tmp_path, expression(BOARD, "Oldest"), SAVED, {"{}": 3600.0}, at="70m") == ""


@pytest.mark.parametrize(("at", "old"), [("70m", 0.0), ("71m", 1.0)])
def test_a_checkpoint_is_old_beyond_the_objectives_bound(tmp_path: Path, at: str, old: float) -> None:
    assert bound("training-checkpoint-age") == 3600.0
    assert differs(tmp_path, expression(BOARD, "Jobs with old ones"), SAVED, {"{}": old}, at=at) == ""


def test_a_running_job_without_any_sound_checkpoint_is_counted(tmp_path: Path) -> None:
    assert differs(tmp_path, expression(BOARD, "Jobs without any"), SAVED, {"{}": 1.0}, at="70m") == ""


def test_work_at_risk_is_the_age_times_the_ranks_of_all_states(tmp_path: Path) -> None:
    planted = SAVED | {
        f'job:tachoscope_ranks:sum{{{LLAMA},state="working"}}': "14x150",
        f'job:tachoscope_ranks:sum{{{LLAMA},state="silent"}}': "2x150",
    }
    expr = expression(BOARD, "Work at risk, by job", name="E")
    assert differs(tmp_path, expr, planted, {f"{{{LLAMA}}}": 57600.0}, at="70m") == ""


def test_a_job_is_in_the_table_before_its_first_checkpoint(tmp_path: Path) -> None:
    expr = expression(BOARD, "Work at risk, by job")
    assert differs(tmp_path, expr, SAVED, {f"{{{LLAMA}}}": 1.0, '{training_job="new"}': 1.0}, at="70m") == ""


def test_one_restart_of_a_job_on_two_nodes_is_one_and_that_of_another_job_a_second(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_restarts_total{{training_job="{job}",instance="{node}"}}': "0x60 1x90"
        for job, node in (("llama", "n1"), ("llama", "n2"), ("vit", "n3"))
    }
    expr = expression(BOARD, "Restarts in this time").replace("increase(", "round(increase(").replace("[1h])", "[1h]))")
    assert differs(tmp_path, expr, planted, {"{}": 2.0}, at="70m") == ""


def test_no_recovery_is_no_time_and_not_a_number_that_is_none(tmp_path: Path) -> None:
    planted = {f'{RECOVERY_SECONDS.name}_bucket{{{LLAMA},le="{one}"}}': "0x150" for one in (*RECOVERY_SECONDS.buckets, "+Inf")}
    assert differs(tmp_path, expression(BOARD, "Half are back within"), planted, {}, at="70m") == ""


def test_time_that_failures_take_is_a_share_of_all_time_in_the_colours_of_the_ledger(tmp_path: Path) -> None:
    planted = {
        f'job_state:tachoscope_job_time:rate1m{{{LLAMA},state="{state}"}}': f"{value}x30"
        for state, value in (("compute", 6), ("lost_work", 1), ("restore", 1), ("data_wait", 0))
    }
    title = "Time that failures and saves take"
    expected = {'{state="lost_work"}': 0.125, '{state="restore"}': 0.125}
    assert differs(tmp_path, expression(BOARD, title), planted, expected) == ""
    colors = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in panel(BOARD, title)["fieldConfig"]["overrides"]
    }
    assert colors == {state: palette.STATE_COLORS[state] for state in recovery_panels.LOST}
    assert set(recovery_panels.LOST) < set(TRAINING_STATES)


def test_a_notice_is_shown_where_a_job_runs_and_not_where_none_does(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_job_active{{{LLAMA},instance="n1"}}': "1x30",
        f'tachoscope_job_active{{{LLAMA},instance="n2"}}': "1x30",
        'tachoscope_preemption_notice{provider="aws",instance="n1"}': "1x30",
        'tachoscope_preemption_notice{provider="aws",instance="n2"}': "0x30",
        'tachoscope_preemption_notice{provider="aws",instance="n3"}': "1x30",
    }
    expr = expression(BOARD, "Nodes that the provider takes back")
    assert differs(tmp_path, expr, planted, {f'{{instance="n1",{LLAMA},provider="aws"}}': 1.0}) == ""


def test_hosts_are_listed_on_which_processes_of_several_jobs_failed(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_worker_failures_total{{training_job="{job}",host="{host}",instance="{host}"}}': values
        for job, host, values in (
            *(("llama", "n1", "0x60 8x90"), ("vit", "n1", "0x60 8x90")),
            *(("vit", "n2", "0x60 8x90"), ("vit", "n3", "0x150")),
        )
    }
    expr = expression(BOARD, "Processes that failed, by host", name="B")
    assert differs(tmp_path, expr, planted, {'{host="n1"}': 2.0, '{host="n2"}': 1.0}, at="70m") == ""


def test_every_end_of_an_attempt_and_every_finding_of_a_verification_has_its_colour() -> None:
    assert set(recovery_panels.END_COLORS) == {f"{result} {cause}" for result, causes in ENDS.items() for cause in causes}
    assert recovery_panels.END_COLORS["failed infra"] == palette.BAD
    assert set(checkpoint_panels.RESULT_COLORS) == set(get_args(Result))
    assert checkpoint_panels.RESULT_COLORS["corrupt"] == palette.BAD


def test_what_was_promised_is_of_the_objectives_own_records_and_in_its_colours(tmp_path: Path) -> None:
    for title, name, window in (
        ("Young enough, 1 day", "training-checkpoint-age", "1d"),
        ("Back soon enough, 3 days", "training-recovery", "3d"),
        ("Not failed by us, 3 days", "training-job-success", "3d"),
    ):
        planted = {
            f'slo:error:ratio{{slo="{name}",area="training",window="{one}"}}': f"{0.25 * (one == window)}x30"
            for one in ("1d", "3d")
        }
        assert differs(tmp_path, expression(BOARD, title), planted, {"{}": 0.75}) == ""
        assert steps(panel(BOARD, title)) == [(None, palette.BAD), (objective(name).target, palette.OK)]


def test_ages_and_recoveries_have_the_colours_of_their_objectives() -> None:
    for title, name in (
        ("Age of the newest sound checkpoint", "training-checkpoint-age"),
        ("Recoveries, as they end", "training-recovery"),
    ):
        assert steps(panel(BOARD, title))[-1] == (bound(name), palette.WARN)


def test_events_are_drawn_so_that_one_alone_is_seen() -> None:
    assert lines_of_what_happens_now_and_then(BOARD) == []
    assert panel(BOARD, "Recoveries, as they end")["fieldConfig"]["defaults"]["custom"]["showPoints"] == "always"


def test_alerts_that_lead_here_are_marked_here() -> None:
    assert unmarked_alerts(BOARD) == []
