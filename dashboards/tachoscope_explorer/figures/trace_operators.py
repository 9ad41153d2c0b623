"""The tree of operators, each as wide as its time."""

from __future__ import annotations

import zlib

import pandas as pd
import plotly.graph_objects as go

from tachoscope_analyzers.trace.analyses.operator_paths import OTHERS
from tachoscope_core.report.palette import SERIES, UNKNOWN
from tachoscope_explorer.figures.trace_words import duration, escaped

_WHOLE = "all"


def icicle(paths: pd.DataFrame, column: str) -> go.Figure:
    """Return the picture of `operator_paths.largest`; `column` holds the totals. The same name has the same colour everywhere."""
    names, totals = paths["name"].tolist(), [int(value) for value in paths[column]]
    parents = ["" if parent < 0 else str(parent) for parent in paths["parent"]]
    whole = sum(total for total, parent in zip(totals, parents, strict=True) if not parent)
    colors = [UNKNOWN if name == OTHERS else SERIES[zlib.crc32(name.encode()) % len(SERIES)] for name in names]
    calls = [f"{count:,} calls" for count in paths["count"]]
    return go.Figure(
        go.Icicle(
            ids=[_WHOLE, *map(str, range(len(names)))],
            labels=[_WHOLE, *(escaped(name) for name in names)],
            parents=["", *(parent or _WHOLE for parent in parents)],
            values=[whole, *totals],
            customdata=[duration(whole), *(f"{duration(total)}, {count}" for total, count in zip(totals, calls, strict=True))],
            branchvalues="total",
            hovertemplate="%{label}<br>%{customdata}<br>%{percentRoot:.1%} of all<extra></extra>",
            texttemplate="%{label} %{percentRoot:.0%}",
            marker={"colors": ["rgba(128,128,128,0.3)", *colors], "line": {"width": 1, "color": "rgba(255,255,255,0.7)"}},
            tiling={"orientation": "v"},
            pathbar={"visible": True},
            sort=False,
        )
    )
