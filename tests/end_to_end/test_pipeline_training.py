"""Real processes: a home-grown pipeline over gloo, and a network that becomes slower in the middle of a training."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from helpers import records_of, run_watched
from processes import free_port
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.report.report import Finding

TRAININGS = Path(__file__).parents[1] / "trainings"
MICRO_BATCHES = 4


def trained(tmp_path: Path, *options: str) -> tuple[dict[str, Finding], list[float]]:
    """Run the pipeline; return the findings by class, largest first, and the seconds per step that each rank's layers took."""
    done = run_watched(tmp_path, sys.executable, str(TRAININGS / "pipeline_training.py"), str(free_port()), "60", *options)
    assert done.returncode == 0, done.stderr
    assert "fault of the probe" not in done.stderr
    layers = dict(re.findall(r"rank (\d+) step \S+ layers (\d+\.\d{6})", done.stdout))
    found = analyze(records_of(tmp_path)).findings
    return {one.class_: one for one in reversed(found)}, [float(layers[rank]) for rank in sorted(layers)]


@pytest.mark.bar
def test_a_chain_of_stages_is_known_by_its_messages_and_waits_for_the_bubble(tmp_path: Path) -> None:
    found, layers = trained(tmp_path)

    bubble = found["pipeline_bubble"]
    assert {row.signal: row.value for row in bubble.evidence if row.signal in {"stages", "micro-batches"}} == {
        "stages": 2,
        "micro-batches": MICRO_BATCHES,
    }
    assert bubble.seconds_per_step == pytest.approx(sum(layers) / 2 / MICRO_BATCHES, rel=0.35)  # other processes compute beside it
    assert not {"compute_straggler", "stage_imbalance"} & set(found)


@pytest.mark.bar  # the lab causes it, and test_replay finds it in recorded traces
def test_a_stage_with_most_layers_is_named_and_is_no_straggler(tmp_path: Path) -> None:
    found, layers = trained(tmp_path, "--layers", "2,8,2")

    assert found["stage_imbalance"].ranks == [1]
    truth = (MICRO_BATCHES - 1) / MICRO_BATCHES * (layers[1] - sum(layers) / 3)
    assert found["stage_imbalance"].seconds_per_step == pytest.approx(truth, rel=0.35)
    assert "compute_straggler" not in found


@pytest.mark.bar
def test_a_slow_rank_of_a_stage_is_a_straggler_and_its_stage_is_not(tmp_path: Path) -> None:
    found, layers = trained(tmp_path, "--replicas", "2", "--late", "3")

    assert found["compute_straggler"].ranks == [3]
    assert found["compute_straggler"].seconds_per_step == pytest.approx(layers[3] - layers[2], rel=0.35)
    assert "stage_imbalance" not in found


@pytest.mark.bar
def test_one_forward_one_backward_with_asynchronous_messages_is_seen_as_well(tmp_path: Path) -> None:
    found, _ = trained(tmp_path, "--layers", "2,2,8", "--schedule", "1f1b", "--asynchronous")

    assert found["stage_imbalance"].ranks == [2]


LOOPBACK = (
    "ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 400ms 2>/dev/null && tc qdisc del dev lo root"
)


@pytest.mark.alone
@pytest.mark.bar  # caused in the lab, too
@pytest.mark.skipif(
    os.geteuid() != 0 or any(shutil.which(tool) is None for tool in ("unshare", "ip", "tc")),
    reason="needs root, unshare and iproute2 to limit a network of its own",
)
def test_a_network_that_becomes_slower_is_degraded_from_there_on(tmp_path: Path) -> None:
    shell = f'{LOOPBACK} || exit 99; exec "$@"'
    training = (sys.executable, str(TRAININGS / "network_training.py"), "29533", "80", "--slow-from", "40")
    done = run_watched(tmp_path, "unshare", "-n", "sh", "-c", shell, "sh", *training)
    if done.returncode == 99:
        pytest.skip("no traffic control in a network namespace here")
    assert done.returncode == 0, done.stderr
    before, after = map(float, re.findall(r"rank 0 step before (\d+\.\d{5}) after (\d+\.\d{5})", done.stdout)[0])
    found = {one.class_: one for one in analyze(records_of(tmp_path)).findings}

    assert found["network_degraded"].ranks == "all"
    assert found["network_degraded"].seconds_per_step == pytest.approx((after - before) / 2, rel=0.35)
