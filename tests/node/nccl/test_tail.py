"""One file of the Inspector, followed while its writer keeps its own offset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from inspecting import Inspector
from tachoscope_node.nccl.tail import MAX_LINE_BYTES, NotOursError, Tail

ALL = 1 << 40


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def news(tail: Tail, most_bytes: int = ALL) -> list[bytes]:
    tail.check_size()
    return [line.lstrip(b"\0") for lines in tail.lines(most_bytes) for line in lines]


def test_lines_come_once_and_a_cut_one_when_it_is_whole(tmp_path: Path, folder: int) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    tail = Tail("a.log", folder)
    inspector.write(b"one\ntwo\nth")
    assert news(tail) == [b"one", b"two"]
    inspector.write(b"ree\n")

    assert news(tail) == [b"three"]
    assert news(tail) == []
    assert not tail.close()


def test_space_of_what_was_read_is_given_back_and_the_writer_goes_on_at_its_offset(tmp_path: Path, folder: int) -> None:
    inspector, tail = Inspector(tmp_path, name="a.log"), None
    row = b"x" * 1023 + b"\n"
    tail = Tail("a.log", folder)
    tail.sound = True
    found = 0
    for _ in range(8):
        inspector.write(row * 1024)
        found += len(news(tail))
        try:
            tail.release(1 << 20)
        except OSError:
            pytest.skip("this file system cannot punch holes")
        assert inspector.path.stat().st_blocks * 512 <= 3 << 20
    inspector.write(b"last\n")

    assert found == 8 * 1024
    assert tail.released > 4 << 20
    assert inspector.path.stat().st_size == 8 * (1 << 20) + 5, "nobody's offset changed"
    assert news(tail) == [b"last"]
    tail.close()
    again = Tail("a.log", folder)
    whole = news(again)
    assert whole[-1] == b"last"
    assert set(whole[:-1]) <= {row[:-1]}, "who forgot where it was passes the hole"
    again.close()


def test_a_file_that_holds_no_operation_keeps_its_space(tmp_path: Path, folder: int) -> None:
    (tmp_path / "a.log").write_bytes(b"somebody's own log\n" * 100_000)
    tail = Tail("a.log", folder)
    news(tail)
    tail.release(1 << 16)

    assert tail.released == 0
    tail.close()


def test_a_file_that_was_begun_anew_is_read_from_its_start(tmp_path: Path, folder: int) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    inspector.write(b"before\n" * 10)
    tail = Tail("a.log", folder)
    news(tail)
    Inspector(tmp_path, name="a.log").write(b"after\n")

    assert news(tail) == [b"after"]
    tail.close()


def test_a_line_without_end_is_passed_in_bounded_pieces(tmp_path: Path, folder: int) -> None:
    inspector = Inspector(tmp_path, name="a.log")
    inspector.write(b"a\n" + b"y" * (5 * MAX_LINE_BYTES) + b"\nb\n")
    tail = Tail("a.log", folder)

    assert news(tail) == [b"a", b"b"]
    assert tail.oversized == 1
    tail.close()


def test_no_read_is_longer_than_about_what_is_allowed(tmp_path: Path, folder: int) -> None:
    Inspector(tmp_path, name="a.log").write(b"z" * 99 + b"\n" * 1, *[b"z" * 99 + b"\n"] * 50_000)
    tail = Tail("a.log", folder)
    news(tail, 1 << 20)

    assert 1 << 20 <= tail.read <= (1 << 20) + (128 << 10)
    tail.close()


def test_what_is_too_far_behind_is_left_out_up_to_a_line_and_counted(tmp_path: Path, folder: int) -> None:
    rows = [b"%06d" % number for number in range(10_000)]
    Inspector(tmp_path, name="a.log").write(b"\n".join(rows) + b"\n")
    tail = Tail("a.log", folder)
    tail.check_size()
    tail.skip_to(7 * 100 + 3)

    found = news(tail)
    assert found == rows[-100:]
    assert tail.skipped + 7 * len(found) == 70_000
    tail.close()


@pytest.mark.parametrize("kind", ["link", "second_name", "folder", "pipe"])
def test_links_and_what_is_no_file_of_its_own_are_refused(tmp_path: Path, folder: int, kind: str) -> None:
    (tmp_path / "secret").write_text("root's own\n")
    place = tmp_path / "a.log"
    match kind:
        case "link":
            place.symlink_to(tmp_path / "secret")
        case "second_name":
            os.link(tmp_path / "secret", place)
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)

    with pytest.raises(OSError) as refused:
        Tail("a.log", folder)
    assert kind in ("link", "folder") or isinstance(refused.value, NotOursError)
