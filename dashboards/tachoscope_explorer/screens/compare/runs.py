"""Part of the page Compare: two runs by their step records."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import streamlit as st

from tachoscope_analyzers.compare.aligned_steps import aligned_steps
from tachoscope_analyzers.compare.per_work import SecondsPerUnit, per_work
from tachoscope_core.report.comparison import Comparison, Difference
from tachoscope_core.report.report import Report
from tachoscope_core.report.trend import Trend
from tachoscope_explorer.figures import compare as figures
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import chart, escape_markdown, table
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources import compared_runs
from tachoscope_show.report import comparison_words
from tachoscope_show.report.trend_words import ranks_text, signed_percent
from tachoscope_show.text.units import seconds

_AXES = {"Step number": "step", "Share of the run": "share"}
_NOT_KNOWN = "not known"


def show(context: Context, view: View) -> None:
    """Show a run against another.

    Raises:
        TachoscopeError: the two cannot be compared.
    """
    url = context.settings.store_url
    report = compared_runs.comparison(url, view.job, view.baseline)
    baseline = sources.report(url, view.baseline)
    one = report.comparison
    assert one is not None, "`compared` makes it"
    _verdict(one)
    for note in one.notes:
        st.caption(escape_markdown(note))
    _links(context, view)
    st.subheader("From the baseline's step to this one")
    chart(figures.from_baseline_to_now(one), "compare-waterfall", height=340)
    st.caption("Pale bars are within the noise of the two runs. A state is what the rank did that each step lasted for.")
    table(_states(one), "states", columns=_columns())
    _steps(url, view)
    if report.course is not None and baseline.course is not None:
        _per_work(report.course, baseline.course)
    _made_of(report, baseline, one)


def _verdict(one: Comparison) -> None:
    words = comparison_words.verdict(one)
    box = {"faster": st.success, "alike": st.success, "slower": st.error if one.severity == "critical" else st.warning}
    box.get(one.verdict, st.info)(f"**{escape_markdown(words[:1].upper() + words[1:])}**")
    low, high = one.step.interval
    columns = st.columns(3)
    fair = one.verdict in {"slower", "faster"}
    columns[0].metric(
        "Step now",
        seconds(one.step.seconds),
        f"{signed_percent(one.share)}",
        delta_color="inverse" if fair else "off",
    )
    columns[1].metric("Step of the baseline", seconds(one.step.baseline_seconds))
    columns[2].metric("Ranks with changed own time", "cannot be determined" if one.ranks is None else ranks_text(one.ranks))
    interval = f"{comparison_words.signed(low)} to {comparison_words.signed(high)}"
    st.caption(escape_markdown(f"{comparison_words.title(one)}; 95 % interval of the difference: {interval} a step."))


def _links(context: Context, view: View) -> None:
    columns = st.columns(4, vertical_alignment="center")
    with columns[0]:
        context.link("The run's page", "job", View(job=view.job), icon=":material/speed:")
    with columns[1]:
        context.link("The baseline's page", "job", View(job=view.baseline), icon=":material/speed:")
    with columns[2]:
        context.link("What if causes were gone?", "what-if", View(job=view.job, baseline=view.baseline), icon=":material/tune:")
    with columns[3]:
        if st.button("The other way round", type="tertiary", icon=":material/swap_horiz:"):
            context.open_page("compare", replace(view, job=view.baseline, baseline=view.job))


def _states(one: Comparison) -> pd.DataFrame:
    return pd.DataFrame([_row(row) for row in (one.step, *one.states)])


def _row(row: Difference) -> dict[str, object]:
    low, high = row.interval
    return {
        "a step": row.name,
        "baseline_ms": row.baseline_seconds * 1e3,
        "now_ms": row.seconds * 1e3,
        "difference_ms": row.difference * 1e3,
        "interval_low_ms": low * 1e3,
        "interval_high_ms": high * 1e3,
        "noise": "beyond" if row.beyond_noise else "within",
    }


def _columns() -> dict[str, object]:
    names = {
        "baseline_ms": "baseline",
        "now_ms": "now",
        "difference_ms": "difference",
        "interval_low_ms": "at least",
        "interval_high_ms": "at most",
    }
    signed = {"difference_ms", "interval_low_ms", "interval_high_ms"}
    return {
        key: st.column_config.NumberColumn(name, format=f"%{'+' if key in signed else ''}.2f ms") for key, name in names.items()
    }


def _steps(url: str, view: View) -> None:
    st.subheader("Step times of both")
    axis = st.segmented_control("Over", list(_AXES), default="Step number", key="compare-axis", label_visibility="collapsed")
    runs = compared_runs.step_times(url, view.baseline), compared_runs.step_times(url, view.job)
    found = aligned_steps(runs, "share" if _AXES.get(axis or "") == "share" else "step")
    names = [f"baseline, {len(runs[0].numbers):,} steps", f"now, {len(runs[1].numbers):,} steps"]
    chart(figures.step_times(found, names), "compare-steps", height=320)
    if found.steps > 1:
        st.caption(f"Medians of up to {found.steps:,} steps, and as a band 5 % to 95 % of them. The warm-up is left out.")


def _per_work(now: Trend, baseline: Trend) -> None:
    st.subheader("For the same work")
    st.caption("All ranks together. The steps of two runs are the same work only where they take as many samples and tokens.")
    steps = [_work_of_a_step(name, now, baseline) for name in ("tokens", "samples")]
    table(pd.DataFrame([*steps, *(_pace(one) for one in per_work(now, baseline))]), "same-work")


def _work_of_a_step(name: str, now: Trend, baseline: Trend) -> dict[str, str]:
    amounts = [getattr(course, f"{name}_per_step") for course in (baseline, now)]
    words = [f"{amount:,.6g}" if amount else _NOT_KNOWN for amount in amounts]
    known = all(amounts)
    return {
        "measure": f"{name} a step",
        "baseline": words[0],
        "now": words[1],
        "difference": signed_percent(amounts[1] / amounts[0] - 1) if known else _NOT_KNOWN,
        "95 % interval": "",
    }


def _pace(one: SecondsPerUnit) -> dict[str, str]:
    low, high = one.interval or (0.0, 0.0)
    return {
        "measure": f"seconds per {one.unit}",
        "baseline": _NOT_KNOWN if one.baseline is None else f"{one.baseline:,.4g} s",
        "now": _NOT_KNOWN if one.now is None else f"{one.now:,.4g} s",
        "difference": _NOT_KNOWN if one.share is None else signed_percent(one.share),
        "95 % interval": _NOT_KNOWN if one.interval is None else f"{signed_percent(low)} to {signed_percent(high)}",
    }


def _made_of(report: Report, baseline: Report, one: Comparison) -> None:
    st.subheader("What they were made of")
    found = comparison_words.made_of(one)
    if found:
        table(pd.DataFrame(found, columns=["made of", "baseline", "now"]), "made-of")
    elif report.lineage and baseline.lineage:
        st.caption("The same, as far as it was recorded: code, data, image and hyper-parameters.")
    else:
        unknown = " and ".join(name for name, side in (("this run", report), ("the baseline", baseline)) if not side.lineage)
        st.caption(f"Unknown for {unknown}: its code, data and hyper-parameters were not recorded.")
