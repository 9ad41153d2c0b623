"""The board Suite health: it names agents that are away, and tells nothing wrong from nothing known."""

from pathlib import Path

import pytest

from planted import POLICY, differs, expression, lines_of_what_happens_now_and_then, made, panel, steps, unmarked_alerts
from tachoscope_dashboards.boards.suite import board as agents

BOARD = made(agents.board(POLICY))
JOB = 'job="monitoring/tachoscope-agent"'


def test_a_node_without_an_agent_is_named_whether_or_not_agents_have_ports(tmp_path: Path) -> None:
    planted = {f'node_uname_info{{instance="e{node}:9100",nodename="{node}"}}': "1x30" for node in ("n1", "n2", "n3")}
    planted |= {f'tachoscope_agent_info{{{JOB},instance="{name}",version="1"}}': "1x30" for name in ("n1", "n2:9465")}
    expr = expression(BOARD, "Nodes without an agent", node="n1")
    assert differs(tmp_path, expr, planted, {'{nodename="n3"}': 1.0}) == ""


def test_an_agent_that_answers_now_and_then_is_listed_with_the_part_that_it_answered(tmp_path: Path) -> None:
    planted = {
        f'up{{{JOB},instance="n1"}}': "1x30",
        f'up{{{JOB},instance="n2"}}': "1x15 0x10",
        f'up{{{JOB},instance="n3"}}': "1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0",
        'up{job="node-exporter",instance="n4"}': "0x30",
    }
    expr = expression(BOARD, "Agents that do not answer, or not always")
    expected = {f'{{{JOB},instance="n2"}}': 0.5, f'{{{JOB},instance="n3"}}': 0.5}
    assert differs(tmp_path, expr, planted, expected, at="10m15s") == ""


@pytest.mark.parametrize(("ups", "expected"), [(("1", "1"), {"{}": 0.0}), (("1", "0"), {"{}": 1.0}), ((), {})])
def test_none_down_is_0_and_no_agent_is_nothing(tmp_path: Path, ups: tuple[str, ...], expected: dict[str, float]) -> None:
    planted = {f'up{{{JOB},instance="n{number}"}}': f"{up}x30" for number, up in enumerate(ups)} or {"other": "1x30"}
    assert differs(tmp_path, expression(BOARD, "Agents down"), planted, expected) == ""


@pytest.mark.parametrize(("failing", "count"), [((), 0.0), (("nvml", "disk"), 2.0)])
def test_failing_collectors_are_counted_though_their_series_is_there_only_while_they_fail(
    tmp_path: Path, failing: tuple[str, ...], count: float
) -> None:
    planted = {'tachoscope_agent_info{instance="n1",version="1"}': "1x30"}
    planted |= {f'tachoscope_collector_failing_seconds{{instance="n1",collector="{one}"}}': "60x30" for one in failing}
    assert differs(tmp_path, expression(BOARD, "Collectors failing"), planted, {"{}": count}) == ""


def test_another_version_is_marked_when_it_begins(tmp_path: Path) -> None:
    planted = {
        'tachoscope_agent_info{instance="n1",version="1"}': "1x30",
        'tachoscope_agent_info{instance="n2",version="1"}': "1x18 _x12",
        'tachoscope_agent_info{instance="n2",version="2"}': "_x19 1x11",
    }
    expr = expression(BOARD, "Other version", "")
    assert differs(tmp_path, expr, planted, {'{version="2"}': 1.0}) == ""
    assert differs(tmp_path, expr, planted, {}, at="13m") == ""


def test_a_group_of_rules_is_late_when_it_takes_its_whole_interval(tmp_path: Path) -> None:
    labels = '{instance="p:9090",rule_group="slow"}'
    planted = {
        f"prometheus_rule_group_last_duration_seconds{labels}": "30x30",
        f"prometheus_rule_group_interval_seconds{labels}": "30x30",
    }
    title = "Rules: time of an evaluation, of the interval"
    assert differs(tmp_path, expression(BOARD, title), planted, {labels: 1.0}) == ""
    assert steps(panel(BOARD, title))[-1][0] == 1.0


def test_events_are_drawn_so_that_one_alone_is_seen() -> None:
    assert lines_of_what_happens_now_and_then(BOARD) == []


def test_alerts_that_lead_here_are_marked_here() -> None:
    assert unmarked_alerts(BOARD) == []


def test_the_watch_is_as_old_as_the_newest_cycle_of_any_of_its_pods_whatever_nodes_are_chosen(tmp_path: Path) -> None:
    name, job = "tachoscope_watch_last_cycle_timestamp_seconds", 'job="monitoring/tachoscope-agent-watch"'
    planted = {f'{name}{{{job},instance="w1"}}': "0x40", f'{name}{{{job},instance="w2"}}': "0+60x8 480x20"}
    expr = expression(BOARD, "Last analysis of all jobs", node="n1")

    assert differs(tmp_path, expr, planted, {"{}": 120.0}, at="10m") == ""


def test_a_watch_that_does_not_answer_is_no_agent_that_is_down(tmp_path: Path) -> None:
    planted = {f'up{{{JOB},instance="n1"}}': "1x30", f'up{{{JOB[:-1]}-watch",instance="w1"}}': "0x30"}

    assert differs(tmp_path, expression(BOARD, "Agents down"), planted, {"{}": 0.0}) == ""
    assert differs(tmp_path, expression(BOARD, "Agents that do not answer, or not always"), planted, {}) == ""
