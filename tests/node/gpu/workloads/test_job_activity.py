"""What a job's histogram counts: each reading of each of its GPUs once, while it does steps, whoever told of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import collected

from tachoscope_core.metrics.gpu import GPU_ACTIVE, GPU_ENERGY, GPU_POWER, GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD
from tachoscope_core.metrics.training import JOB_SM_ACTIVE
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.gpu.dcgm.merge import merged
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_node.gpu.workloads.collector import INTERVAL_SECONDS, PodsCollector
from tachoscope_node.gpu.workloads.job_sm_activity import JobActivity
from tachoscope_node.gpu.workloads.join import Rank, WorkloadSnapshot, families
from tachoscope_service.metrics.family import Histogram, Labels


def gpu(index: int) -> Gpu:
    return Gpu(index, f"GPU-0000000{index}-1111-2222-3333-444444444444")


def said(active: float | None, at: float, of: Gpu | None = None, *, up: bool = True) -> Reading:
    values: dict[str, dict[Labels, float]] = {GPU_POWER.name: {("usage",): 300.0}}
    if active is not None:
        values[GPU_ACTIVE.name] = {("sm",): active, ("dram",): 1.0}
    return Reading(of or gpu(0), up=up, values=values if up else {}, at=at)


def rank(job: str, number: int, of: Gpu | None = None, *, stepped: bool = True) -> Rank:
    return Rank(job, str(number), gpu_uuid=(of or gpu(0)).uuid, stepped=stepped)


class Looks:
    """Looks every ten seconds at what is given, and knows what was counted."""

    def __init__(self) -> None:
        self.activity = JobActivity()
        self.now = 1000.0

    def __call__(self, readings: Sequence[Reading], ranks: Sequence[Rank]) -> dict[str, Histogram]:
        """Return the histograms by job as they are after this look."""
        self.now += INTERVAL_SECONDS
        who, *_ = families(WorkloadSnapshot(readings, {}, {}, ranks))
        found = self.activity.update(readings, ranks, who, self.now)
        assert all(family.metric is JOB_SM_ACTIVE and family.points for family in found)
        counted: dict[str, Histogram] = {}
        for family in found:
            for (job,), histogram in family.points:
                assert isinstance(histogram, Histogram)
                counted[job] = histogram
        return counted


def count(histogram: Histogram) -> int:
    return sum(histogram.counts)


def test_each_gpu_of_a_job_is_one_observation_a_look_in_its_bucket() -> None:
    look = Looks()
    ranks = [rank("llm", number, gpu(number)) for number in range(4)]
    planted = (0.05, 0.35, 0.3, 0.95)
    for _ in range(5):
        found = look([said(active, look.now + 9.0, gpu(number)) for number, active in enumerate(planted)], ranks)["llm"]

    assert found.counts == (5, 0, 5, 5, 0, 0, 0, 0, 0, 5)
    assert found.sum == pytest.approx(5 * sum(planted))


def test_the_same_reading_is_not_counted_twice_and_one_from_before_the_steps_not_at_all() -> None:
    look, before = Looks(), said(0.1, 1001.0)
    assert count(look([before], [rank("llm", 0, stepped=False)])["llm"]) == 0
    assert count(look([before], [rank("llm", 0)])["llm"]) == 0, "it says how the GPU was before the job did steps"
    for exporters_look in range(3):
        reading = said(0.5, look.now + 5.0)
        for _ in range(3):
            assert look([reading], [rank("llm", 0)])["llm"].sum == pytest.approx(0.5 * (exporters_look + 1))


def test_what_an_exporter_fills_in_is_as_old_as_the_exporters_reading_however_new_the_drivers_is() -> None:
    look, found = Looks(), {}
    for number in range(9):
        nvml = Reading(gpu(0), values={GPU_ENERGY.name: {(): float(number)}}, at=look.now + 9.0)
        if number % 3 == 0:
            exporter = Reading(gpu(0), values={GPU_ACTIVE.name: {("sm",): 0.6}}, source="dcgm", at=look.now + 8.0)
        found = look(merged([nvml], [exporter]), [rank("llm", 0)])
    assert found["llm"].sum == pytest.approx(3 * 0.6)

    own = [said(0.6, look.now + 9.0)]
    assert look(merged(own, [exporter]), [rank("llm", 0)])["llm"].sum == pytest.approx(4 * 0.6), "the driver's own word is new"


def test_a_job_counts_only_while_one_of_its_ranks_does_steps_and_any_of_them_will_do() -> None:
    look = Looks()
    ranks = [rank("llm", 0, gpu(0), stepped=False), rank("llm", 1, gpu(1), stepped=False)]

    def both() -> list[Reading]:
        return [said(0.5, look.now + 9.0, gpu(number)) for number in (0, 1)]

    assert count(look(both(), ranks)["llm"]) == 0, "it is there at 0 before its first step"
    assert count(look(both(), [ranks[0], rank("llm", 1, gpu(1))])["llm"]) == 2
    assert count(look(both(), ranks)["llm"]) == 2


def test_a_gpu_that_two_jobs_share_counts_once_for_each_and_two_ranks_of_one_job_are_one() -> None:
    look = Looks()
    found = look([said(0.5, look.now + 9.0)], [rank("a", 0), rank("a", 1), rank("b", 0), rank("idle", 0, stepped=False)])

    assert {job: count(histogram) for job, histogram in found.items()} == {"a": 1, "b": 1, "idle": 0}


def test_instances_of_a_gpu_are_readings_of_their_own() -> None:
    look, whole = Looks(), gpu(0)
    slices = [Gpu(0, f"MIG-0000000{number}-1111-2222-3333-444444444444", str(number), whole.uuid) for number in (1, 2)]
    readings = [said(None, 1009.0, whole), said(0.2, 1009.0, slices[0]), said(0.9, 1009.0, slices[1])]
    found = look(readings, [rank("a", 0, slices[0]), rank("b", 0, slices[1])])

    assert {job: histogram.sum for job, histogram in found.items()} == {"a": 0.2, "b": 0.9}


def test_a_gpu_that_cannot_tell_or_is_down_is_none_of_a_jobs_observations() -> None:
    look = Looks()
    assert look([said(None, 1009.0)], [rank("llm", 0)]) == {}
    assert look([said(0.5, 1019.0, up=False)], [rank("llm", 0)]) == {}
    assert look([said(0.5, 1029.0)], []) == {}
    assert count(look([said(0.5, 1039.0)], [rank("llm", 0)])["llm"]) == 1
    assert count(look([], [rank("llm", 0)])["llm"]) == 1, "what was counted stays while the GPU tells nothing"


def test_a_job_goes_with_its_last_rank_on_the_node_and_begins_anew() -> None:
    look = Looks()
    assert count(look([said(0.5, 1009.0)], [rank("llm", 0), rank("other", 0)])["llm"]) == 1
    assert look([said(0.5, 1019.0)], [rank("other", 0)]).keys() == {"other"}
    assert count(look([said(0.5, 1029.0)], [rank("llm", 0), rank("other", 0)])["llm"]) == 1


_LOOK = st.tuples(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0.0, 1.0), st.booleans()), unique_by=lambda told: told[0], max_size=4),
    st.sets(st.sampled_from("abc")),
)


@given(st.lists(_LOOK, max_size=12))
def test_observations_are_the_new_readings_of_the_gpus_of_jobs_that_do_steps(
    looks: Iterable[tuple[list[tuple[int, float, bool]], set[str]]],
) -> None:
    """GPU 0 is a's, 1 is b's, 2 is shared by both, and 3 is c's."""
    owners = {0: "a", 1: "b", 2: "ab", 3: "c"}
    look, truth, sums, last = Looks(), Counter[str](), Counter[str](), dict[int, Reading]()
    found: dict[str, Histogram] = {}
    for told, stepping in looks:
        ranks = [rank(job, index, gpu(index), stepped=job in stepping) for index, jobs in owners.items() for job in jobs]
        readings = []
        for index, active, renewed in told:
            if renewed or index not in last:
                last[index] = said(active, look.now + 1.0 + index, gpu(index))
                for job in set(owners[index]) & stepping:
                    truth[job] += 1
                    sums[job] += active  # type: ignore[assignment]
            readings.append(last[index])
        found = look(readings, ranks)

    assert {job: count(histogram) for job, histogram in found.items() if count(histogram)} == dict(truth)
    assert {job: found[job].sum for job in truth} == pytest.approx({job: sums[job] for job in truth})


def test_the_collector_without_jobs_or_gpus_has_no_data_as_before_and_with_both_it_has_the_activity_too(tmp_path: Path) -> None:
    readings: list[Reading] = [said(0.5, 1.0)]
    ranks: list[Rank] = []
    collector = PodsCollector(lambda: readings, lambda: ranks, proc=str(tmp_path))
    with pytest.raises(NoDataError):
        collected(collector)
    ranks.append(rank("llm", 0))
    assert [family.metric for family in collected(collector)] == [GPU_WORKLOAD, GPU_WORKLOAD_MEMORY, GPUS_HELD, JOB_SM_ACTIVE]
    readings[0] = said(None, 2.0)
    assert [family.metric for family in collected(collector)][:2] == [GPU_WORKLOAD, GPU_WORKLOAD_MEMORY]
    ranks.clear()
    with pytest.raises(NoDataError):
        collected(collector)
    readings.clear()
    ranks.append(rank("llm", 0))
    with pytest.raises(NoDataError):
        collected(collector)
