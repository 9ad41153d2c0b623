"""Pickles of plain values are read, and nothing else: no class, no function, no key that takes for ever."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from tachoscope_analyzers.flight_recorder.refusing import RefusedError, plain_values


class Runs:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_come_back_as_they_were(protocol: int) -> None:
    values = {"version": "2.9", "entries": [{"a": (1, 2), "b": [-5, 2**40, 1.5, None, True, False, "ä" * 300]}], 7: ((), [], {})}

    assert plain_values(pickle.dumps(values, protocol)) == values


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "ran"

    with pytest.raises(RefusedError, match="not a plain value"):
        plain_values(pickle.dumps({"entries": Runs(os.mkdir, str(marker))}, protocol))
    assert not marker.exists()


def test_a_class_alone_is_refused() -> None:
    with pytest.raises(RefusedError):
        plain_values(pickle.dumps(Path))


def test_keys_whose_hash_takes_for_ever_are_refused_before_they_are_hashed() -> None:
    # as pickle writes it: each pair once, then known by its place; hashing the last would visit 2^80 tuples
    pairs = b"".join(b"h%ch%c\x86q%c" % (place, place, place + 1) for place in range(80))
    begun = b"\x80\x02}K\x00](" + b")q\x00" + pairs + b"es"

    for key_and_value in (b"h\x50K\x01s.", b"(h\x50K\x01u."):
        with pytest.raises(RefusedError, match="a key of a dictionary is a tuple"):
            plain_values(begun + key_and_value)


def test_a_place_in_the_memo_beyond_all_bounds_takes_no_memory() -> None:
    assert plain_values(b"\x80\x02K\x01r\xff\xff\xff\x7f.") == 1
