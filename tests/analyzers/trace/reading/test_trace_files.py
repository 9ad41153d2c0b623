from pathlib import Path

import pytest

from tachoscope_analyzers.trace.reading.trace_files import labels, recorder, stem, trace_files
from tachoscope_core.errors import TachoscopeError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.json", "deep/er/b.json.gz", "c.pt.trace.json.zst", "d.sqlite", "notes.txt", ".hidden/e.json", "f.json/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def names(folder: Path, *inputs: str) -> list[str]:
    return [str(path.relative_to(folder)) for path in trace_files([str(folder / one) for one in inputs])[0]]


def test_a_directory_stands_for_all_traces_in_and_below_it(folder: Path) -> None:
    assert names(folder, ".") == ["a.json", "c.pt.trace.json.zst", "d.sqlite", "deep/er/b.json.gz"]


def test_patterns_match_files_and_directories(folder: Path) -> None:
    assert names(folder, "**/*.gz") == ["deep/er/b.json.gz"]
    assert names(folder, "dee*") == ["deep/er/b.json.gz"]


def test_a_file_that_is_named_is_taken_whatever_its_ending_and_each_only_once(folder: Path) -> None:
    assert names(folder, "notes.txt", "a.json", "a.json", "*.json") == ["a.json", "notes.txt"]
    found, named = trace_files([folder / "notes.txt", folder / "deep"])
    assert named == {folder / "notes.txt"} and len(found) == 2


@pytest.mark.parametrize("missing", ["nothing.json", "no-*.json", ".hidden/deeper"])
def test_what_does_not_exist_or_holds_no_trace_is_an_error_that_names_it(folder: Path, missing: str) -> None:
    (folder / ".hidden" / "deeper").mkdir()
    with pytest.raises(TachoscopeError, match="does not exist|contains no trace"):
        trace_files([folder / missing])


def test_a_dot_in_a_name_is_of_the_name() -> None:
    assert [stem(Path(name)) for name in ("qwen1.5_0.5b.json.gz", "a.pt.trace.json", "b.sqlite")] == ["qwen1.5_0.5b", "a", "b"]


def test_every_file_has_a_label_of_its_own(folder: Path) -> None:
    files = [folder / name for name in ("one/t.json", "two/t.json", "two/t.json.gz", "alone.json")]

    assert list(labels(files).values()) == ["one/t.json", "two/t.json", "two/t.json.gz", "alone"]


def test_the_process_is_read_only_from_names_that_torch_gives() -> None:
    assert recorder(Path("vm_28137.1795294403569820298.pt.trace.json.gz")) == "vm_28137"
    assert recorder(Path("rank_1.pt.trace.json")) == recorder(Path("run.12.pt.trace.json")) == ""
