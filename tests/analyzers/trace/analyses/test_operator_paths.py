from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planting import BACKWARD, Planted
from recorded import recorded
from tachoscope_analyzers.trace.analyses.operator_paths import OTHERS, STEP, largest, operator_paths
from tachoscope_analyzers.trace.analyses.operator_tree import UNLINKED, by_operator
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000


def planted_paths(tmp_path: Path) -> TraceView:
    planted = Planted()
    for step in range(3):
        begin = 1_000 * US * step
        planted.step(step, begin, 900 * US)
        planted.op("aten::linear", begin, 400 * US)
        planted.op("aten::mm", begin + 10 * US, 100 * US)
        planted.kernel("gemm", begin + 50 * US, 300 * US, launched=begin + 20 * US)
        planted.op("aten::mm", begin + 500 * US, 50 * US)
        planted.kernel("gemm", begin + 520 * US, 200 * US, launched=begin + 510 * US)
        planted.op("backward", begin, 30 * US, tid=BACKWARD)
    planted.kernel("alone", 5_000 * US, 7 * US)
    return TraceView(planted.read(tmp_path))


def test_the_same_operator_under_two_callers_is_two_nodes_and_steps_are_one(tmp_path: Path) -> None:
    table = operator_paths(planted_paths(tmp_path))

    def path(place: int) -> tuple[str, ...]:
        above = int(table["parent"][place])
        return (*(path(above) if above >= 0 else ()), str(table["name"][place]))

    found = {path(place): row for place, row in enumerate(table.to_dict("records"))}
    assert set(found) == {
        (STEP,),
        (STEP, "aten::linear"),
        (STEP, "aten::linear", "aten::mm"),
        (STEP, "aten::mm"),
        ("backward",),
        (UNLINKED,),
    }
    assert found[STEP, "aten::linear", "aten::mm"]["self_device_ns"] == 900 * US
    assert found[STEP, "aten::linear"]["self_device_ns"] == 0
    assert found[STEP, "aten::mm"]["total_device_ns"] == 600 * US
    assert found[(STEP,)]["total_device_ns"] == 1_500 * US
    assert found[(STEP,)]["total_host_ns"] == 2_700 * US
    assert found[(STEP,)]["self_host_ns"] == 3 * (900 - 400 - 50) * US
    assert found[(UNLINKED,)]["total_device_ns"] == 7 * US
    assert found[("backward",)]["count"] == 3


@pytest.mark.parametrize("name", ["dlrm8/rank-0", "hta/mtia_inference", "tracelens/vllm_decode_full", "hta/cpu_only_rank34"])
def test_totals_are_own_time_and_those_below_in_recorded_traces(name: str) -> None:
    view = TraceView(read(recorded(name)))
    table = operator_paths(view)

    assert table["self_device_ns"].sum() == (view.work.end - view.work.start).sum() == by_operator(view)["self_device_ns"].sum()
    for side in ("device", "host"):
        below = np.zeros(len(table) + 1, dtype=np.int64)
        np.add.at(below, table["parent"].to_numpy(dtype=np.int64), table[f"total_{side}_ns"].to_numpy(dtype=np.int64))
        assert (table[f"total_{side}_ns"] == table[f"self_{side}_ns"] + below[:-1]).all()
        assert below[-1] == table[f"self_{side}_ns"].sum()
    assert (table["parent"] < np.arange(len(table))).all()


@pytest.mark.parametrize("most", [2, 11, 2000])
def test_of_many_paths_the_largest_are_kept_and_the_rest_summed(most: int) -> None:
    table = operator_paths(TraceView(read(recorded("hta/sampled_rank-0"))))
    for column in ("total_device_ns", "total_host_ns"):
        found = largest(table, column, most)

        outermost = found["parent"] < 0
        assert len(found) <= most
        assert found[column][outermost].sum() == table[column][table["parent"] < 0].sum()
        below = np.zeros(len(found) + 1, dtype=np.int64)
        np.add.at(below, found["parent"].to_numpy(dtype=np.int64), found[column].to_numpy(dtype=np.int64))
        assert (below[:-1] <= found[column]).all()
        assert (found["parent"] < np.arange(len(found))).all()
        assert (OTHERS in set(found["name"])) == (most < 2000)


def test_a_trace_without_operators_has_only_what_none_of_them_launched(tmp_path: Path) -> None:
    planted = Planted()
    planted.kernel("alone", 0, 7 * US)

    table = operator_paths(TraceView(planted.read(tmp_path)))

    assert table["name"].tolist() == [UNLINKED]
    assert table["total_device_ns"].tolist() == [7 * US]
    assert largest(table, "total_host_ns", 10).empty
    assert operator_paths(TraceView(Planted().read(tmp_path, "empty.json"))).empty
