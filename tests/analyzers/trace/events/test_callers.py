"""Operators and lines of code around events."""

from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from tachoscope_analyzers.trace.events.callers import outermost_operators, source_lines, user_line
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_analyzers.trace.reading.trace import Trace

US = 1_000
T = 1_000_000 * US
NONE = np.array([-1])


def row(trace: Trace, name: str) -> np.ndarray:
    return np.flatnonzero(trace.names(np.arange(len(trace.events))) == name)


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ("torch/_tensor.py(3): item;train.py(12): step;train.py(40): main", "train.py(12): step"),
        ("/usr/lib/python3.10/contextlib.py(1): inner;/home/me/app/model.py(7): forward", "/home/me/app/model.py(7): forward"),
        ("<built-in method item of Tensor object at 0x7f>;contextlib.py(1): inner;torch/nn/functional.py(4): linear", ""),
        (
            "/venv/lib/python3.11/site-packages/transformers/trainer.py(9): log",
            "/venv/lib/python3.11/site-packages/transformers/trainer.py(9): log",
        ),
        ("", ""),
    ],
)
def test_the_users_line_is_the_innermost_outside_of_torch_and_the_standard_library(stack: str, line: str) -> None:
    assert user_line(stack) == line


def test_the_outermost_operator_is_below_annotations_and_marks(tmp_path: Path) -> None:
    trace = Planted()
    trace.annotation("forward", T, 200 * US)
    trace.op("Optimizer.step#SGD.step", T, 150 * US)
    trace.op("aten::linear", T + 10 * US, 100 * US)
    trace.op("aten::addmm", T + 20 * US, 80 * US)
    trace.call("cudaLaunchKernel", T + 30 * US, 5 * US)
    trace.call("cudaEventRecord", T + 130 * US, 5 * US)
    view = TraceView(trace.read(tmp_path))
    rows = np.array(
        [*row(view.trace, "cudaLaunchKernel"), *row(view.trace, "aten::addmm"), *row(view.trace, "cudaEventRecord"), -1]
    )
    names = [view.trace.names(np.array([found]))[0] if found >= 0 else "" for found in outermost_operators(view, rows)]
    assert names == ["aten::linear", "aten::linear", "", ""]


def test_a_line_comes_from_the_call_stack_of_the_operator_else_from_the_frames(tmp_path: Path) -> None:
    trace = Planted()
    trace.op("aten::item", T, 100 * US, **{"Call stack": "torch/_tensor.py(3): item;old.py(12): step"})
    trace.call("cudaStreamSynchronize", T + 10 * US, 50 * US)
    trace.add("python_function", "new.py(5): step", T + 200 * US, 100 * US, **{"Python id": 1, "Python parent id": None})
    trace.call("cudaDeviceSynchronize", T + 210 * US, 50 * US)
    found = trace.read(tmp_path)
    operator = row(found, "aten::item")
    assert source_lines(found, row(found, "cudaStreamSynchronize"), operator, np.array([T])).tolist() == ["old.py(12): step"]
    assert source_lines(found, row(found, "cudaDeviceSynchronize"), NONE, np.array([T])).tolist() == ["new.py(5): step"]
    moments = np.array([T + 250 * US, T + 400 * US])
    assert source_lines(found, np.array([-1, -1]), np.array([-1, -1]), moments).tolist() == ["new.py(5): step", ""]


def test_without_stacks_there_are_no_lines(tmp_path: Path) -> None:
    trace = Planted()
    trace.call("cudaDeviceSynchronize", T, US)
    found = trace.read(tmp_path)
    assert source_lines(found, np.array([0]), NONE, np.array([T])).tolist() == [""]
    assert source_lines(found, np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).tolist() == []
