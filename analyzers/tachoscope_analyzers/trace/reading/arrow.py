"""Between numpy and Arrow without a copy. Arrow's own conversions import pandas first, which takes longer than opening a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


def to_arrow(values: Array) -> pa.Array:
    """Return a column of numbers, shape (N,), as an Arrow array."""
    kept = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(kept.dtype), len(kept), [None, pa.py_buffer(kept)])


def to_numpy(column: pa.ChunkedArray | pa.Array) -> Array:
    """Return a column of numbers as a numpy array, read-only where it is one piece, shape (N,).

    Raises:
        ValueError: it holds nulls or is shorter than it says; a trace's columns never are.
    """
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    arrays = [_piece(piece) for piece in pieces if len(piece)]
    if not arrays:
        return np.zeros(0, dtype=column.type.to_pandas_dtype())
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _piece(piece: pa.Array) -> Array:
    if piece.null_count:
        raise ValueError("a column of numbers holds nulls")
    return np.frombuffer(
        piece.buffers()[1], dtype=piece.type.to_pandas_dtype(), count=len(piece), offset=piece.offset * piece.type.byte_width
    )


def texts_to_numpy(column: pa.ChunkedArray) -> Array:
    """Return a column of texts as a numpy array of objects, shape (N,)."""
    found = np.empty(len(column), dtype=object)
    found[:] = column.to_pylist()
    return found


def texts_to_arrow(texts: list[str]) -> pa.Array:
    """Return texts as an Arrow array, with a question mark for what is not a character."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
    return pa.Array.from_buffers(pa.large_string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))])
