import pickle
from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from planting_ranks import Group, PlantedJob
from recorded import recorded
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions, summarise

SMALL = SummaryOptions(judged=False)


def test_a_summary_is_small_whatever_the_size_of_the_trace(tmp_path: Path) -> None:
    sizes = []
    for steps in (50, 500):
        trace = PlantedJob(1, [Group("0", [0])], steps=steps).traces()[0]
        found = summarise(trace.write(tmp_path / f"{steps}.json"), SummaryOptions(collectives=40, judged=False))
        assert len(found.arrivals) == 40 and found.collectives == steps
        sizes.append(len(pickle.dumps(found)) - 24 * steps)  # steps are kept, up to a cap
    assert sizes[1] <= sizes[0] + 500


def test_the_first_collectives_are_kept_so_that_ranks_keep_the_same(tmp_path: Path) -> None:
    trace = PlantedJob(1, [Group("0", [0])], steps=9).traces()[0]
    found = summarise(trace.write(tmp_path / "t.json"), SummaryOptions(collectives=4, judged=False))
    assert found.arrivals["step"].tolist() == [0, 1, 2, 3]


def test_times_are_unix_time_where_the_trace_tells_it(tmp_path: Path) -> None:
    trace = Planted()
    trace.extra["baseTimeNanoseconds"] = 10**18
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5_000, 2_000)
    found = summarise(trace.write(tmp_path / "t.json"), SMALL)
    assert found.arrivals["start_ns"].tolist() == [10**18 + 5_000]
    assert (found.start_ns, found.end_ns) == (10**18 + 5_000, 10**18 + 7_000)


def test_groups_without_a_name_are_told_apart_by_their_streams(tmp_path: Path) -> None:
    trace = Planted()
    for place, stream in enumerate((31, 29, 31)):
        trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10_000 * place, 2_000, stream=stream)
    trace.kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        90_000,
        2_000,
        stream=30,
        **{"Process Group Name": "4", "Collective name": "allreduce"},
    )
    found = summarise(trace.write(tmp_path / "t.json"), SMALL)
    assert found.arrivals["channel"].tolist() == [1, 0, 1, -1]


def test_the_ranks_of_a_large_group_do_not_make_the_summary_large(tmp_path: Path) -> None:
    trace = Planted()
    ranks = {"Process Group Ranks": str(list(range(20_000))), "Collective name": "allreduce", "Process Group Name": "1"}
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1_000, 2_000, **ranks)
    assert len(pickle.dumps(summarise(trace.write(tmp_path / "t.json"), SMALL).arrivals)) < 10_000


def test_an_empty_trace_has_a_summary(tmp_path: Path) -> None:
    found = summarise(Planted().write(tmp_path / "t.json"), SMALL)
    assert (found.events, found.collectives, len(found.steps)) == (0, 0, 0)


@pytest.mark.parametrize("name", ["hta/cpu_only_rank34", "hta/diff_test_v100", "hta/mtia_inference", "hta/tiny_rank70"])
def test_recorded_traces_survive_being_sent(name: str) -> None:
    found = summarise(recorded(name), SMALL)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.arrivals, found.arrivals) and np.array_equal(again.steps, found.steps)
