"""The board Data pipeline: what a job waits for data, by time, by step and by rank, against what is promised."""

from pathlib import Path

from planted import POLICY, differs, expression, lines_of_what_happens_now_and_then, made, panel, steps, unmarked_alerts, variable
from tachoscope_core.metrics.training import STEP_DATA_WAIT
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.data import board as data
from tachoscope_dashboards.parts.slo_objectives import bound, objective

BOARD = made(data.board(POLICY))
RECORDED = "job_state:tachoscope_job_time:rate1m"


def test_the_share_of_steps_that_hardly_wait_is_by_the_objectives_bound(tmp_path: Path) -> None:
    least = bound("training-input-wait")
    where = 'training_job="llama",instance="n1"'
    planted = {
        f'{STEP_DATA_WAIT.name}_bucket{{{where},le="{one}"}}': f"0+{90 if one >= least else 20}x30"
        for one in STEP_DATA_WAIT.buckets
    } | {f"{STEP_DATA_WAIT.name}_count{{{where}}}": "0+120x30"}
    expr = expression(BOARD, "Steps that hardly wait", training_job="llama")
    assert differs(tmp_path, expr, planted, {"{}": 0.75}) == ""
    expected = [(None, palette.BAD), (objective("training-input-wait").target, palette.OK)]
    assert steps(panel(BOARD, "Steps that hardly wait")) == expected


def test_a_job_that_does_no_steps_has_no_share_of_them(tmp_path: Path) -> None:
    where = 'training_job="llama",instance="n1"'
    planted = {f'{STEP_DATA_WAIT.name}_bucket{{{where},le="0.1"}}': "90x30", f"{STEP_DATA_WAIT.name}_count{{{where}}}": "120x30"}
    assert differs(tmp_path, expression(BOARD, "Steps that hardly wait"), planted, {}) == ""


def test_the_table_is_of_all_jobs_and_leads_to_each(tmp_path: Path) -> None:
    planted = {
        f'{RECORDED}{{training_job="{job}",state="{state}"}}': f"{value}x30"
        for job, state, value in (
            ("llama", "compute", 6),
            ("llama", "data_wait", 2),
            ("vit", "compute", 4),
            ("vit", "data_wait", 0),
        )
    }
    expr = expression(BOARD, "Waiting for data, by job", training_job="vit")
    assert differs(tmp_path, expr, planted, {'{training_job="llama"}': 0.25, '{training_job="vit"}': 0.0}) == ""
    overrides = panel(BOARD, "Waiting for data, by job")["fieldConfig"]["overrides"]
    urls = [link["url"] for one in overrides for part in one["properties"] if part["id"] == "links" for link in part["value"]]
    assert len(urls) == 1
    assert urls[0].startswith("/d/tachoscope-data?")
    assert "var-training_job=${__data.fields.Job}" in urls[0]


def test_waiting_and_copying_are_shares_of_all_the_jobs_time_in_the_colours_of_the_ledger(tmp_path: Path) -> None:
    planted = {
        f'{RECORDED}{{training_job="{job}",state="{state}"}}': f"{value}x30"
        for job, state, value in (
            *(("llama", "compute", 5), ("llama", "data_wait", 2), ("llama", "host_to_device", 1)),
            ("vit", "data_wait", 90),
        )
    }
    title = "Waiting for data, and copying them"
    expr = expression(BOARD, title, training_job="llama")
    expected = {'{state="data_wait"}': 0.25, '{state="host_to_device"}': 0.125}
    assert differs(tmp_path, expr, planted, expected) == ""
    colors = {
        override["matcher"]["options"]: override["properties"][0]["value"]["fixedColor"]
        for override in panel(BOARD, title)["fieldConfig"]["overrides"]
    }
    assert colors == {state: palette.STATE_COLORS[state] for state in ("data_wait", "host_to_device")}


def test_shards_are_listed_that_failed_in_this_time_with_their_nodes(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_shard_failures_total{{training_job="llama",shard="{shard}",instance="{node}"}}': values
        for shard, node, values in (
            *(("bad.tar", "n1", "0x140 3x10"), ("bad.tar", "n2", "0x140 3x10")),
            ("once.tar", "n1", "0x10 1x140"),
        )
    }
    found = expression(BOARD, "Shards that could not be read", name="B")
    assert differs(tmp_path, found, planted, {'{shard="bad.tar"}': 2.0}, at="72m") == ""


def test_all_nodes_are_those_of_the_job_and_not_of_the_fleet() -> None:
    node = variable(BOARD, "node")
    assert (node["includeAll"], node["multi"], node["current"]["value"]) == (True, True, ["$__all"])
    assert "allValue" not in node
    assert 'training_job=~"$training_job"' in node["definition"]


def test_one_job_is_chosen_at_a_time() -> None:
    job = variable(BOARD, "training_job")
    assert (job["includeAll"], job["multi"]) == (False, False)


def test_events_are_drawn_so_that_one_alone_is_seen() -> None:
    assert lines_of_what_happens_now_and_then(BOARD) == []


def test_alerts_that_lead_here_are_marked_here() -> None:
    assert unmarked_alerts(BOARD) == []
