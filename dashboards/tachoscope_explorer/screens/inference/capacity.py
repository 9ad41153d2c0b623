"""How much traffic a service takes, as a part of the page of inference."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from tachoscope_analyzers.serving.capacity.capacity import Capacity
from tachoscope_analyzers.serving.capacity.engine_model import NotMeasuredError
from tachoscope_analyzers.serving.capacity.objectives import DEFAULTS, Objective, objective
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Report
from tachoscope_explorer.figures import inference as figures
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, problem, table
from tachoscope_show.capacity import text as capacity_text

_ASKED = ", ".join(f"{one.name}={one.seconds:g}" for one in DEFAULTS)


def show(find: Callable[[tuple[Objective, ...]], Capacity], report: Report) -> None:
    """Ask for objectives, and show up to which rate they are met.

    Args:
        find: finds that out, and raises TachoscopeError where it cannot be determined. report: on what was recorded.
    """
    st.header("How much traffic it takes")
    text = st.text_input(
        "Objectives", _ASKED, key="capacity-asked", help="In seconds, of ttft, itl, tpot, e2e and queue, such as ttft_p95=0.5."
    )
    if not st.toggle("Replay the traffic at other rates", key="capacity-on"):
        st.caption("The recorded requests are replayed, faster and slower, on a model of the engine; this takes some seconds.")
        return
    try:
        asked = tuple(objective(part) for part in text.split(",") if part.strip()) or DEFAULTS
        found = find(asked)
    except NotMeasuredError as error:
        nothing(f"It cannot be determined: {escape_markdown(str(error))}")
        return
    except TachoscopeError as error:
        problem(error)
        return
    _show_capacity(found, asked, report)


def _show_capacity(found: Capacity, asked: tuple[Objective, ...], report: Report) -> None:
    st.markdown(f"**{escape_markdown(capacity_text.verdict(found))}**")
    for warning in capacity_text.warnings(found):
        st.warning(escape_markdown(warning))
    if found.curve:
        _show_curve(found, asked, report)
    if found.levers:
        st.subheader("What moves the knee")
        levers = [{"change": one.what, "knee": capacity_text.moved(one.ratio), "assumed": one.assumed} for one in found.levers]
        table(pd.DataFrame(levers), "levers")
    for title, lines in (
        ("Also", capacity_text.advice(found)),
        ("Measured", found.model.measured),
        ("Assumed", found.model.assumed),
    ):
        if lines:
            with st.expander(title):
                st.markdown("\n".join(f"- {escape_markdown(line)}" for line in lines))


def _show_curve(found: Capacity, asked: tuple[Objective, ...], report: Report) -> None:
    chart(figures.latency_throughput(found, report), "capacity", height=420)
    st.caption("Dashed: objectives. Shaded: 95 % interval of the knee. Diamonds: what was recorded.")
    names = list(dict.fromkeys([*capacity_text.COLUMNS, *(one.name for one in asked)]))
    rows = [
        {
            "requests/s": f"{point.rate:.3g}",
            "tokens/s": f"{point.output_tokens_per_second:.0f}",
            **{name.replace("_", " "): capacity_text.cell(point, name) for name in names},
            "objectives": capacity_text.mark(point, found),
        }
        for point in found.curve
    ]
    table(pd.DataFrame(rows), "capacity-curve")
