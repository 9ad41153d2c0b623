from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planting import BACKWARD, MAIN, Planted
from tachoscope_analyzers.trace.analyses.event_slices import slices
from tachoscope_analyzers.trace.events.nesting import depths, parents

US = 1_000


def nested(tmp_path: Path) -> Planted:
    planted = Planted()
    planted.op("aten::linear", 0, 100 * US)
    planted.op("aten::addmm", 10 * US, 50 * US)
    planted.kernel("gemm", 70 * US, 40 * US, launched=20 * US)
    planted.op("backward", 150 * US, 40 * US, tid=BACKWARD)
    return planted


def test_events_of_a_window_nest_as_their_calls_did_streams_first(tmp_path: Path) -> None:
    trace = nested(tmp_path).read(tmp_path)

    found = slices(trace, 0, 120 * US)

    named = list(zip(trace.names(found.row), found.depth.tolist(), found.track.tolist(), strict=True))
    assert named == [("gemm", 0, 0), ("aten::linear", 0, 1), ("aten::addmm", 1, 1), ("cudaLaunchKernel", 2, 1)]
    assert [trace.meta.tracks[track].thread for track in found.tracks] == ["7", str(MAIN)]
    assert found.lanes == (1, 3)
    assert found.left_out == 0


def test_what_reaches_into_the_window_is_in_it_and_what_only_touches_it_is_not(tmp_path: Path) -> None:
    trace = nested(tmp_path).read(tmp_path)

    assert trace.names(slices(trace, 100 * US, 150 * US).row).tolist() == ["gemm"]
    assert trace.names(slices(trace, 150 * US, 151 * US).row).tolist() == ["backward"]
    assert not len(slices(trace, 120 * US, 130 * US).row)


def test_of_too_many_the_longest_are_kept_at_their_depth(tmp_path: Path) -> None:
    trace = nested(tmp_path).read(tmp_path)

    found = slices(trace, 0, 200 * US, most=3)

    assert sorted(trace.names(found.row)) == ["aten::addmm", "aten::linear", "gemm"]
    assert found.depth.max() == 1
    assert found.left_out == 2


def test_python_frames_are_there_only_when_asked_for(tmp_path: Path) -> None:
    planted = nested(tmp_path)
    planted.add("python_function", "train.py(3): main", 0, 120 * US)
    trace = planted.read(tmp_path)

    without, with_frames = slices(trace, 0, 120 * US), slices(trace, 0, 120 * US, frames=True)

    assert len(with_frames.row) == len(without.row) + 1
    assert with_frames.lanes == (1, 4)


@st.composite
def calls(draw: st.DrawFn) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []

    def grow(start: int, end: int, depth: int) -> None:
        place = start
        for _ in range(draw(st.integers(0, 3))):
            begin = draw(st.integers(place, end))
            stop = draw(st.integers(begin, end))
            if stop > begin:
                spans.append((begin, stop))
                if depth:
                    grow(begin, stop, depth - 1)
            place = stop

    grow(0, 40, 3)
    return spans


@given(calls())
def test_a_call_is_one_deeper_than_its_parent(spans: list[tuple[int, int]]) -> None:
    columns = np.array(spans, dtype=np.int64).reshape(-1, 2)
    track = np.zeros(len(columns), dtype=np.int32)
    above = parents(track, columns[:, 0], columns[:, 1])
    depth = depths(track, columns[:, 0], columns[:, 1])

    for place, parent in enumerate(above.tolist()):
        assert depth[place] == (0 if parent < 0 else depth[parent] + 1)
