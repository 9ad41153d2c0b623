"""What all pages are made of: text that is shown as it is, tables with their CSV, charts, errors and what is not there."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.palette import OK

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_REPLACED = re.compile(r"(?<=<)-|(?<=-)[->]|(?<=[<>~])=|(?<=:)(?:material/|streamlit:)|(?<=http)s?://|(?<=www)\.|@", re.IGNORECASE)
"""Where Streamlit makes a sign, an icon or a link of what is not markup: before this it is told to see two texts."""
_APART = ":small[]"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# A table's own download button writes text that a spreadsheet takes for a formula: ours below it does not.
_STYLE = """<style>
.block-container{padding:3rem 2rem;max-width:110rem}
@media(max-width:40rem){.block-container{padding-left:1rem;padding-right:1rem}}
[data-testid="stElementToolbar"] button[aria-label="Download as CSV"]{display:none}
</style>"""


def escape_markdown(text: str) -> str:
    """Return a name so that Markdown shows it letter by letter: names are foreign, and may look like markup.

    Control characters and line ends become spaces, and those around it go.
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text).strip()
    places = [0, *(found.start() for found in _REPLACED.finditer(shown)), len(shown)]
    return _APART.join(_MARKDOWN.sub(r"\\\1", shown[start:end]) for start, end in itertools.pairwise(places) if start < end)


def style() -> None:
    """Give the page its margins."""
    st.html(_STYLE)


def problem(error: TachoscopeError) -> None:
    """Tell what is wrong, in the error's own words."""
    st.error(escape_markdown(str(error)), icon=":material/error:")


def nothing(reason: str) -> None:
    """Say why there is nothing to be seen here; `reason` is Markdown."""
    st.info(reason, icon=":material/info:")


def table(frame: pd.DataFrame, name: str, *, columns: dict[str, object] | None = None, height: int | None = None) -> None:
    """Show a table, its numbers with four digits that count, and offer it as CSV with all of them.

    Args:
        name: of the file, and of the widget: unique on the page. columns: Streamlit's `column_config`.
    """
    st.dataframe(_rounded(frame), hide_index=True, column_config=columns, height=height or "auto")
    st.download_button(
        "CSV", csv(frame), f"{name}.csv", "text/csv", key=f"csv-{name}", icon=":material/download:", on_click="ignore"
    )


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with fractions of four digits; of large numbers none before the point is lost."""
    shown = frame.copy()
    for column in filter(lambda name: pd.api.types.is_float_dtype(frame[name]), frame.columns):
        digits = 3 - np.floor(np.log10(frame[column].abs().where(frame[column] != 0, 1.0)))
        scale = 10.0 ** digits.clip(lower=0).fillna(0)
        shown[column] = (frame[column] * scale).round() / scale
    return shown


@st.fragment
def folded(label: str, show: Callable[[], None], key: str, *, icon: str | None = None, expanded: bool = False) -> None:
    """Put what most people do not look up: it is made when it is opened, and until then costs neither server nor browser anything.

    Args:
        label: Markdown. show: puts the content on the page. key: unique on the page.
    """
    with st.expander(label, expanded=expanded, key=key, icon=icon, on_change="rerun") as part:
        if part.open:
            show()


def csv(frame: pd.DataFrame) -> bytes:
    """Return a table as CSV. Text that a spreadsheet would take for a formula begins with an apostrophe."""
    safe = frame.copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]):
            safe[column] = [f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA) else text for text in safe[column]]
    return safe.to_csv(index=False).encode()


def chart(figure: go.Figure, key: str, *, height: int = 320, selects: str = "") -> dict[str, list[dict[str, object]]]:
    """Show a figure, and return what is selected in it.

    Args:
        selects: `box` (a rectangle is drawn with the mouse), `points`, or empty.

    Returns:
        Streamlit's selection: `points` (with `x`, `y`, `customdata`) and `box` (with `x`, `y`, two numbers each); empty lists for
        nothing.
    """
    dark = st.context.theme.type == "dark"
    ink, grid = ("#e6e6e6", "#444444") if dark else ("#262730", "#e1e4e8")
    figure.update_layout(
        height=height,
        margin=_margins(figure),
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": ink, "size": 13},
        hoverlabel={"bgcolor": "#262730" if dark else "#ffffff", "font": {"color": ink}},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": ink, "activecolor": OK},
        uirevision=key,
    )
    figure.update_xaxes(gridcolor=grid, zerolinecolor=grid, automargin=True)
    figure.update_yaxes(gridcolor=grid, zerolinecolor=grid, automargin=True)
    config = {"displaylogo": False, "responsive": True}
    none: dict[str, list[dict[str, object]]] = {"points": [], "box": []}
    if not selects:
        st.plotly_chart(figure, key=key, theme=None, config=config)
        return none
    event = st.plotly_chart(figure, key=key, theme=None, config=config, on_select="rerun", selection_mode=(selects,))
    return {**none, **event.get("selection", {})}


def _margins(figure: go.Figure) -> dict[str, int]:
    """Return margins in which the labels of most figures have room: plotly draws a figure again if it has to make room for them."""
    top = 28 if figure.layout.title.text else 8
    if not any(hasattr(trace, "xaxis") for trace in figure.data):  # an icicle, which has no labels around it
        return {"l": 8, "r": 8, "t": top, "b": 8}
    has_legend = any(getattr(trace, "showlegend", False) is not False and trace.name for trace in figure.data)
    return {"l": 60, "r": 8, "t": max(top, 16), "b": 92 if has_legend else 68}
