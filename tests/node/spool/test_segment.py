"""Reading a file that grows, with anything in it."""

import os
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_core.records.records import MAX_LINE_BYTES
from tachoscope_core.storage.spool import segment_name
from tachoscope_node.spool.segment import CHUNK_BYTES, Segment

MIB = 1 << 20


def segment(directory: Path, content: bytes = b"") -> Segment:
    path = directory / segment_name(str(uuid.uuid4()), 0)
    path.write_bytes(content)
    return Segment(path, "run")


def lines(one: Segment, budget: int = 1 << 40) -> list[bytes]:
    return [line for part, new in one.lines(budget) for line in part if new]


def append(one: Segment, content: bytes) -> None:
    with one.path.open("ab") as file:
        file.write(content)


def test_a_line_is_taken_once_it_is_whole(tmp_path: Path) -> None:
    one = segment(tmp_path, b"first\nsec")

    assert lines(one) == [b"first"]
    assert lines(one) == []
    append(one, b"ond\n")
    assert lines(one) == [b"second"]
    assert one.shippable() == len(b"first\nsecond\n")


@given(st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=8))
def test_lines_of_any_length_come_whole_and_in_order(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    wanted = [bytes([65 + number % 26]) * length for number, length in enumerate(lengths)]
    one = segment(tmp_path_factory.mktemp("s"), b"".join(line + b"\n" for line in wanted))

    assert lines(one) == [line for line in wanted if len(line) <= MAX_LINE_BYTES]


def test_a_line_longer_than_any_record_is_cut_out_and_what_surrounds_it_can_be_shipped(tmp_path: Path) -> None:
    one = segment(tmp_path, b"before\n" + b"x" * (3 * MIB) + b"\nafter\n")

    assert lines(one) == [b"before", b"after"]
    assert one.oversized == 1
    assert one.content(one.shipped, one.shippable()) == b"before\n"
    one.shipped = one.pending = one.shippable()
    start = one.shippable() and one.shipped
    assert one.content(start, one.shippable()) == b"after\n"


def test_hundreds_of_megabytes_without_a_newline_costs_no_memory_and_is_passed(tmp_path: Path) -> None:
    one = segment(tmp_path, b"before\n")
    with one.path.open("r+b") as file:
        file.truncate(1 << 28)  # a hole of zeros
    append(one, b"\nafter\n")
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    assert lines(one) == [b"before", b"after"]
    assert int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") - before < 16 * MIB


def test_no_more_is_read_at_a_time_than_allowed(tmp_path: Path) -> None:
    one = segment(tmp_path, b"x" * 99 + b"\n")
    append(one, (b"x" * 99 + b"\n") * 100_000)
    rounds = 0
    while lines(one, MIB):
        rounds += 1
        assert one.bytes_read <= (rounds + 1) * (MIB + CHUNK_BYTES)
    assert rounds >= 9
    assert not one.behind


def test_lines_that_were_counted_before_a_restart_are_passed_over(tmp_path: Path) -> None:
    one = segment(tmp_path, b"one\ntwo\nthree\n")
    one.applied = len(b"one\ntwo\n")

    assert list(one.lines(MIB)) == [([b"one", b"two"], False), ([b"three"], True)]


def test_a_file_that_was_removed_is_read_to_its_end(tmp_path: Path) -> None:
    one = segment(tmp_path, b"one\n")
    append(one, b"two\n")
    one.path.unlink()

    assert lines(one) == [b"one", b"two"]


def test_another_file_of_the_same_name_is_not_removed(tmp_path: Path) -> None:
    one = segment(tmp_path, b"one\n")
    one.path.rename(tmp_path / "old")
    one.path.write_bytes(b"new\n")
    one.remove()

    assert one.path.read_bytes() == b"new\n"


def test_a_file_that_was_cut_short_is_an_error_that_names_it(tmp_path: Path) -> None:
    one = segment(tmp_path, b"one\ntwo\n")
    lines(one)
    os.truncate(one.path, 4)

    with pytest.raises(OSError, match="was cut short"):
        one.content(0, one.shippable())
