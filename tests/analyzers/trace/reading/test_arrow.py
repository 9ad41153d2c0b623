from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planting import Planted
from tachoscope_analyzers.trace.reading.arrow import texts_to_arrow, texts_to_numpy, to_arrow, to_numpy

DTYPES = ("int64", "int32", "uint8", "float32")


@given(st.lists(st.lists(st.integers(0, 100), max_size=5), max_size=4), st.sampled_from(DTYPES), st.integers(0, 8))
def test_columns_of_any_pieces_come_back(pieces: list[list[int]], dtype: str, start: int) -> None:
    arrays = [to_arrow(np.array(piece, dtype=dtype)) for piece in pieces]
    column = pa.chunked_array(arrays, type=pa.from_numpy_dtype(np.dtype(dtype)))
    whole = [value for piece in pieces for value in piece]
    for found, expected in ((to_numpy(column), whole), (to_numpy(column.slice(start)), whole[start:])):
        assert found.tolist() == expected
        assert found.dtype == dtype


def test_arrays_with_strides_are_copied_right() -> None:
    assert to_numpy(to_arrow(np.arange(10)[::3])).tolist() == [0, 3, 6, 9]


def test_nulls_are_an_error_and_not_numbers() -> None:
    with pytest.raises(ValueError, match="nulls"):
        to_numpy(pa.array([1, None]))


def test_texts_come_back_as_objects() -> None:
    found = texts_to_numpy(
        pa.chunked_array([texts_to_arrow(["a", ""]), texts_to_arrow([]), texts_to_arrow(["é", "half a \ud800"])])
    )
    assert found.tolist() == ["a", "", "é", "half a ?"]
    assert found.dtype == object


@pytest.mark.skipif(int(pa.__version__.partition(".")[0]) < 26, reason="PyArrow imports it by itself")
def test_the_report_on_a_trace_imports_no_pandas_whether_the_trace_is_cached_or_not(tmp_path: Path) -> None:
    planted = Planted()
    planted.kernel("gemm", 5000, 1000, launched=1000, grid=[1, 2, 3])
    path = planted.write(tmp_path / "trace.json.gz")
    code = (
        "import sys; from tachoscope_analyzers.trace.findings.report import report;"
        "from tachoscope_analyzers.trace.ranks.job import read_job;"
        "from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions;"
        "report(read_job([sys.argv[1]], wanted=SummaryOptions()), 'job'); print('pandas' in sys.modules)"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True, timeout=300)
        assert done.stdout.strip() == b"False"
