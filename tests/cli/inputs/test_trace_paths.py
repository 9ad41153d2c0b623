"""What `tachoscope analyze` says of paths that are nothing it can analyse."""

import os
from pathlib import Path

import pytest

from helpers import without_rights_to_others_files
from planting import Planted
from tachoscope_cli.inputs.traces import are_traces
from tachoscope_core.errors import TachoscopeError


def refused(*paths: Path | str) -> str:
    with pytest.raises(TachoscopeError) as told:
        are_traces(list(map(str, paths)))
    return str(told.value)


def trace(folder: Path, name: str = "t.json") -> Path:
    planted = Planted()
    planted.step(0, 0, 10_000_000)
    planted.op("aten::mm", 0, 5_000_000)
    return planted.write(folder / name)


def test_a_device_file_is_one_line_that_names_it() -> None:
    assert "/dev/null is neither a file nor a directory" in refused("/dev/null")


def test_a_link_that_leads_nowhere_is_told_with_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "t.json").symlink_to(tmp_path / "gone")

    assert f"is a link to {tmp_path / 'gone'}, which does not exist" in refused(tmp_path / "t.json")


def test_what_is_not_there_is_told_apart_from_a_pattern_that_matches_nothing(tmp_path: Path) -> None:
    assert "traces" in refused(tmp_path / "no.json") and "does not exist" in refused(tmp_path / "no.json")
    assert f"nothing matches {tmp_path / '*.json'}" in refused(tmp_path / "*.json")


def test_a_text_beside_a_trace_is_named_and_what_traces_end_with(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a note\n")

    message = refused(trace(tmp_path), tmp_path / "text.txt")

    assert "text.txt is neither a trace nor records" in message
    assert ".json.gz" in message


def test_records_beside_a_trace_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"kind":"StepDone"}\n')

    assert "a.jsonl is not a profiler trace, but other paths are" in refused(trace(tmp_path), tmp_path / "a.jsonl")


def test_folders_of_dumps_in_a_folder_are_named(tmp_path: Path) -> None:
    for job in ("second", "first"):
        (tmp_path / job).mkdir()
        (tmp_path / job / "nccl_trace_rank_0").write_bytes(b"")

    assert f"name one of them, such as {tmp_path / 'first'}" in refused(tmp_path)


def test_a_folder_with_neither_traces_nor_records_is_not_called_one_without_records(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a note\n")

    assert "contains no traces, records or dumps" in refused(tmp_path)


def test_logs_beside_traces_do_not_hide_them(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"loss":1}\n')
    trace(tmp_path)

    assert are_traces([str(tmp_path)])


def test_a_trace_is_known_by_its_first_bytes_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "r0").write_bytes(b"\x1f\x8b\x08")

    assert are_traces([str(tmp_path / "r0")])


@pytest.mark.skipif(os.geteuid() != 0, reason="drops root's rights to see what others see")
@pytest.mark.parametrize("name", ["t.json", "."])
def test_no_permission_is_told_as_such(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    trace(folder)
    (folder / name).chmod(0)

    done = without_rights_to_others_files("analyze", str(folder / name))

    assert done.returncode == 2
    assert "Permission denied" in done.stderr
    assert done.stderr.count("\n") == 1
