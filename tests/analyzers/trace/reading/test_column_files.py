from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planting import Planted
from tachoscope_analyzers.trace.reading import column_files
from tachoscope_analyzers.trace.reading.column_files import Writers, opened

DTYPES = ("int64", "int32", "uint8", "float32")


@given(st.lists(st.lists(st.integers(0, 100), max_size=5), min_size=1, max_size=4), st.sampled_from([1, 40, 1 << 20]))
def test_columns_of_any_batches_come_back(batches: list[list[int]], waiting_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_files, "_WAITING_BYTES", waiting_bytes)
        writers = Writers(Path(folder))
        for batch in batches:
            writers.append({"table": {dtype: np.array(batch, dtype=dtype) for dtype in DTYPES}})
        writers.finish([])
        tables, _ = opened(Path(folder))
    for dtype in DTYPES:
        assert tables["table"][dtype].tolist() == [value for batch in batches for value in batch]
        assert tables["table"][dtype].dtype == dtype


def test_arrays_with_strides_are_written_right(tmp_path: Path) -> None:
    writers = Writers(tmp_path)
    writers.append({"table": {"row": np.arange(10)[::3]}})
    writers.finish([])
    assert opened(tmp_path)[0]["table"]["row"].tolist() == [0, 3, 6, 9]


def test_texts_come_back_as_objects(tmp_path: Path) -> None:
    Writers(tmp_path).finish(["", "a", "é", "half a \ud800"])
    _, strings = opened(tmp_path)
    assert strings.tolist() == ["", "a", "é", "half a ?"]
    assert strings.dtype == object


def test_the_report_on_a_trace_imports_no_library_of_tables_whether_the_trace_is_cached_or_not(tmp_path: Path) -> None:
    planted = Planted()
    planted.kernel("gemm", 5000, 1000, launched=1000, grid=[1, 2, 3])
    path = planted.write(tmp_path / "trace.json.gz")
    code = (
        "import sys; from tachoscope_analyzers.trace.findings.report import report;"
        "from tachoscope_analyzers.trace.ranks.job import read_job;"
        "from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions;"
        "report(read_job([sys.argv[1]], wanted=SummaryOptions()), 'job'); print({'pandas', 'pyarrow'} & {*sys.modules})"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True, timeout=300)
        assert done.stdout.strip() == b"set()"
