"""The board Node and GPU: bands show the verdict of the agent and what holds clocks down, and a fleet is never drawn at once."""

from pathlib import Path

import pytest

from planted import (
    POLICY,
    differs,
    expression,
    lines_of_what_happens_now_and_then,
    made,
    panel,
    steps,
    texts,
    unmarked_alerts,
    variable,
)
from tachoscope_core.metrics import gpu as gpu_metrics
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.gpu import board as gpu_node
from tachoscope_dashboards.boards.shared import gpus as gpu_panels
from tachoscope_dashboards.parts.slo_objectives import bound
from tachoscope_node.gpu.health.rules import thresholds

BOARD = made(gpu_node.board(POLICY))
GPU = 'gpu="3",uuid="GPU-3"'


@pytest.mark.parametrize("state", gpu_metrics.GPU_HEALTH_STATES)
def test_a_band_of_health_shows_the_state_that_the_agent_says(tmp_path: Path, state: str) -> None:
    shown = texts(panel(BOARD, "Health of each GPU"))
    (number,) = [value for value, text in shown.items() if text == state]
    planted = {
        f'tachoscope_gpu_health{{instance="n1",{GPU},state="{one}"}}': f"{int(one == state)}x30"
        for one in gpu_metrics.GPU_HEALTH_STATES
    }
    expr = expression(BOARD, "Health of each GPU")
    assert differs(tmp_path, expr, planted, {f'{{instance="n1",{GPU}}}': float(number)}) == ""


def test_each_reason_for_lower_clocks_has_one_band() -> None:
    named = [reason for values, _, _ in gpu_panels.HELD_DOWN.values() for reason in values.split("|")]
    assert sorted(named) == sorted(gpu_metrics.THROTTLE_REASONS)


@pytest.mark.parametrize(
    ("holding", "shown"),
    [
        ((), "nothing"),
        (("idle",), "idle"),
        (("power_cap", "application_clocks"), "power cap"),
        (("thermal", "power_cap"), "heat, by the driver"),
        (("power_brake", "power_cap", "thermal"), "heat or power, by the hardware: half the clock or less"),
    ],
)
def test_of_several_reasons_for_lower_clocks_the_gravest_is_shown(tmp_path: Path, holding: tuple[str, ...], shown: str) -> None:
    meanings = texts(panel(BOARD, "What holds clocks down"))
    (number,) = [value for value, text in meanings.items() if text == shown]
    planted = {
        f'tachoscope_gpu_throttled{{instance="n1",{GPU},mig="",reason="{reason}"}}': f"{int(reason in holding)}x30"
        for reason in gpu_metrics.THROTTLE_REASONS
    }
    expr = expression(BOARD, "What holds clocks down")
    assert differs(tmp_path, expr, planted, {'{instance="n1",gpu="3"}': float(number)}) == ""


def test_the_table_of_what_is_wrong_is_of_all_nodes_and_says_what_to_do(tmp_path: Path) -> None:
    row = 'tachoscope_gpu_health_reason_info{instance="n2",gpu="3",uuid="GPU-3",reason="lost",action="reboot_node"}'
    expr = expression(BOARD, "What is wrong, on all nodes", node="n1", gpu="0")
    expected = {'{instance="n2",gpu="3",uuid="GPU-3",reason="lost",action="reboot_node"}': 1.0}
    assert differs(tmp_path, expr, {row: "1x30"}, expected) == ""
    overrides = panel(BOARD, "What is wrong, on all nodes")["fieldConfig"]["overrides"]
    (mappings,) = [one["value"] for override in overrides for one in override["properties"] if one["id"] == "mappings"]
    assert set(mappings[0]["options"]) == set(gpu_metrics.ACTIONS)


