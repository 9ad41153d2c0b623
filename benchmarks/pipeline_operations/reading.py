"""Reads a recording of operations: one Parquet file with a row for each operation, and the sizes of the job beside it.

The format is that of https://github.com/ByteDance-Seed/StragglerAnalysis: `trace-NAME.parquet` and perhaps `meta-NAME.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import QualityNote

WHOLE_NUMBERS = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id", "gmc")
SECONDS = ("start_ts", "duration")
COLUMNS = ("optype", *WHOLE_NUMBERS, *SECONDS)
_FORMAT = f"a recording of operations has the columns {', '.join(COLUMNS)}"
_ONCE = ("step", "dp_rank", "stage", "optype", "seq_id")


@dataclass(frozen=True, slots=True)
class Recording:
    """A file as it is.

    Attributes:
        rows: one operation each, with `COLUMNS`; whole numbers as int64, times in seconds as float64.
        replicas, stages, chunks: data-parallel size, pipeline stages and model chunks in each of them.
        tensor_size: devices in one worker, None where nothing says so. notes: what bounds the conclusions.
    """

    path: Path
    rows: pd.DataFrame
    replicas: int
    stages: int
    chunks: int
    tensor_size: int | None
    notes: tuple[QualityNote, ...]

    @property
    def name(self) -> str:
        """What to call the job."""
        return self.path.name.removesuffix(".parquet").removeprefix("trace-")


def read(path: Path) -> Recording:
    """Read a recording and the sizes of its job.

    Raises:
        TachoscopeError: the file cannot be read, lacks a column, has a value that cannot be, or contradicts its sizes.
    """
    rows = _checked(path, _table(path))
    replicas, stages = int(rows["dp_rank"].max()) + 1, int(rows["stage"].max()) + 1
    chunks = max(int(rows["mc"].max()) + 1, 1)
    _check_workers(path, rows, replicas, stages)
    meta = path.with_name(path.name.removesuffix(".parquet").replace("trace-", "meta-", 1) + ".yaml")
    if not meta.exists() or meta == path:
        sizes = f"{replicas} replicas, {stages} stages, {chunks} model chunk{'s' if chunks > 1 else ''} a stage"
        note = QualityNote(
            what=f"no {meta.name} beside the trace: {sizes}, from its columns",
            severity="note",
            means="how many devices a worker has (tensor parallelism) is not known: ranks are workers",
        )
        return Recording(path, rows, replicas, stages, chunks, None, (note,))
    said = _sizes(meta)
    for key, found in (("dp_size", replicas), ("pp_size", stages), ("vpp_size", chunks)):
        if said.get(key, found) != found:
            raise TachoscopeError(
                f"{meta} says {key} {said[key]}, and {path} holds {found}", fix="correct or remove the one that is wrong"
            )
    return Recording(path, rows, replicas, stages, chunks, said.get("tp_size"), ())


def _table(path: Path) -> pd.DataFrame:
    try:
        schema = pq.read_schema(path)
        missing = [name for name in COLUMNS if name not in schema.names]
        if missing:
            raise TachoscopeError(f"{path} lacks the column {missing[0]!r}", fix=_FORMAT)
        frame: pd.DataFrame = pq.read_table(path, columns=list(COLUMNS)).to_pandas()
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror or error}") from None
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TachoscopeError(f"{path} is not a sound Parquet file: {str(error).splitlines()[0]}", fix=_FORMAT) from None
    if frame.empty:
        raise TachoscopeError(f"{path} holds no operation", fix=_FORMAT)
    return frame


def _checked(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    rows = pd.DataFrame({"optype": frame["optype"].astype("string")})
    if rows["optype"].isna().any():
        raise TachoscopeError(f"{path}, row {int(rows['optype'].isna().argmax())}: no optype", fix=_FORMAT)
    for name in (*WHOLE_NUMBERS, *SECONDS):
        try:
            rows[name] = pd.to_numeric(frame[name]).to_numpy(dtype=np.float64, na_value=np.nan)
        except (ValueError, TypeError):
            raise TachoscopeError(f"{path}: column {name!r} holds something that is not a number", fix=_FORMAT) from None
    for name in ("mc", "mb_id", "gmc"):  # only computing has them
        rows[name] = rows[name].fillna(-1)
    numbers = rows[[*WHOLE_NUMBERS, *SECONDS]]
    _refuse(path, rows, numbers.isna() | numbers.isin([np.inf, -np.inf]), "is not a number")
    _refuse(path, rows, rows[list(WHOLE_NUMBERS)] % 1 != 0, "is not a whole number")
    _refuse(path, rows, rows[["dp_rank", "stage", "rank", "seq_id", "duration"]] < 0, "is negative")
    rows = rows.astype(dict.fromkeys(WHOLE_NUMBERS, np.int64))
    twice = rows.duplicated(list(_ONCE), keep="first")
    if twice.any():
        raise TachoscopeError(f"{path}: {_place(rows, int(twice.argmax()))} stands there twice", fix="each operation once")
    return rows


def _refuse(path: Path, rows: pd.DataFrame, wrong: pd.DataFrame, what: str) -> None:
    """Raise an error on the first row in which something is wrong."""
    if wrong.to_numpy().any():
        row = int(wrong.any(axis=1).to_numpy().argmax())
        column = str(wrong.columns[int(wrong.iloc[row].to_numpy().argmax())])
        value = rows[column].iloc[row]
        raise TachoscopeError(f"{path}: {column} {value:g} of {_place(rows, row)} {what}", fix=_FORMAT)


def _place(rows: pd.DataFrame, row: int) -> str:
    values = rows.iloc[row]
    return f"row {row} (step {values['step']:g}, rank {values['rank']:g}, {values['optype']} {values['seq_id']:g})"


def _check_workers(path: Path, rows: pd.DataFrame, replicas: int, stages: int) -> None:
    workers = rows[["dp_rank", "stage", "rank"]].drop_duplicates()
    if workers.duplicated(["dp_rank", "stage"]).any() or workers["rank"].duplicated().any():
        raise TachoscopeError(f"{path}: a rank is not one worker (dp_rank, stage)", fix="give each worker one rank of its own")
    there = set(zip(workers["dp_rank"], workers["stage"], strict=True))
    for replica in range(replicas):
        for stage in range(stages):
            if (replica, stage) not in there:
                raise TachoscopeError(
                    f"{path} lacks the worker of dp_rank {replica}, stage {stage}", fix="a step is replayed with all its workers"
                )


def _sizes(meta: Path) -> dict[str, int]:
    """Return the sizes that a file beside the trace states."""
    try:
        loaded: Any = yaml_text.load(meta.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise TachoscopeError(f"could not read {meta}: {str(error).splitlines()[0]}") from None
    if not isinstance(loaded, dict):
        raise TachoscopeError(f"{meta} holds no sizes", fix="dp_size: 2, one a line, or remove it")
    sizes = {str(key): value for key, value in loaded.items() if str(key).endswith("_size")}
    for key, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TachoscopeError(f"{meta}: {key} {value!r} is not a size", fix="a whole number of at least 1")
    return sizes
