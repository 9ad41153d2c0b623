"""Columns of texts that repeat, as categories: a table of a million rows holds each text once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.trace import Array, Trace

if TYPE_CHECKING:
    import pandas as pd


class Labels(msgspec.Struct, frozen=True):
    """A column of texts: `texts`, each once, and which of them each row has, shape of the rows."""

    texts: list[str]
    number: Array

    def __getitem__(self, rows: Array | slice) -> Labels:
        return Labels(self.texts, self.number[rows])

    def is_any(self, *texts: str) -> npt.NDArray[np.bool_]:
        """Return which rows have one of some texts, shape of the rows."""
        return np.asarray(np.array([text in texts for text in self.texts] or [False])[self.number])

    @property
    def categorical(self) -> pd.Categorical:
        """The column for a table."""
        import pandas as pd  # a third of a second, which a report does not need

        return pd.Categorical.from_codes(self.number, pd.Index(self.texts, dtype=object))

    @classmethod
    def of_column(cls, column: pd.Series[str]) -> Labels:
        """Return a column of a table."""
        category = column.astype("category").cat
        return cls(category.categories.tolist(), category.codes.to_numpy().astype(np.int64))


def names(trace: Trace, rows: Array) -> Labels:
    """Return the names of events, empty for none (-1), shape of `rows`."""
    code = np.where(rows >= 0, trace.events["name"][np.maximum(rows, 0)] if len(trace.kind) else 0, 0)  # text 0 is empty
    used, number = np.unique(code, return_inverse=True)
    return labels(trace.strings[used].tolist(), number.reshape(-1))


def labels(texts: list[str], number: Array) -> Labels:
    """Return texts by number; several numbers may stand for one text."""
    place = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    codes = np.fromiter(map(place.__getitem__, texts), np.int64, len(texts))
    return Labels(list(place), codes[number])
