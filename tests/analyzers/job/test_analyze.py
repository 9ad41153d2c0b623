"""Planted truth: jobs made so that the cause, the culprit and the seconds are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from making import beat, job, synchronous
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import CAUSES, aligned
from tachoscope_core.records.records import PHASES
from tachoscope_core.report.report import Report

BASE = {"data_wait": 0.001, "forward": 0.030, "backward": 0.062, "optimizer": 0.004, "other": 0.001}
STEPS = 60


def step(**changes: float) -> dict[str, float]:
    return BASE | changes


def report(tmp_path: Path, own: list[list[dict[str, float]]], **options: Any) -> Report:
    steps, blocked = synchronous(own) if len(own[0]) > 1 else (own, None)
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, blocked=blocked, **options))
    return analyze(from_spool([path]))


def ranks(number: int, culprit: int | None = None, **changes: float) -> list[dict[str, float]]:
    return [step(**changes) if culprit in {None, rank} and changes else step() for rank in range(number)]


SLEEPING = [beat(rank, wait_samples={"data_wait": {"sleep": 40}}, signals={"workers": 0.0}) for rank in range(8)]
READING = [beat(rank, wait_samples={"data_wait": {"socket": 40, "sleep": 3}}, signals={"workers": 0.0}) for rank in range(8)]


@pytest.mark.parametrize("since", [0, 30, 60])
def test_a_rank_that_becomes_slow_and_stays_it_is_a_straggler(tmp_path: Path, since: int) -> None:
    own = [ranks(2, 1, forward=0.110) if number >= since else ranks(2) for number in range(120)]

    found = report(tmp_path, own).findings

    assert [(one.class_, one.ranks) for one in found] == [("compute_straggler", [1])]
    assert found[0].seconds_per_step == pytest.approx(0.080 * (120 - max(since, 2)) / 118, rel=0.02)


def test_a_rank_that_is_late_in_a_step_now_and_then_is_no_straggler(tmp_path: Path) -> None:
    own = [ranks(2, 1, forward=0.110) if number % 3 == 0 else ranks(2) for number in range(120)]

    assert "compute_straggler" not in {one.class_ for one in report(tmp_path, own).findings}


@pytest.mark.parametrize(
    ("number", "clocks_every"),
    [(2, 7), (3, 1), pytest.param(2, 1, marks=pytest.mark.bar), pytest.param(8, 1, marks=pytest.mark.bar), (8, 20)],
)
@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"data_wait": 0.080}, "input_straggler"),
        ({"forward": 0.110}, "compute_straggler"),
        ({"backward": 0.142}, "compute_straggler"),
        ({"checkpoint": 0.080}, "checkpoint_stall"),
        ({"gc": 0.080}, "host_pause"),
        ({"other": 0.081}, "unknown"),
    ],
)
def test_one_slow_rank_is_named_with_its_cause_and_its_seconds(
    tmp_path: Path, number: int, clocks_every: int, changes: dict[str, float], slug: str
) -> None:
    own = [ranks(number, number - 1, **changes)] * STEPS
    result = report(tmp_path, own, heartbeats=SLEEPING, clocks_every=clocks_every, other_cpu=0.01)

    first = result.findings[0]
    assert first.class_ == slug
    assert first.severity == "critical"
    assert first.ranks == [number - 1]
    assert first.seconds_per_step == pytest.approx(0.080, abs=0.002)
    assert first.speedup_if_fixed == pytest.approx(0.180 / 0.100, rel=0.02)
    assert [finding.class_ for finding in result.findings] == [slug]


@pytest.mark.parametrize(
    ("changes", "options", "slug"),
    [
        ({"data_wait": 0.081}, {"heartbeats": SLEEPING}, "input_workers"),
        ({"data_wait": 0.081}, {"heartbeats": READING}, "input_fetch"),
        ({"data_wait": 0.081}, {"data_cpu": 0.95}, "input_preprocess"),
        ({"data_wait": 0.081}, {}, "unknown"),
        ({"evaluation": 0.080}, {}, "host_pause"),
        ({"checkpoint": 0.080}, {}, "checkpoint_stall"),
        ({"collective": 0.080}, {}, "comm_exposed"),
    ],
)
def test_what_slows_all_ranks_alike_is_no_straggler(
    tmp_path: Path, changes: dict[str, float], options: dict[str, Any], slug: str
) -> None:
    result = report(tmp_path, [ranks(2, None, **changes)] * STEPS, **options)

    assert [finding.class_ for finding in result.findings] == [slug]
    assert result.findings[0].seconds_per_step == pytest.approx(0.080, abs=0.003)


def test_a_loader_whose_waiting_was_hardly_sampled_is_unknown_not_guessed(tmp_path: Path) -> None:
    few = [beat(rank, wait_samples={"data_wait": {"sleep": 1}}) for rank in range(2)]

    result = report(tmp_path, [ranks(2, None, data_wait=0.081)] * STEPS, heartbeats=few)

    assert result.findings[0].class_ == "unknown"
    assert result.findings[0].confidence <= 0.5


WORKERS = [
    beat(
        rank, wait_samples={"data_wait": {"sleep": 40}}, signals={"workers": 1.0, "worker_seconds": 5.0, "worker_cpu_seconds": 0.2}
    )
    for rank in range(2)
]


@pytest.mark.parametrize(("least", "expected"), [(0.014, ("input_workers", "all")), (0.001, ("input_straggler", [0]))])
def test_when_no_ranks_loader_keeps_up_the_one_that_waits_longest_is_no_straggler(
    tmp_path: Path, least: float, expected: tuple[str, object]
) -> None:
    own = [[step(data_wait=0.04), step(data_wait=least)]] * STEPS
    (finding,) = report(tmp_path, own, heartbeats=WORKERS).findings

    assert (finding.class_, finding.ranks) == expected


@pytest.mark.parametrize(("cpu", "slug"), [(4.8, "input_preprocess"), (0.3, "input_workers")])
def test_with_workers_it_is_their_cpu_time_that_counts(tmp_path: Path, cpu: float, slug: str) -> None:
    beats = [
        beat(
            rank,
            wait_samples={"data_wait": {"sleep": 30}},
            signals={"workers": 2.0, "worker_seconds": 5.0, "worker_cpu_seconds": cpu},
        )
        for rank in range(2)
    ]

    assert report(tmp_path, [ranks(2, None, data_wait=0.081)] * STEPS, heartbeats=beats).findings[0].class_ == slug


def test_a_healthy_job_is_compute_bound_and_nothing_is_invented(tmp_path: Path) -> None:
    result = report(tmp_path, [ranks(2)] * STEPS)

    assert [(finding.class_, finding.severity) for finding in result.findings] == [("compute_bound", "info")]


def test_waiting_for_a_core_is_contention_and_not_slow_computing(tmp_path: Path) -> None:
    own = [ranks(2, 1, forward=0.110)] * STEPS

    result = report(tmp_path, own, delay=[[0.0, 0.080]] * STEPS)

    assert [(finding.class_, finding.ranks) for finding in result.findings] == [("cpu_contention", [1])]


def test_a_slow_rank_that_changes_from_step_to_step_is_no_straggler(tmp_path: Path) -> None:
    own = [ranks(4, number % 4, forward=0.110) for number in range(STEPS)]

    result = report(tmp_path, own)

    assert [(finding.class_, finding.ranks) for finding in result.findings] == [("unknown", "all")]
    assert result.findings[0].runner_up is not None
    assert result.findings[0].runner_up.class_ == "comm_exposed"


@pytest.mark.parametrize(("transfer", "found"), [(0.0, "compute_bound"), (0.080, "comm_exposed")])
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_class_that_was_not_measured_is_no_runner_up(tmp_path: Path, transfer: float, found: str, world_size: int) -> None:
    own = [ranks(2)] * STEPS
    steps, blocked = synchronous(own)
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    longer = [[phases | {"backward": phases["backward"] + transfer} for phases in row] for row in steps]
    waits = [[wait + transfer for wait in row] for row in blocked]
    path.write_bytes(job(longer, blocked=waits, world_size=world_size))

    result = analyze(from_spool([path]))

    unmeasured = {row.class_ for row in result.not_measured}
    assert "network_degraded" in unmeasured
    assert [finding.class_ for finding in result.findings] == ["unknown" if world_size == 3 and transfer else found]
    assert result.findings[0].runner_up is None or result.findings[0].runner_up.class_ not in unmeasured


@pytest.mark.parametrize(("late_of_ten", "found"), [(10, True), (9, True), (7, False), (3, False)])
def test_a_rank_that_is_late_in_some_steps_only_is_no_straggler(tmp_path: Path, late_of_ten: int, found: bool) -> None:
    own = [ranks(2, 1, forward=0.030 + 0.300 / late_of_ten) if number % 10 < late_of_ten else ranks(2) for number in range(STEPS)]

    result = report(tmp_path, own)

    assert [finding.class_ for finding in result.findings if finding.severity != "info"] == ["compute_straggler"] * found


def test_a_rank_that_is_late_now_and_then_and_then_in_each_step_is_a_straggler_of_those_steps(tmp_path: Path) -> None:
    def of_step(number: int) -> list[dict[str, float]]:
        late = 0.050 if number >= 60 else 0.0 if number % 4 else 0.060
        return ranks(2, 1, forward=0.030 + late)

    (found,) = report(tmp_path, [of_step(number) for number in range(120)]).findings

    assert (found.class_, found.ranks, found.severity) == ("compute_straggler", [1], "warning")
    assert found.seconds_per_step == pytest.approx(0.050 * 60 / 118, rel=0.05), "what it lost before is not told"


def test_two_faults_on_two_ranks_are_both_found(tmp_path: Path) -> None:
    both = [step(data_wait=0.120), step(forward=0.120)]
    own = [both if number % 2 else ranks(2, 0, data_wait=0.120) for number in range(STEPS)]

    result = report(tmp_path, own, heartbeats=SLEEPING)
    lost = sum(finding.seconds_per_step for finding in result.findings)

    assert {finding.class_ for finding in result.findings} <= {"input_straggler", "compute_straggler", "input_workers"}
    assert result.findings[0].class_ == "input_straggler"
    assert lost < result.step_seconds.mean - 0.098


def test_a_checkpoint_every_tenth_step_costs_a_tenth_of_it_and_takes_its_surroundings_along(tmp_path: Path) -> None:
    own = [[step(checkpoint=0.5, other=0.1), step()] if number % 10 == 5 else ranks(2) for number in range(STEPS)]

    result = report(tmp_path, own)

    assert [(finding.class_, finding.ranks) for finding in result.findings] == [("checkpoint_stall", [0])]
    assert result.findings[0].seconds_per_step == pytest.approx(0.06, rel=0.1)
    signals = {row.signal: row.value for row in result.findings[0].evidence}
    assert signals["steps from one checkpoint to the next"] == 10
    assert signals["training stood still for one checkpoint"] == pytest.approx(0.6, rel=0.05)


def test_below_the_threshold_nothing_is_found_and_above_it_something_is(tmp_path: Path) -> None:
    assert not [f for f in report(tmp_path, [ranks(2, 1, data_wait=0.010)] * STEPS).findings if f.severity != "info"]
    assert [f.severity for f in report(tmp_path, [ranks(2, 1, data_wait=0.016)] * STEPS).findings] == ["warning"]


def test_few_steps_never_make_a_finding_critical(tmp_path: Path) -> None:
    assert {f.severity for f in report(tmp_path, [ranks(2, 1, data_wait=0.5)] * 12).findings} == {"warning"}


def test_without_all_ranks_waiting_is_unknown_and_stragglers_are_not_measured(tmp_path: Path) -> None:
    result = report(tmp_path, [ranks(2, 1, forward=0.2)] * STEPS, world_size=3)

    missing = {row.class_: row.missing for row in result.not_measured}
    assert missing["compute_straggler"] == "records of rank 2"
    assert "comm_exposed" in missing
    assert "straggler_wait" not in result.ledgers[0].states


def test_input_that_no_loader_fed_is_not_measured(tmp_path: Path) -> None:
    result = report(tmp_path, [[step(data_wait=0.0)]] * STEPS)

    assert "input_workers" in {row.class_ for row in result.not_measured}


def test_ranks_that_never_wait_for_each_other_have_no_stragglers(tmp_path: Path) -> None:
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job([ranks(2, 1, forward=0.2)] * STEPS))

    assert not [f for f in analyze(from_spool([path])).findings if f.severity != "info"]


def test_a_job_whose_cpu_clocks_were_never_read_says_that_contention_was_not_measured(tmp_path: Path) -> None:
    result = report(tmp_path, [ranks(2)] * STEPS, clocks_every=1000)

    assert "cpu_contention" in {row.class_ for row in result.not_measured}


def test_one_process_has_no_communication(tmp_path: Path) -> None:
    result = report(tmp_path, [[step()]] * STEPS)

    assert "communication" not in result.ledgers[0].states
    assert "straggler_wait" not in result.ledgers[0].states


PHASE_SECONDS = st.dictionaries(st.sampled_from(PHASES), st.floats(0.0, 0.2), min_size=1)


@settings(max_examples=settings().max_examples // 2)
@given(own=st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(PHASE_SECONDS, min_size=n, max_size=n), min_size=12, max_size=30)))
def test_whatever_the_steps_states_sum_to_the_wall_time_and_losses_to_the_step(
    own: list[list[dict[str, float]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    steps, blocked = synchronous([[phases | {"backward": phases.get("backward", 0.0) + 0.01} for phases in row] for row in own])
    path = tmp_path_factory.mktemp("job") / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job(steps, blocked=blocked))
    records = from_spool([path])

    aligned_steps = aligned(records)
    split = losses.attribute(aligned_steps)
    parts = sum((split.common[cause] + split.excess[cause].sum(axis=1) for cause in CAUSES), split.transfer)
    result = analyze(records)

    np.testing.assert_allclose(sum(aligned_steps.own.values()) + aligned_steps.waiting, aligned_steps.wall, atol=1e-8)
    np.testing.assert_allclose(parts, split.step, atol=1e-8)
    for ledger in result.ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=0.01, abs=1e-6)
    assert sum(finding.share for finding in result.findings) <= 1.0 + 1e-6
    for finding in result.findings:
        assert finding.share_ci[0] <= finding.share_ci[1]
        assert 0 <= finding.confidence <= 1


def test_seconds_that_no_record_covers_are_unexplained_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    lines = job([[step()]] * STEPS).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:30] + lines[41:]))

    ledger = analyze(from_spool([path])).ledgers[0]

    assert ledger.states["unexplained"] == pytest.approx(11 * sum(BASE.values()), rel=0.1)


def device_job(own: list[dict[str, float]], host: dict[str, float]) -> bytes:
    """Return a job on accelerators: `own[r]` are the device seconds of each step of rank r, `host` the phases of the host."""
    from making import envelope
    from tachoscope_core.records import records

    rows: list[records.Record] = []
    for rank, seconds in enumerate(own):
        rows.append(records.JobStarted(**envelope(rank), world_size=len(own), pid=1, device="cuda"))
        wall = sum(seconds.values())
        rows += [
            records.StepDone(
                **envelope(rank, number, monotonic_ns=round(number * wall * 1e9)),
                step=number,
                wall_seconds=wall,
                phase_seconds=host,
                device_seconds=seconds,
            )
            for number in range(1, STEPS)
        ]
    return b"".join(map(records.encode, rows))


def test_on_a_device_the_gap_goes_to_what_the_host_did_and_the_rest_to_launching(tmp_path: Path) -> None:
    device = {"gap": 0.05, "host_to_device": 0.02, "forward": 0.03, "backward": 0.06, "optimizer": 0.01}
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(device_job([device], {"data_wait": 0.04, "forward": 0.13}))

    result = analyze(from_spool([path]))
    states = {state: seconds / result.ledgers[0].wall_seconds for state, seconds in result.ledgers[0].states.items()}

    assert states["compute"] == pytest.approx(0.10 / 0.17, rel=0.01)
    assert states["data_wait"] == pytest.approx(0.04 / 0.17, rel=0.01)
    assert states["host_to_device"] == pytest.approx(0.02 / 0.17, rel=0.01)
    assert states["host_wait"] == pytest.approx(0.01 / 0.17, rel=0.02)
    assert "h2d_copy" in {finding.class_ for finding in result.findings}
    assert "comm_exposed" in {row.class_ for row in result.not_measured}


def test_on_devices_the_rank_with_the_shortest_backward_is_the_late_one(tmp_path: Path) -> None:
    slow = {"gap": 0.0, "forward": 0.11, "backward": 0.06, "optimizer": 0.01}
    fast = {"gap": 0.0, "forward": 0.03, "backward": 0.14, "optimizer": 0.01}
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(device_job([fast, slow], {"forward": 0.18}))

    result = analyze(from_spool([path]))

    assert [(finding.class_, finding.ranks) for finding in result.findings] == [("unknown", [1])]
    assert result.findings[0].runner_up is not None
    assert result.findings[0].runner_up.class_ == "compute_straggler", "or its clocks are held down: nobody sampled them"
    assert result.findings[0].seconds_per_step == pytest.approx(0.08, rel=0.02)
