from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planting import BACKWARD, Planted
from tachoscope_analyzers.trace.events.innermost_operator import cut_by_operator
from tachoscope_analyzers.trace.reading.trace import Trace

NOTHING = np.zeros(0, dtype=np.int64)


def cut(trace: Trace, start: int, end: int, track: int = 0) -> list[tuple[int, int, str]]:
    _, starts, ends, owner = cut_by_operator(trace, np.array([track]), np.array([start]), np.array([end]), NOTHING)
    names = [str(trace.names(np.array([row]))[0]) if row >= 0 else "" for row in owner.tolist()]
    return list(zip(starts.tolist(), ends.tolist(), names, strict=True))


def test_a_stretch_is_cut_where_the_innermost_operator_changes(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("outer", 100, 100)
    planted.op("inner", 120, 30)
    trace = planted.read(tmp_path)
    assert cut(trace, 90, 210) == [(90, 100, ""), (100, 120, "outer"), (120, 150, "inner"), (150, 200, "outer"), (200, 210, "")]
    assert cut(trace, 130, 140) == [(130, 140, "inner")]


def test_of_operators_that_begin_or_end_together_the_inner_one_counts(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("outer", 100, 100)
    planted.op("first", 100, 50)
    planted.op("second", 150, 50)
    planted.op("empty", 160, 0)
    assert cut(planted.read(tmp_path), 100, 210) == [(100, 150, "first"), (150, 200, "second"), (200, 210, "")]


def test_other_threads_do_not_count(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("mine", 100, 100)
    planted.op("other", 120, 30, tid=BACKWARD)
    assert cut(planted.read(tmp_path), 100, 200) == [(100, 200, "mine")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), min_size=1, max_size=5),
)
def test_the_pieces_tile_every_stretch(tmp_path: Path, events: list[tuple[int, int]], stretches: list[tuple[int, int]]) -> None:
    planted = Planted()
    planted.op("first", 0, 1)
    for begin, duration in events:
        planted.op("op", begin, duration)
    start = np.array([begin for begin, _ in stretches])
    end = start + np.array([length for _, length in stretches])
    number, starts, ends, _ = cut_by_operator(planted.read(tmp_path), np.zeros(len(start), dtype=np.int64), start, end, NOTHING)
    for stretch in range(len(start)):
        mine = number == stretch
        assert starts[mine][0] == start[stretch]
        assert ends[mine][-1] == end[stretch]
        assert (starts[mine][1:] == ends[mine][:-1]).all()
        assert (ends[mine] > starts[mine]).all()
