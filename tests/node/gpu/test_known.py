"""GPUs that were seen are remembered, those that were replaced are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.gpu.inventory import Inventory
from tachoscope_node.gpu.reading import Gpu

EIGHT = [Gpu(index, f"GPU-{index}", model="H100") for index in range(8)]


def test_what_was_seen_is_expected_and_missed_by_the_next_process_too(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    Inventory(path, 0).add_seen(EIGHT)
    known = Inventory(path, 0)
    known.add_seen(EIGHT[:5])

    assert known.expected == 8
    assert known.missing(EIGHT[:5]) == EIGHT[5:]
    assert Inventory(path, 0).missing(EIGHT[:5]) == EIGHT[5:]
    assert [known.at(index) for index in (6, 8)] == [EIGHT[6], None]


def test_a_gpu_keeps_the_index_at_which_it_was_first_seen(tmp_path: Path) -> None:
    known = Inventory(None, 0)
    known.add_seen(EIGHT)

    assert known.with_known_index(replace(EIGHT[5], index=4)) == EIGHT[5]
    assert known.with_known_index(Gpu(7, "GPU-new")) == Gpu(7, "GPU-new")


def test_a_gpu_that_was_replaced_is_not_missed(tmp_path: Path) -> None:
    known = Inventory(None, 0)
    known.add_seen(EIGHT)
    known.add_seen(EIGHT[:3] + EIGHT[4:])
    assert known.missing(EIGHT[:3] + EIGHT[4:]) == [EIGHT[3]]

    now = [*EIGHT[:3], *EIGHT[4:], Gpu(3, "GPU-new")]
    known.add_seen(now)

    assert known.missing(now) == []
    assert known.expected == 8


def test_a_configured_number_wins_over_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    Inventory(path, 0).add_seen(EIGHT)
    fewer, more = Inventory(path, 4), Inventory(path, 10)
    fewer.add_seen(EIGHT[:4])

    assert (fewer.expected, more.expected) == (4, 10)
    assert fewer.missing(EIGHT[:4]) == []


def test_a_file_that_is_broken_is_none(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_text("{")

    assert Inventory(path, 0).expected == 0


def test_a_file_that_cannot_be_written_is_an_error_and_is_written_once_it_can(tmp_path: Path) -> None:
    path = tmp_path / "away" / "gpus.json"
    known = Inventory(path, 0)
    with pytest.raises(TachoscopeError, match=r"could not write .*gpus\.json: No such file or directory \(create the folder"):
        known.add_seen(EIGHT)
    assert known.expected == 8
    path.parent.mkdir()
    known.add_seen(EIGHT)

    assert Inventory(path, 0).expected == 8


def test_the_file_is_written_only_when_something_changed(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    known = Inventory(path, 0)
    known.add_seen(EIGHT)
    path.unlink()
    known.add_seen(reversed(EIGHT))

    assert not path.exists()
