"""`tachoscope store add-traces` and `traces` on real traces and on what is none."""

import json
from pathlib import Path

import pytest

from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.store import Store, default_url

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}


def trace(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"traceEvents": [EVENT]}))
    return folder / name


def test_traces_of_a_folder_become_a_recording_and_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        trace(tmp_path / "traces", f"rank-{rank}.json")

    assert call(["store", "add-traces", "resnet", str(tmp_path / "traces"), "--recording", "first"]) == 0
    told = capsys.readouterr().err
    assert "3 traces" in told
    assert "recording first of job resnet" in told
    assert "next: tachoscope explore, page /trace?job=resnet&trace=first" in told
    assert call(["store", "traces", "resnet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["first", f"rank-{rank}.json"] for rank in range(3)]


def test_files_of_one_name_in_several_folders_are_all_kept(tmp_path: Path) -> None:
    for rank in range(2):
        trace(tmp_path / "traces" / f"rank{rank}", "trace.json")

    call(["store", "add-traces", "resnet", str(tmp_path / "traces")])

    found = stored_traces.traces(Store(default_url()), "resnet")
    assert [one.file for one in found] == ["rank0_trace.json", "rank1_trace.json"]
    assert len({one.recording for one in found}) == 1


def test_of_several_files_none_is_written_when_one_is_no_trace(tmp_path: Path) -> None:
    trace(tmp_path, "a.json")
    (tmp_path / "b.json").write_text('{"a": 1}')

    with pytest.raises(TachoscopeError, match=r"b\.json is not a trace that tachoscope can read"):
        call(["store", "add-traces", "resnet", str(tmp_path)])
    assert stored_traces.traces(Store(default_url()), "resnet") == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("records.jsonl", '{"kind":"StepDone"}\n', "is not a profiler trace"),
        ("notes.txt", "hello", "is neither a trace nor records"),
        ("empty.json", "", "is not a trace that tachoscope can read"),
        ("cut.json", '{"traceEvents": [{"ph": "X", "na', "it contains no complete event"),
    ],
)
def test_what_is_no_trace_is_refused_in_clear_words(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(TachoscopeError, match=said):
        call(["store", "add-traces", "resnet", str(tmp_path / name)])


def test_a_job_without_traces_says_how_to_add_some() -> None:
    with pytest.raises(TachoscopeError, match="has no traces of job resnet .*add-traces resnet"):
        call(["store", "traces", "resnet"])
