import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planting import Planted
from recorded import SMALL_FIRST, recorded
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.export.perfetto import CATEGORY, Slice, write
from tachoscope_analyzers.trace.graph.critical_path import critical_path
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_analyzers.trace.reading.trace import Trace
from tachoscope_core.errors import TachoscopeError


def planted_job() -> Planted:
    planted = Planted()
    planted.step(1, 1_000_000_000_000_000_001, 1_000_003)
    planted.op("aten::mm", 1_000_000_000_000_010_000, 20_000, odd={"nested": ["kept", 1.5]})
    planted.kernel("gemm", 1_000_000_000_000_050_000, 1_300_000, launched=1_000_000_000_000_020_000)
    return planted


def written(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    events: list[dict[str, Any]] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["traceEvents"]
    return events


def same_events(trace: Trace, again: Trace) -> None:
    count = len(trace.events)
    for column in ("start", "duration", "correlation", "external"):
        assert (trace.events[column] == again.events[column][:count]).all()
    rows = np.arange(count)
    assert (trace.names(rows) == again.names(rows)).all()
    assert (trace.kind == again.kind[:count]).all()
    tracks = [(track.process, track.thread) for track in trace.meta.tracks]
    tracks_again = [(track.process, track.thread) for track in again.meta.tracks]
    assert [tracks[track] for track in trace.events["track"]] == [tracks_again[track] for track in again.events["track"][:count]]


@pytest.mark.parametrize("name", SMALL_FIRST)
def test_what_is_written_holds_every_event_of_a_recorded_trace_as_it_was(name: str, tmp_path: Path) -> None:
    trace = read(recorded(name))
    view = TraceView(trace)
    write(trace, tmp_path / "out.json.gz", path=critical_path(view))
    again = read(tmp_path / "out.json.gz")
    same_events(trace, again)
    added = again.events["category"][len(trace.events) :]
    assert {again.meta.categories[code] for code in set(added.tolist())} <= {CATEGORY}


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_the_users_arguments_are_kept_and_the_tracks_stand_beside_them(name: str, tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    view = TraceView(trace)
    first = int(trace.start[0])
    ledger = [Slice(first, first + 10, "host_wait"), Slice(first + 10, first + 30, "compute", lane="device 1")]
    findings = [Slice(first, first + 50, "host_sync", {"seconds_per_step": 0.1}), Slice(first + 20, first + 90, "launch_bound")]
    write(trace, tmp_path / name, ledger=ledger, findings=findings, path=critical_path(view))
    events = written(tmp_path / name)
    assert next(event for event in events if event["name"] == "aten::mm")["args"]["odd"] == {"nested": ["kept", 1.5]}
    titles = {
        event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name" and event["pid"] == 7_000_000
    }
    assert list(titles) == [
        "tachoscope: ledger",
        "tachoscope: ledger device 1",
        "tachoscope: findings",
        "tachoscope: findings 2",
        "tachoscope: critical path",
    ]
    found = [event for event in events if event.get("cat") == CATEGORY and event["ph"] == "X"]
    assert {event["name"] for event in found if event["tid"] == titles["tachoscope: findings"]} == {"host_sync"}
    assert next(event for event in found if event["name"] == "host_sync")["args"] == {"seconds_per_step": 0.1}
    same_events(trace, read(tmp_path / name))


def test_times_are_exact_where_a_float_is_not(tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    start = 1_000_000_000_000_000_001
    write(trace, tmp_path / "out.json", findings=[Slice(start, start + 7, "here")])
    assert '"ts": 1000000000000000.001, "dur": 0.007' in (tmp_path / "out.json").read_text()


def test_slices_of_a_track_never_overlap(tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    slices = [Slice(start, start + 25, str(start)) for start in range(0, 100, 10)]
    write(trace, tmp_path / "out.json", findings=slices)
    found = [event for event in written(tmp_path / "out.json") if event.get("cat") == CATEGORY]
    assert len(found) == 10
    for track in {event["tid"] for event in found}:
        ends = sorted((event["ts"], event["ts"] + event["dur"]) for event in found if event["tid"] == track)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(ends))


def test_arrows_lead_from_the_hosts_call_to_the_kernel_that_it_launched(tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    write(trace, tmp_path / "out.json", path=critical_path(TraceView(trace)))
    arrows = [event for event in written(tmp_path / "out.json") if event["name"] == "critical path"]
    assert [(arrow["ph"], arrow["tid"]) for arrow in arrows][-2:] == [("s", 100), ("f", 7)]
    assert [arrow["ts"] for arrow in arrows[-2:]] == [1_000_000_000_000_024_999 / 1000, 1_000_000_000_000_050_000 / 1000]
    assert arrows[-1]["bp"] == "e"


def test_the_segments_of_the_path_tile_its_track(tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    path = critical_path(TraceView(trace))
    write(trace, tmp_path / "out.json", path=path)
    again = read(tmp_path / "out.json")
    mine = np.flatnonzero(again.events["category"] == again.meta.categories.index(CATEGORY))
    assert again.events["duration"][mine].sum() == path["duration_ns"].sum()


@pytest.mark.parametrize(
    "text",
    [
        '[{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1},',
        '[{"ph":"X","name":"a","ts":1,"dur":2,"pid":1,"tid":1}]',
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}, {"ph": "X", "na',
        '{"traceEvents": [], "other": [{"ph": "X"}]}',
    ],
    ids=["open array", "compact array", "cut", "no events"],
)
def test_every_layout_that_can_be_read_is_written_as_sound_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text(text)
    trace = read(tmp_path / "in.json")
    write(trace, tmp_path / "out.json", findings=[Slice(0, 5, "found")])
    document = json.loads((tmp_path / "out.json").read_text())
    events = document if isinstance(document, list) else document["traceEvents"]
    assert "found" in {event["name"] for event in events}
    same_events(trace, read(tmp_path / "out.json"))


def test_the_trace_itself_is_never_overwritten(tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    before = trace.path.read_bytes()
    with pytest.raises(TachoscopeError, match="is the trace itself"):
        write(trace, trace.path)
    assert trace.path.read_bytes() == before


def test_a_trace_that_is_gone_is_one_clear_error_and_leaves_no_file(tmp_path: Path) -> None:
    trace = planted_job().read(tmp_path)
    trace.path.unlink()
    with pytest.raises(TachoscopeError, match="could not write"):
        write(trace, tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir() if "out.json" in path.name] == []
