"""Tables of the trace engine as people read them: milliseconds for nanoseconds, words for columns' names."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from tachoscope_explorer.page.widgets import table

MOST_ROWS = 500
_MEANINGS = {
    "late collectives": "Collectives in which a rank waited for longer than the clock error.",
    "last collectives": "Those of the late ones in which this rank came last.",
    "shortest collectives": "Those of them in which its own collective was also the shortest, which does not depend on clocks.",
    "last steps": "Steps in which this rank delayed the group most.",
    "delay, ms": "What would be gained if this rank came when the next to last does.",
    "waited, ms": "Mean wait of the others for it.",
    "waited at first, ms": "Of that in the first collective, where a recording that began late looks the same.",
    "coverage, %": "Its part of the delays of all ranks.",
    "chance, %": "Upper bound of the probability that any rank is last this often if all ranks are equal.",
}
"""What a heading does not say by itself."""


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its nanoseconds as milliseconds and its bytes as MiB, and columns named in words.

    Columns of text that are empty throughout are left out.
    """
    found = {}
    for column in frame.columns:
        name, values = str(column), frame[column]
        if not pd.api.types.is_numeric_dtype(values):
            values = values.astype(str)
            if len(values) and (values == "").all():
                continue
        if name.endswith("_ns"):
            found[f"{_label(name.removesuffix('_ns'))}, ms"] = values / 1e6
        elif name.endswith("_bytes") or name == "bytes":
            found[f"{_label(name)}, MiB".replace(" bytes,", ",")] = values.where(values != -1) / 2**20
        elif name.endswith("_percent"):
            found[f"{_label(name.removesuffix('_percent'))}, %"] = values
        elif name.endswith("_ratio"):
            found[f"{_label(name.removesuffix('_ratio'))}, %"] = 100 * values
        elif name.endswith("_gb_per_s"):
            found[f"{_label(name.removesuffix('_gb_per_s'))}, GB/s"] = values
        else:
            found[_label(name)] = values
    return pd.DataFrame(found)


def _label(name: str) -> str:
    return name.replace("_", " ")


def show_table(frame: pd.DataFrame, name: str) -> None:
    """Show the first rows of a table, and offer them as CSV; say how many there are.

    Args:
        name: see `widgets.table`.
    """
    part = readable(frame.head(MOST_ROWS))
    if len(frame) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} of {len(frame):,} rows; `tachoscope trace --tables` writes all of them.")
    columns: dict[str, object] = {
        column: st.column_config.NumberColumn(format="%.6g", help=_MEANINGS.get(str(column)))
        if pd.api.types.is_float_dtype(part[column])
        else st.column_config.Column(help=_MEANINGS.get(str(column)))
        for column in part.columns
    }
    table(part, name, columns=columns, height=min(35 * (len(part) + 1) + 3, 420))
