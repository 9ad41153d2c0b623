"""The board NCCL: bandwidth by bytes and seconds, communicators that are not well, and what cannot be determined by job."""

from pathlib import Path

from planted import POLICY, differs, expression, lines_of_what_happens_now_and_then, made, panel, steps, unmarked_alerts
from tachoscope_core.metrics.nccl import COMMUNICATOR_STATES
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.nccl import board as nccl

BOARD = made(nccl.board(POLICY))
OF = 'training_job="llama",group="{}",collective="all_reduce",size_class=">16MiB",instance="{}"'


def test_bus_bandwidth_is_of_all_bytes_by_all_seconds_and_not_a_mean_over_nodes(tmp_path: Path) -> None:
    planted = {}
    for node, moved, seconds in (("n1", 60e9, 6), ("n2", 60e9, 54)):
        planted[f"tachoscope_nccl_bus_bytes_total{{{OF.format('dp', node)}}}"] = f"0+{moved:.0f}x30"
        planted[f"tachoscope_nccl_collective_seconds_sum{{{OF.format('dp', node)}}}"] = f"0+{seconds}x30"
    expr = expression(BOARD, "Bus bandwidth by process group")

    assert differs(tmp_path, expr, planted, {'{group="dp"}': 2e9}) == ""


def test_a_group_that_does_nothing_has_no_bandwidth(tmp_path: Path) -> None:
    where = OF.format("tp", "n1")
    planted = {f"tachoscope_nccl_bus_bytes_total{{{where}}}": "5x30", f"tachoscope_nccl_collective_seconds_sum{{{where}}}": "5x30"}

    assert differs(tmp_path, expression(BOARD, "Bus bandwidth by process group"), planted, {}) == ""


def test_long_operations_are_those_above_the_bound_of_a_bucket(tmp_path: Path) -> None:
    name, where = "tachoscope_nccl_collective_seconds", OF.format("dp", "n1")
    planted = {f'{name}_bucket{{{where},le="0.1"}}': "0+45x30", f"{name}_count{{{where}}}": "0+60x30"}

    assert differs(tmp_path, expression(BOARD, "Operations above 0.1 s"), planted, {'{collective="all_reduce"}': 0.25}) == ""


def test_communicators_that_run_or_end_are_not_listed_and_one_that_hangs_is_red(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_nccl_communicators{{state="{state}",instance="{node}"}}': f"{count}x30"
        for node, hung in (("n1", 0), ("n2", 2))
        for state in COMMUNICATOR_STATES
        for count in [hung if state == "hung" else 0 if state in {"incomplete", "error"} else 3]
    }

    listed = expression(BOARD, "Who reports communicators that are not well")
    assert differs(tmp_path, listed, planted, {'{instance="n2", state="hung"}': 2.0}) == ""
    assert differs(tmp_path, expression(BOARD, "Hung"), planted, {"{}": 2.0}) == ""
    assert steps(panel(BOARD, "Hung")) == [(None, palette.OK), (1.0, palette.BAD)]


def test_ranks_that_have_left_are_not_missing(tmp_path: Path) -> None:
    planted = {
        f'tachoscope_nccl_missing_ranks{{condition="{condition}",instance="n1"}}': f"{count}x30"
        for condition, count in (("not_a_member", 5), ("dead", 1), ("unresponsive", 2))
    }

    assert differs(tmp_path, expression(BOARD, "Ranks missing"), planted, {"{}": 3.0}) == ""


def test_where_nobody_asks_nothing_is_said_and_not_zero(tmp_path: Path) -> None:
    others = {'up{job="tachoscope",instance="n1"}': "1x30"}

    for title in ("Hung", "Incomplete or in error", "Ranks missing", "RAS that does not answer"):
        assert differs(tmp_path, expression(BOARD, title), others, {}) == ""


def test_events_are_drawn_so_that_one_alone_is_seen() -> None:
    assert lines_of_what_happens_now_and_then(BOARD) == []


def test_alerts_that_lead_here_are_marked_here() -> None:
    assert unmarked_alerts(BOARD) == []
