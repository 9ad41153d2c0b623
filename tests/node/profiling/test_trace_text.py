"""Counting steps in a trace's text, and the copy that says whose it is."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from fake_kineto import trace
from recorded import DATA
from tachoscope_analyzers.trace.reading.read import read
from tachoscope_core.errors import TachoscopeError
from tachoscope_node.profiling import trace_text

BIG = 1 << 30


def descriptor(path: Path, document: dict[str, Any] | str) -> int:
    path.write_text(document if isinstance(document, str) else json.dumps(document, indent=2))
    return os.open(path, os.O_RDONLY)


def test_23_steps_are_counted_wherever_the_pieces_of_the_text_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_at = descriptor(tmp_path / "trace.json", trace(0.1, 2.3))
    for piece in (700, 1024, 5000, 1 << 20):
        monkeypatch.setattr(trace_text, "_PIECE_BYTES", piece)

        ends = trace_text.step_ends(open_at, most_bytes=BIG)

        assert len(ends) == 23
        assert ends[-1] - ends[0] == pytest.approx(2.2)


def test_of_several_optimizers_the_one_that_steps_least_counts(tmp_path: Path) -> None:
    often, seldom = trace(0.1, 2.0), trace(0.5, 2.0)
    for event in often["traceEvents"]:
        event["name"] = "Optimizer.step#Adam.step"
    seldom["traceEvents"] += often["traceEvents"]

    assert len(trace_text.step_ends(descriptor(tmp_path / "t.json", seldom), most_bytes=BIG)) == 4


def test_steps_that_the_profiler_was_told_of_count_though_the_optimizer_steps_more_often(tmp_path: Path) -> None:
    found = trace(0.1, 2.0)
    for number in (8, 5, 6, 7):
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": 1, "ts": number * 0.5e6, "dur": 0.5e6}
        found["traceEvents"].append(mark)

    ends = trace_text.step_ends(descriptor(tmp_path / "t.json", found), most_bytes=BIG)

    assert ends == [2.5, 3.0, 3.5, 4.0, 4.5], "four whole steps"


def test_a_mark_that_stands_on_a_gpus_line_too_is_one_step(tmp_path: Path) -> None:
    recorded = gzip.decompress((DATA / "hta" / "a100_nccl_2rank_rank0.json.gz").read_bytes())
    for name in (b"ProfilerStep#", b"Optimizer.step#"):
        text = recorded if name == b"ProfilerStep#" else recorded.replace(b"ProfilerStep#", b"step ")
        assert re.search(rb'"gpu_user_annotation",\s*"name":\s*"Optimizer.step#', text)

        ends = trace_text.step_ends(descriptor(tmp_path / "t.json", text.decode()), most_bytes=BIG)

        assert len(ends) == 3 + name.startswith(b"Profiler")


def test_a_trace_without_optimizer_has_no_steps(tmp_path: Path) -> None:
    assert trace_text.step_ends(descriptor(tmp_path / "t.json", trace(5.0, 1.0)), most_bytes=BIG) == []


def test_the_copy_tells_job_and_rank_and_holds_all_that_the_trace_held(tmp_path: Path) -> None:
    before, copy = trace(0.1, 1.0), tmp_path / "copy.json.gz"
    trace_text.write_tagged(
        descriptor(tmp_path / "t.json", before), copy, rank=3, world_size=8, about={"job": "resnet"}, most_bytes=BIG
    )

    found = json.loads(gzip.decompress(copy.read_bytes()))
    assert found.pop("distributedInfo") == {"rank": 3, "world_size": 8}
    assert found.pop("tachoscope") == {"job": "resnet"}
    assert found == before
    assert (read(copy).meta.rank, read(copy).meta.world_size) == (3, 8)


def test_what_a_trace_tells_of_its_ranks_stays(tmp_path: Path) -> None:
    told = {"distributedInfo": {"rank": 5, "world_size": 6, "backend": "nccl"}} | trace(0.1, 1.0)
    copy = tmp_path / "copy.json.gz"
    trace_text.write_tagged(descriptor(tmp_path / "t.json", told), copy, rank=3, world_size=8, about={}, most_bytes=BIG)

    assert json.loads(gzip.decompress(copy.read_bytes()))["distributedInfo"] == told["distributedInfo"]


@pytest.mark.parametrize("text", ["", "no trace", "[]", "{}", "{  }", '[{"a": 1}]'])
def test_what_does_not_begin_as_a_trace_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TachoscopeError, match="not a trace"):
        trace_text.write_tagged(
            descriptor(tmp_path / "t.json", text), tmp_path / "copy", rank=0, world_size=1, about={}, most_bytes=BIG
        )


def test_no_more_is_read_than_is_allowed(tmp_path: Path) -> None:
    """A process may go on writing while its trace is copied."""
    copy = tmp_path / "copy.json.gz"
    open_at = descriptor(tmp_path / "t.json", '{"traceEvents": [' + " " * (8 << 20) + "]}")
    trace_text.write_tagged(open_at, copy, rank=0, world_size=1, about={}, most_bytes=1 << 20)

    assert len(gzip.decompress(copy.read_bytes())) <= (2 << 20) + 100
