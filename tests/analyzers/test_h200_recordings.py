"""Trainings recorded on a real H200, some slowed down in a known way: what is said of them, by the analysis and by the agent."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from one_ledger import of_life, of_report
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.gpu_samples import Gpus
from tachoscope_analyzers.records.load import JobRecords, from_store
from tachoscope_core.records.records import step_seconds
from tachoscope_core.storage.store import Store
from tachoscope_node.jobs.step_attribution import Clocks, attribute

RECORDED = Path(__file__).parents[1] / "recordings" / "h200"
TRUTH = json.loads((RECORDED / "truth.json").read_text())
HEALTHY_SECONDS = TRUTH["clean"]["step_seconds"]


def job(case: str) -> JobRecords:
    return from_store(Store(str(RECORDED / "store")), case)


@pytest.mark.parametrize(
    ("case", "named"),
    [
        ("clean", "compute_bound"),
        ("item_each_step", "compute_bound"),  # the device is behind, and the host has to wait for it anyway
        ("host_sync", "compute_bound"),  # costs 3 % of this step
        ("host_pause", "host_pause"),
        ("slow_read", "input_workers"),
        ("float32", "compute_inefficient"),
        ("launch_bound", "launch_bound"),  # 48 layers that are 128 wide
        ("underfilled", "launch_bound"),  # one sequence of 128 tokens: so little that launching takes longer
    ],
)
def test_the_cause_is_named_and_healthy_trainings_are_called_healthy(case: str, named: str) -> None:
    findings = analyze(job(case)).findings

    assert [finding.class_ for finding in findings if finding.severity != "info"] == ([named] if named != "compute_bound" else [])
    assert findings[0].class_ == named


@pytest.mark.parametrize("case", ["host_pause", "slow_read"])
def test_the_lost_share_is_what_the_training_lost_by_its_own_clock(case: str) -> None:
    truth = 1.0 - HEALTHY_SECONDS / TRUTH[case]["step_seconds"]

    assert analyze(job(case)).findings[0].share == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize("case", list(TRUTH))
def test_a_step_takes_as_long_as_the_training_measured_and_its_states_sum_to_it(case: str) -> None:
    report = analyze(job(case))

    ledger = report.ledgers[0]
    assert report.step_seconds.p50 == pytest.approx(TRUTH[case]["step_seconds"], rel=0.05)
    assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=1e-6)


@pytest.mark.parametrize("case", list(TRUTH))
def test_the_agent_accounts_the_steps_as_the_analysis_does(case: str) -> None:
    found = job(case)
    report = analyze(found)
    steps = [step for step in found.steps if step.device_seconds][-report.window.steps :]
    clocks, states = Clocks(), dict.fromkeys(["compute", "data_wait", "host_wait", "host_to_device"], 0.0)
    for beat in found.heartbeats:
        clocks.see(beat)
    for step in steps:
        part = attribute(step, clocks, together=False)
        part.states["compute"] += part.exchange
        for state in states:
            states[state] += part.states.get(state, 0.0)

    ledger = report.ledgers[0]
    wall = sum(map(step_seconds, steps))
    for state in ("compute", "data_wait", "host_to_device", "host_wait"):
        assert states[state] / wall == pytest.approx(ledger.states.get(state, 0.0) / ledger.wall_seconds, abs=0.02)


@pytest.mark.parametrize("case", list(TRUTH))
def test_the_ledger_of_its_life_is_that_of_its_report(case: str) -> None:
    life, report = of_life(job(case)), of_report(job(case))

    for states in (life, report):  # by the host's clock here, there by the device's: they agree over many steps only
        del states["unexplained"]
    assert life == pytest.approx(report, rel=1e-9, abs=1e-9)


def test_without_samples_of_the_gpu_a_device_that_keeps_up_with_its_host_is_not_called_healthy() -> None:
    blind = analyze(replace(job("launch_bound"), gpus=Gpus()))
    busy = analyze(replace(job("clean"), gpus=Gpus()))

    assert blind.findings == []
    assert "launch_bound" in {row.class_ for row in blind.not_measured}
    assert [finding.class_ for finding in busy.findings] == ["compute_bound"]
