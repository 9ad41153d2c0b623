"""Columns of texts that repeat, as categories: a table of a million rows holds each text once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tachoscope_analyzers.trace.reading.trace import Array, Trace


def names(trace: Trace, rows: Array) -> pd.Categorical:
    """Return the names of events, empty for none (-1), shape of `rows`."""
    code = np.where(rows >= 0, trace.events["name"][np.maximum(rows, 0)] if len(trace.kind) else 0, 0)  # text 0 is empty
    used, number = np.unique(code, return_inverse=True)
    return labels(trace.strings[used].tolist(), number.reshape(-1))


def labels(texts: list[str], number: Array) -> pd.Categorical:
    """Return texts by number; several numbers may stand for one text."""
    codes, found = pd.factorize(np.array(texts, dtype=object))
    return pd.Categorical.from_codes(codes[number], pd.Index(found, dtype=object))