def test_a_node_in_the_table_of_what_is_wrong_chooses_that_node() -> None:
    overrides = panel(BOARD, "What is wrong, on all nodes")["fieldConfig"]["overrides"]
    urls = [link["url"] for one in overrides for part in one["properties"] if part["id"] == "links" for link in part["value"]]
    assert [url for url in urls if url.startswith("/d/tachoscope-gpu-node?") and "var-node=${__data.fields.Node}" in url]


def test_the_board_never_draws_all_nodes_of_a_fleet() -> None:
    node = variable(BOARD, "node")
    assert (node["multi"], node["includeAll"], node["current"]) == (True, False, {})
    assert "allValue" not in node


@pytest.mark.parametrize(("seen", "missing"), [(8, 0.0), (7, 1.0)])
def test_gpus_are_missing_that_are_expected_and_do_not_answer(tmp_path: Path, seen: int, missing: float) -> None:
    planted = {
        'tachoscope_gpus{instance="n1",kind="expected"}': "8x30",
        'tachoscope_gpus{instance="n1",kind="seen"}': f"{seen}x30",
    }
    assert differs(tmp_path, expression(BOARD, "GPUs missing"), planted, {"{}": missing}) == ""


def test_a_node_without_gpus_misses_none(tmp_path: Path) -> None:
    assert differs(tmp_path, expression(BOARD, "GPUs missing"), {'up{instance="n1"}': "1x30"}, {}) == ""


def test_bytes_are_of_the_counter_and_of_gpm_only_where_there_is_none(tmp_path: Path) -> None:
    planted = {
        'tachoscope_gpu_nvlink_bytes_total{instance="n1",gpu="0",direction="receive"}': "0+3000x30",
        'tachoscope_gpu_link_bytes_per_second{instance="n1",gpu="0",link="nvlink",direction="receive"}': "7x30",
        'tachoscope_gpu_link_bytes_per_second{instance="n2",gpu="0",link="nvlink",direction="receive"}': "8x30",
        'tachoscope_gpu_link_bytes_per_second{instance="n2",gpu="0",link="pcie",direction="receive"}': "9x30",
    }
    expected = {f'{{instance="{node}",gpu="0",direction="receive"}}': value for node, value in (("n1", 100.0), ("n2", 8.0))}
    assert differs(tmp_path, expression(BOARD, "NVLink: bytes"), planted, expected) == ""


def test_energy_is_in_watt_hours(tmp_path: Path) -> None:
    planted = {f'tachoscope_gpu_energy_joules_total{{instance="n1",gpu="{gpu}"}}': "0+15000x150" for gpu in range(2)}
    expr = expression(BOARD, "Energy in this time")
    assert differs(tmp_path, expr, planted, {'{instance="n1"}': 1000.0}, at="70m") == ""


def test_thresholds_are_those_of_the_objective_and_of_the_agents_verdict() -> None:
    underused = [(None, palette.WARN), (bound("gpu-efficiency"), palette.OK)]
    assert steps(panel(BOARD, "Multiprocessors at work")) == underused
    least = thresholds().rules["temperature_gpu"].threshold
    assert steps(panel(BOARD, "Degrees left until it slows down")) == [(None, palette.WARN), (least, palette.OK)]


def test_errors_are_drawn_so_that_one_alone_is_seen() -> None:
    assert lines_of_what_happens_now_and_then(BOARD) == []


def test_alerts_that_lead_here_are_marked_here() -> None:
    assert unmarked_alerts(BOARD) == []


@pytest.mark.parametrize(("last", "marked"), [("570", True), ("0", False)])
def test_an_xid_error_is_marked_when_it_comes_and_not_for_ever(tmp_path: Path, last: str, marked: bool) -> None:
    planted = {f'tachoscope_gpu_xid_last_seen_seconds{{instance="n1",{GPU},xid="79"}}': f"{last}x30"}
    expected = {'{instance="n1",gpu="3",xid="79"}': 30.0} if marked else {}
    assert differs(tmp_path, expression(BOARD, "Xid errors", ""), planted, expected) == ""
