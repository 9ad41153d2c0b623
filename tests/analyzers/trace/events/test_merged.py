"""Files into which several ranks were merged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from recorded import recorded
from tachoscope_analyzers.trace.analyses.data_quality import quality
from tachoscope_analyzers.trace.device_time.breakdown import breakdown
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.read import read

US = 1_000


@pytest.mark.parametrize("device", [None, 0], ids=["devices of one node", "the same device of several nodes"])
def test_recorded_ranks_in_one_file_have_the_figures_that_each_has_alone(tmp_path: Path, device: int | None) -> None:
    alone, events = [], []
    for rank in range(8):
        path = recorded(f"dlrm8/rank-{rank}")
        alone.append(TraceView(read(path)))
        for event in json.loads(gzip.decompress(path.read_bytes()), parse_float=str)["traceEvents"]:
            args = event.get("args", {})
            if device is not None and "device" in args:
                args["device"] = device
            events.append({**event, "pid": f"rank {rank} {event.get('pid')}"})
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    view = TraceView(read(path))
    table = breakdown(view)
    assert table["device"].tolist() == list(range(8))
    for column in ("span_ns", "busy_ns", "compute_ns", "overlap_ns"):
        assert table[column].tolist() == [breakdown(one).iloc[0][column] for one in alone]
    linked = view.work.launch >= 0
    assert linked.sum() == sum((one.work.launch >= 0).sum() for one in alone)
    rank_of = np.array([track.process.split()[1] for track in view.trace.meta.tracks])[view.trace.events["track"]]
    assert (rank_of[view.work.row[linked]] == rank_of[view.work.launch[linked]]).all()
    assert "several_processes" in set(quality(view)["what"])


def test_devices_are_told_apart_however_large_their_number_is(tmp_path: Path) -> None:
    trace, most = Planted(), 2**63 - 1
    for rank in (1, 2, 3):
        trace.add("kernel", "k", 10 * US, rank * US, pid=rank, tid=7, device=most, stream=7)
    table = breakdown(TraceView(trace.read(tmp_path)))

    assert sorted(table["busy_ns"].tolist()) == [1 * US, 2 * US, 3 * US]
    assert table["device"].nunique() == 3


def test_ids_that_differ_between_ranks_tell_the_launch_wherever_it_stands_in_the_file(tmp_path: Path) -> None:
    trace = Planted()
    for rank in (2, 1):
        for number in range(5):
            trace.add(
                "cuda_runtime", "cudaLaunchKernel", number * 20 * US, 5 * US, pid=1000 + rank, correlation=100 * rank + number
            )
    for rank in (1, 2):  # the calls of rank 1 are the nearer ones to the kernels of both
        for number in range(5):
            begin = number * 20 * US + 7 * US
            trace.add("kernel", "k", begin, 10 * US, pid=rank, tid=7, device=0, stream=7, correlation=100 * rank + number)
    view = TraceView(trace.read(tmp_path))
    found = view.trace.events["correlation"]
    assert (found[view.work.launch] == found[view.work.row]).all()
    assert (view.work.launch >= 0).all()
    assert view.devices == [0, 1]


def test_a_device_that_calls_too_makes_no_second_rank(tmp_path: Path) -> None:
    trace = Planted()
    for number in range(1, 4):
        for device in (17, 18):
            trace.add("mtia_runtime", "synchronize", number * 100 * US, 5 * US, pid=device, correlation=number + device * 10)
            trace.add("mtia_runtime", "runFunction", number * 100 * US + device, 5 * US, correlation=number + device * 10)
            begin = number * 100 * US + 20 * US
            trace.add(
                "mtia_ccp_events", "pe_exe", begin, 10 * US, pid=device, tid=1, stream=device, correlation=number + device * 10
            )
    view = TraceView(trace.read(tmp_path))
    assert (view.work.launch >= 0).all()
    assert set(view.trace.names(view.work.launch).tolist()) == {"runFunction"}
    assert "several_processes" not in set(quality(view)["what"])
