"""Parts of a page behind tabs. Only the open one is computed and drawn, and choosing another redraws nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import streamlit as st

from tachoscope_explorer.page.context import Context, look_at


@st.fragment
def show_parts(context: Context, titles: Mapping[str, str], show: Callable[[Context, str], None], key: str) -> None:
    """Show the part of the address, else the first; the one that is chosen becomes part of the address.

    Args:
        titles: of each part, as the address names it. show: shows a part; its context names the part. key: unique on the page.
    """
    wanted = context.view.part if context.view.part in titles else next(iter(titles))
    tabs = st.tabs(list(titles.values()), default=titles[wanted], key=f"{key}-{wanted}", on_change="rerun")
    for part, tab in zip(titles, tabs, strict=True):
        if tab.open:
            view = context.view if part == wanted else replace(context.view, part=part)
            if st.query_params.get("part", "") != view.part:
                look_at(view)
            with tab:
                show(replace(context, view=view), part)
