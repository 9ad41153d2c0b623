from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from tachoscope_analyzers.trace.analyses.collective_message import Arguments, message_bytes
from tachoscope_analyzers.trace.events.view import TraceView

NOTED = {"In msg nelems": 100, "Out msg nelems": 800, "Group size": 8, "dtype": "BFloat16"}


def size(folder: Path, kind: str, **args: object) -> int:
    trace = Planted()
    trace.annotation("nccl:something", 0, 100, **args)
    view = TraceView(trace.read(folder))
    rows = np.zeros(1, dtype=np.int64)
    arguments = Arguments(view.trace, rows, rows, view.operator_of)
    return int(message_bytes(view.trace, arguments, np.array([kind], dtype=object), rows)[0])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all_reduce", 200),
        ("reduce_scatter", 200),
        ("all_to_all", 200),
        ("broadcast", 200),
        ("send", 200),
        ("recv", 1600),
        ("all_gather", 1600),
    ],
)
def test_a_message_is_counted_as_nccl_tests_does(kind: str, expected: int, tmp_path: Path) -> None:
    assert size(tmp_path, kind, **{"Collective name": "x", **NOTED}) == expected


def test_what_all_ranks_gather_is_as_much_as_each_puts_in_times_their_number(tmp_path: Path) -> None:
    assert size(tmp_path, "all_gather", **{"Collective name": "x", **NOTED, "Out msg nelems": -1}) == 1600


@pytest.mark.parametrize(
    ("shapes", "types", "expected"),
    [
        ([[2, 3]], ["float"], 24),
        ([[2, 3], [5]], ["float", "double"], 64),
        ([[]], ["long int"], 8),  # a scalar
        ([[0, 7]], ["float"], 0),
        ([[[68362]]], ["TensorList"], -1),
        ([[2, 3]], ["Scalar"], -1),
        ([[2, -3]], ["float"], -1),
        ([[2, 3]], [], -1),
        ([], [], -1),
        ([[10**18, 10**18]], ["float"], -1),
        ("text", ["float"], -1),
        ([["two"]], ["float"], -1),
    ],
)
def test_shapes_tell_the_size_or_that_it_is_not_known(shapes: object, types: object, expected: int, tmp_path: Path) -> None:
    assert size(tmp_path, "all_reduce", **{"Input Dims": shapes, "Input type": types}) == expected


def test_an_empty_message_is_known_to_be_empty(tmp_path: Path) -> None:
    assert size(tmp_path, "all_to_all", **{"Collective name": "x", **NOTED, "In msg nelems": 0}) == 0


def test_a_rank_that_gathers_from_an_unknown_number_of_ranks_has_no_size(tmp_path: Path) -> None:
    assert size(tmp_path, "all_gather", **{"Input Dims": [[4]], "Input type": ["float"]}) == -1
