"""The page of inference: how a service answers, where the time of its requests goes, and how much traffic it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from tachoscope_analyzers.serving.capacity.capacity import Capacity
from tachoscope_analyzers.serving.capacity.objectives import Objective
from tachoscope_core.report.report import Report
from tachoscope_core.report.serving import Serving
from tachoscope_explorer.figures import inference as figures
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.finding_card import show_findings
from tachoscope_explorer.page.job_facts import not_measured
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, table
from tachoscope_explorer.screens.inference import capacity as inference_capacity
from tachoscope_explorer.screens.inference import slow_requests as inference_slow
from tachoscope_explorer.sources import inference as inference_sources
from tachoscope_explorer.sources.inference import ServiceWindow, Span
from tachoscope_show.serving import words as serving_words
from tachoscope_show.text.units import duration, percent

_ALL = "all models"
Find = Callable[[tuple[Objective, ...]], Capacity]


def show(context: Context) -> None:
    """Show the page."""
    st.title("Inference")
    recordings = inference_sources.recordings(context.settings)
    services = [*recordings, *inference_sources.services(context.settings)]
    wanted = context.view.service or context.view.job
    if wanted and wanted not in services:
        st.warning(escape_markdown(f"the store has no service {wanted!r}"))
    if not services:
        nothing(
            "The store has no service. An inference server leaves records once it is instrumented with `tachoscope.service` "
            "and run by `tachoscope run`; docs/guides/serving-probe.md says how."
        )
        return
    job, model = _chosen(context, services, wanted)
    if job in recordings:
        path = recordings[job]
        _show(context, inference_sources.recorded(path), partial(inference_sources.capacity_recorded, path), None)
        return
    span = _window(context)
    seen = inference_sources.service_window(context.settings, job, model, span)
    _show(context, seen, partial(inference_sources.capacity, context.settings, job, model, span), span)


def _show(context: Context, seen: ServiceWindow, find: Find, span: Span | None) -> None:
    report = seen.report
    assert report.serving is not None, "a report on traffic has this part"
    st.markdown(f"**{escape_markdown(serving_words.summary(report, report.serving))}**, {_when(report)}")
    _numbers(report, report.serving)
    show_findings(context, report)
    not_measured(report)
    _outcomes(seen, report.serving)
    _latencies(report.serving)
    _phases(context, seen, span)
    inference_slow.show(seen)
    inference_capacity.show(find, report)


def _chosen(context: Context, services: list[str], wanted: str) -> tuple[str, str]:
    """Ask for the service and its model, and put them into the address."""
    left, right = st.columns(2)
    with left:
        job = st.selectbox("Service", services, index=services.index(wanted) if wanted in services else 0)
    models = [] if job in inference_sources.recordings(context.settings) else inference_sources.models(context.settings, job)
    given = context.view.model if job == wanted or not wanted else ""
    with right:
        names = [_ALL, *models]
        model = st.selectbox("Model", names, index=names.index(given) if given in models else 0, key=f"model-{job}-{given}")
    if given and given not in models:
        st.warning(escape_markdown(f"no record of {job} reports a model {given!r}"))
    chosen = "" if model == _ALL else model
    view = context.view if job == wanted else replace(context.view, start=None, end=None)
    look_at(replace(view, job="", service=job, model=chosen))
    return job, chosen


def _window(context: Context) -> Span | None:
    view = context.view
    if view.start is None or view.end is None:
        return None
    left, right = st.columns([3, 1], vertical_alignment="center")
    left.markdown(f"Window: {figures.moment(view.start):%Y-%m-%d %H:%M:%S} to {figures.moment(view.end):%H:%M:%S} UTC")
    if right.button("Whole last hour", icon=":material/zoom_out_map:"):
        look_at(replace(view, start=None, end=None))
        st.rerun()
    return view.start, view.end


def _when(report: Report) -> str:
    begin, end = (figures.moment(at) for at in (report.window.start, report.window.end))
    return f"{begin:%Y-%m-%d %H:%M:%S} to {end:%H:%M:%S} UTC"


def _numbers(report: Report, serving: Serving) -> None:
    columns = st.columns(5)
    arrived = serving.arrived_per_second
    ended = sum(serving.outcomes.values())
    columns[0].metric("Arrived a second", "not known" if arrived is None else f"{arrived:.3g}")
    columns[1].metric("Served a second", f"{serving.served_per_second:.3g}")
    columns[2].metric("Output tokens a second", f"{serving.tokens_out_per_second:,.0f}")
    columns[3].metric("Ended well", percent(serving.outcomes.get("ok", 0.0) / ended) if ended else "not known")
    productive = "not known" if report.goodput is None else percent(report.goodput)
    columns[4].metric("Productive", productive, help="Of the time of requests, the share in prefill and decode.")


def _outcomes(seen: ServiceWindow, serving: Serving) -> None:
    for name, told in serving_words.facts(serving):
        st.markdown(f"{escape_markdown(name)}: {escape_markdown(told)}")
    if seen.unknown:
        told = ", ".join(f"{count:,} {outcome!r}" for outcome, count in seen.unknown.items())
        st.warning(escape_markdown(f"ended with outcomes unknown to this version: {told}"))


def _latencies(serving: Serving) -> None:
    st.header("Latencies")
    rows = [
        dict(zip(("time", *serving_words.LATENCY_HEAD[1:]), serving_words.latency(row), strict=True)) for row in serving.latencies
    ]
    if not rows:
        nothing("No requests were processed in this window, so no latencies were measured.")
        return
    table(pd.DataFrame(rows), "latencies")
    st.caption("The mean is exact; a quantile lies between two bounds.")


def _phases(context: Context, seen: ServiceWindow, span: Span | None) -> None:
    st.header("Where the time of requests goes")
    if not seen.states:
        nothing(
            "No record contains the states of requests. Records of clients lack them, and so do those of a server whose engine "
            "is not instrumented."
        )
        return
    key = "phases" if span is None else f"phases-{span[0]:.0f}-{span[1]:.0f}"
    if seen.side == "looks":
        st.caption("Requests in each state over time, by what the server's metrics tell.")
        chart(figures.over_time(seen.traffic, seen.states), key)
        return
    st.caption("Requests in each state over time. Draw a box to see that time alone.")
    box = chart(figures.over_time(seen.traffic, seen.states), key, selects="box")["box"]
    if box:
        begin, end = sorted(pd.Timestamp(str(at)).tz_localize("UTC").timestamp() for at in box[0]["x"])  # type: ignore[attr-defined]
        if end - begin >= 1.0:
            look_at(replace(context.view, start=begin, end=end))
            st.rerun()
    if seen.by_slowness is not None:
        st.subheader("Fast and slow requests")
        chart(figures.by_slowness(seen.by_slowness), "slowness")
        longest = seen.slow[0].wall_seconds if seen.slow else 0.0
        st.caption(f"{seen.requests:,} requests ended; the slowest took {duration(longest)}.")
