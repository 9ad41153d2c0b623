"""The kernel's files are read whole, and what is wrong in one is named with its place."""

from pathlib import Path

import pytest

from tachoscope_node.common.kernel_files import MalformedError, read, rows, value


def test_a_file_is_read_whole_however_long(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"23\n" * 100_000)

    assert read(str(path)) == path.read_bytes()


def test_a_file_that_the_kernel_gives_in_parts_is_read_whole() -> None:
    content = read("/proc/self/maps")

    assert len(content) > 8192
    assert content.splitlines()[-1] == Path("/proc/self/maps").read_bytes().splitlines()[-1]


def test_a_number_is_found_by_its_whole_key_at_the_start_of_a_line() -> None:
    content = b"SwapCached: 1 kB\nCached: 23 kB\nMapped: 5 kB"

    assert value("f", content, b"Cached:") == 23
    assert value("f", content, b"SwapCached:") == 1
    assert value("f", content, b"Mapped:") == 5
    assert value("f", content, b"Shmem:") is None
    assert value("f", b"", b"Shmem:") is None


@pytest.mark.parametrize("line", ["Dirty:", "Dirty: many kB"])
def test_a_number_that_is_none_is_named_with_file_line_and_content(line: str) -> None:
    with pytest.raises(MalformedError, match=f"^/proc/meminfo:2: cannot be read: '{line}'$"):
        value("/proc/meminfo", f"Cached: 1 kB\n{line}\nShmem: 1 kB\n".encode(), b"Dirty:")


def test_a_row_that_cannot_be_parsed_is_named_with_file_line_and_content(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("header\n1\n2\nthree\n")

    with pytest.raises(MalformedError, match="table:4: cannot be read: 'three'"):
        rows(str(path), int, skip=1)


def test_rows_that_the_parser_passes_over_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "table"
    path.write_text("1\n2\n3\n")

    assert rows(str(path), lambda line: int(line) if line != b"2" else None) == [1, 3]
