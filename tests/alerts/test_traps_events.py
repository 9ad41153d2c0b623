"""Known traps of alerting, each with the expression that falls into it and our alert, which does not, on the same series."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from event_cases import Case, alerts, block, promtool_test, rule_labels

ALERTS = alerts()
pytestmark = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")


@dataclass(frozen=True, slots=True)
class Trap:
    """Series, and what becomes of them.

    Attributes:
        naive: what others write. seen: whether it gives anything at that time.
        firing: our alert, with the labels of the series, or None where it has to be quiet.
    """

    what: str
    naive: str
    seen: bool
    alert: str
    firing: dict[str, str] | None
    series: dict[str, str]
    at: str
    interval: str = "30s"


CORRUPT = 'tachoscope_checkpoint_verifications_total{training_job="llama",result="corrupt",instance="n1"}'
REASON = 'tachoscope_gpu_health_reason_info{{gpu="3",uuid="GPU-3",reason="{}",action="{}",instance="n"}}'
TRAPS = (
    Trap(
        what="8: all are down, so that there is nothing to count",
        naive="sum by (service) (tachoscope_server_up) == 0",
        seen=False,
        alert="InferenceDown",
        firing={"service": "chat"},
        series={'tachoscope_server_up{service="chat",instance="n1"}': "1x160"},
        at="95m",
    ),
    Trap(
        what="8: no agent is scraped any more, so that none is down",
        naive='up{job=~".*tachoscope.*"} == 0',
        seen=False,
        alert="AgentDown",
        firing={"job": "tachoscope"},
        series={
            'up{job="tachoscope",instance="n1"}': "1x160",
            'tachoscope_agent_info{job="tachoscope",instance="n1",version="0.1.0"}': "1x160",
        },
        at="95m",
    ),
    Trap(
        what="8: the watch is gone, so that no cycle of it is old",
        naive="time() - tachoscope_watch_last_cycle_timestamp_seconds > 600",
        seen=False,
        alert="WatchStalled",
        firing={"job": "tachoscope-watch"},
        series={'tachoscope_watch_last_cycle_timestamp_seconds{job="tachoscope-watch",instance="w1"}': "0+60x30 stale"},
        at="50m",
        interval="1m",
    ),
    Trap(
        what="4: an average of what is there takes five bad minutes for half an hour of them",
        naive="avg_over_time(tachoscope_bottleneck_ratio[30m]) > 0.2",
        seen=True,
        alert="TrainingBottleneck",
        firing=None,
        series={
            'tachoscope_watch_share_ratio{job="tachoscope-watch",instance="w1"}': "1x60",
            'tachoscope_bottleneck_ratio{job="tachoscope-watch",instance="w1",training_job="a",class="input_fetch"}': "_x50 0.5x5",
        },
        at="55m",
        interval="1m",
    ),
    Trap(
        what="6: a counter that is born at 1 never grew",
        naive='increase(tachoscope_checkpoint_verifications_total{result="corrupt"}[1h]) > 0',
        seen=False,
        alert="TrainingCheckpointCorrupt",
        firing={"training_job": "llama"},
        series={CORRUPT: "_x20 1x20"},
        at="15m",
    ),
    Trap(
        what="6: an old counter that comes back with its agent is no news",
        naive="tachoscope_checkpoint_verifications_total unless tachoscope_checkpoint_verifications_total offset 1h",
        seen=True,
        alert="TrainingCheckpointCorrupt",
        firing=None,
        series={CORRUPT: "1x410 _x14 1x60"},
        at="8h",
        interval="1m",
    ),
    Trap(
        what="17: the first Xid error, whose counter is born at 1",
        naive="increase(tachoscope_gpu_xid_errors_total[1h]) > 0",
        seen=False,
        alert="GpuXidError",
        firing={"instance": "n", "gpu": "3", "uuid": "GPU-3", "reason": "xid_79", "action": "reboot_node"},
        series={
            'tachoscope_gpu_xid_errors_total{gpu="3",uuid="GPU-3",xid="79",instance="n"}': "_x10 1x20",
            REASON.format("xid_79", "reboot_node"): "_x10 1x20",
        },
        at="10m",
    ),
    Trap(
        what="17: a second error of the same code changes no gauge of the last one",
        naive="changes(DCGM_FI_DEV_XID_ERRORS[30m]) > 1",
        seen=False,
        alert="GpuXidError",
        firing={"instance": "n", "gpu": "3", "uuid": "GPU-3", "reason": "xid_119", "action": "reset_gpu"},
        series={
            'DCGM_FI_DEV_XID_ERRORS{gpu="3",instance="n"}': "0x5 119x40",
            'tachoscope_gpu_xid_errors_total{gpu="3",uuid="GPU-3",xid="119",instance="n"}': "_x6 1x9 2x30",
            REASON.format("xid_119", "reset_gpu"): "_x6 1x40",
        },
        at="20m",
    ),
    Trap(
        what="17: an error that was fixed counts for ever",
        naive="tachoscope_gpu_xid_errors_total > 0",
        seen=True,
        alert="GpuXidError",
        firing=None,
        series={'tachoscope_gpu_xid_errors_total{gpu="3",uuid="GPU-3",xid="119",instance="n"}': "1x40"},
        at="10m",
    ),
    Trap(
        what="20: a job whose processes are stopped reports no lost time itself",
        naive="sum by (training_job) (rate(tachoscope_time_seconds_total[10m])) > 0",
        seen=False,
        alert="TrainingNoProgress",
        firing={"training_job": "llama"},
        series={
            'tachoscope_job_active{training_job="llama",instance="n1"}': "1x60",
            'tachoscope_job_ranks{training_job="llama",state="working",instance="n1"}': "1x32 0x28",
            'tachoscope_job_ranks{training_job="llama",state="silent",instance="n1"}': "0x32 1x28",
            'tachoscope_step_seconds_count{training_job="llama",instance="n1"}': "0+30x30 900x30",
            'tachoscope_time_seconds_total{training_job="llama",rank="0",state="compute",instance="n1"}': "0+30x30 900x30",
        },
        at="28m",
    ),
    Trap(
        what="15: a checkpoint that never was has no age",
        naive="time() - tachoscope_checkpoint_verified_timestamp_seconds > 7200",
        seen=False,
        alert="TrainingCheckpointTooOld",
        firing={"training_job": "llama"},
        series={
            'tachoscope_job_active{training_job="llama",instance="n1"}': "1x150",
            'tachoscope_step_seconds_count{training_job="llama",instance="n1"}': "0+60x150",
        },
        at="130m",
        interval="1m",
    ),
    Trap(
        what="16: scrapes that fail now and then",
        naive="sum by (training_job) (rate(tachoscope_step_seconds_count[1m])) > 0",
        seen=False,
        alert="TrainingNoProgress",
        firing=None,
        series={
            'tachoscope_job_active{training_job="llama",instance="n1"}': "1 _x5 " * 8,
            'tachoscope_job_ranks{training_job="llama",state="working",instance="n1"}': "1 _x5 " * 8,
            'tachoscope_step_seconds_count{training_job="llama",instance="n1"}': " ".join(f"{180 * k} _x5" for k in range(8)),
        },
        at="21m30s",
    ),
    Trap(
        what="13: one failure of many processes is one failure",
        naive="sum by (training_job) (increase(tachoscope_worker_failures_total[1h])) > 2.5",
        seen=True,
        alert="TrainingWorkersFailing",
        firing=None,
        series={
            'tachoscope_worker_failures_total{training_job="llama",host="n1",instance="n1"}': "0x9 8x49",
            'tachoscope_restarts_total{training_job="llama",instance="n1"}': "0x9 1x49",
            'tachoscope_step_seconds_count{training_job="llama",instance="n1"}': "0+60x59",
        },
        at="50m",
        interval="1m",
    ),
    Trap(
        what="7: a node that leaves takes its count with it, and what others drop is seen all the same",
        naive=(
            "sum by (training_job) (tachoscope_records_dropped_total)"
            " - sum by (training_job) (tachoscope_records_dropped_total offset 1h) > 0"
        ),
        seen=False,
        alert="AgentDroppingRecords",
        firing={"training_job": "llama"},
        series={
            'tachoscope_records_dropped_total{training_job="llama",instance="n1"}': "100x70",
            'tachoscope_records_dropped_total{training_job="llama",instance="n2"}': "0x80 30x20",
        },
        at="90m",
        interval="1m",
    ),
)


def test_ours_does_not_fall_into_the_trap_that_the_naive_expression_falls_into(tmp_path: Path) -> None:
    done = promtool_test(tmp_path, list(ALERTS.values()), [of_trap(trap) for trap in TRAPS])

    assert done.returncode == 0, done.stdout + done.stderr


def of_trap(trap: Trap) -> dict[str, Any]:
    series = [{"series": name, "values": values.strip()} for name, values in trap.series.items()]
    case = Case(trap.alert, trap.what, trap.firing is not None, trap.interval, series, trap.at)
    found = block(case, [] if trap.firing is None else [rule_labels(ALERTS[trap.alert]) | trap.firing])
    count = {"labels": "{}", "value": int(trap.seen)}
    naive = {"expr": f"clamp_max(count({trap.naive}) or vector(0), 1)", "eval_time": trap.at, "exp_samples": [count]}
    return found | {"promql_expr_test": [naive]}


def test_11_no_alert_waits_for_its_expression_to_hold() -> None:
    """One good evaluation would set the wait back: a fault that pauses for a moment would never be told."""
    assert not [name for name, alert in ALERTS.items() if "for" in alert]


def test_11_a_service_that_answers_one_look_in_ten_is_one_alert_and_not_many(tmp_path: Path) -> None:
    values = ("1x160 " + "0x8 1 " * 6).strip()
    series = [{"series": 'tachoscope_server_up{service="chat",instance="n1"}', "values": values}]
    labels = rule_labels(ALERTS["InferenceDown"]) | {"service": "chat"}
    times = ("83m", "85m30s", "88m", "90m", "95m")
    blocks = [block(Case("InferenceDown", f"flapping, at {at}", True, "30s", series, at), [labels]) for at in times]
    done = promtool_test(tmp_path, [ALERTS["InferenceDown"]], blocks)

    assert done.returncode == 0, done.stdout + done.stderr


HUNG = {
    'tachoscope_job_active{training_job="llama",instance="n1"}': "1x80",
    'tachoscope_job_ranks{training_job="llama",state="working",instance="n1"}': "1x20 0x60",
    'tachoscope_job_ranks{training_job="llama",state="hung",instance="n1"}': "0x20 1x60",
    'tachoscope_job_ranks{training_job="llama",state="silent",instance="n1"}': "0x80",
    'tachoscope_step_seconds_count{training_job="llama",instance="n1"}': "0+60x20 1200x60",
    'tachoscope_hangs_total{training_job="llama",instance="n1"}': "0x20 1x60",
    'tachoscope_worker_failures_total{training_job="llama",host="n1",instance="n1"}': "0x80",
    'tachoscope_checkpoint_verified_timestamp_seconds{training_job="llama",instance="n1"}': "0x80",
}
FAILED = HUNG | {
    'tachoscope_job_ranks{training_job="llama",state="hung",instance="n1"}': "0x80",
    'tachoscope_job_ranks{training_job="llama",state="silent",instance="n1"}': "0x20 1x60",
    'tachoscope_hangs_total{training_job="llama",instance="n1"}': "0x80",
    'tachoscope_worker_failures_total{training_job="llama",host="n1",instance="n1"}': "0x20 8x60",
}


@pytest.mark.parametrize(("series", "page"), [(HUNG, "CollectiveHang"), (FAILED, "TrainingJobStuckInRecovery")])
def test_18_one_fault_of_a_job_is_one_page_without_any_inhibition(series: dict[str, str], page: str, tmp_path: Path) -> None:
    """What inhibits another alert goes on to do so when it is inhibited itself; so pages tell themselves apart."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    pages = [alert for alert in ALERTS.values() if alert["severity"] == "page"]
    times = ("38m", "45m", "60m", "70m")
    found = block(Case(page, "one page", True, "1m", given, times[0]), [])
    found["alert_rule_test"] = [
        {
            "eval_time": at,
            "alertname": alert["alert"],
            "exp_alerts": [{"exp_labels": rule_labels(alert) | {"training_job": "llama"}}] if alert["alert"] == page else [],
        }
        for at in times
        for alert in pages
    ]
    done = promtool_test(tmp_path, pages, [found], together=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_18_no_label_by_which_alerts_are_inhibited_is_there_and_empty() -> None:
    """Alertmanager takes two alerts that both lack a label for alike: so a label that it is asked for has to tell something."""
    for alert in ALERTS.values():
        assert all(value for value in rule_labels(alert).values())
        assert "slo" not in alert or alert["slo"].startswith(("training-", "inference-", "gpu-"))
