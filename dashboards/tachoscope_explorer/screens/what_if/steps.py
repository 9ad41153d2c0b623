"""Part of the page What if: steps as their records tell them, without some of their causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from tachoscope_analyzers.job.what_if import MOST_RANKS, Offer, Removal, WhatIf, WithoutCauses, removal_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.report import Finding, Report
from tachoscope_core.report.taxonomy import BY_SLUG
from tachoscope_explorer.figures import what_if as figures
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.query_params import choice, follow
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import chart, escape_markdown, nothing, table
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources import compared_runs
from tachoscope_show.text.units import percent, seconds

_QUANTILE = 1.96
_ALIKE = 0.01
"""Of the step: findings and replay that differ by less say the same."""
_STATE_WORDS = {
    "data_wait": "waiting for data",
    "host_to_device": "copies to the device",
    "host_wait": "the host: launches, pauses, waiting for a core",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluation",
    "compile": "compiling",
    "communication": "exposed communication",
    "unexplained": "what is in no phase",
    "compute": "computing",
}


def show(context: Context, view: View) -> None:
    """Show what a step would be.

    Raises:
        TachoscopeError: the records do not tell.
    """
    url = context.settings.store_url
    asked, report = compared_runs.what_if(url, view.job), sources.report(url, view.job)
    wanted, wrong = _wanted(view, asked, report)
    for sentence in wrong:
        st.warning(escape_markdown(sentence))
    offers = asked.offers()
    if not offers:
        look_at(replace(view, without="", class_=""))
        nothing("Nothing is lost that could be taken out: the steps are computing, and what all ranks need for it.")
        return
    chosen = _ticked(offers, wanted)
    found = asked.without(chosen)
    baseline = _baseline(context, view)
    look_at(replace(view, without=",".join(map(str, chosen)), class_="", baseline=baseline))
    measured = _measured(url, baseline) if baseline else None
    _numbers(asked, found, report, measured)
    saved = [figures.WaterfallBar(describe(one), one.state, part) for one, part in found.parts.items()]
    if not chosen:
        st.info("Tick one or more causes above to see what a step would take without them.", icon=":material/check_box:")
    chart(figures.from_now_to_then(asked.measured.seconds, saved, found.step.seconds, measured), "what-if-waterfall", height=360)
    if len(chosen) > 1:
        orders = (
            "the mean over all orders in which they could go (Shapley values)" if found.every_order else "as they stand, one by one"
        )
        st.caption(f"What hides behind another cause is saved only with it; the shares are {orders}.")
    _claims(asked, report)
    _limits()


def describe(one: Removal) -> str:
    """Return a removal in words."""
    state = one.state.replace("_", " ")
    return state if one.rank is None else f"{state}, rank {one.rank}"


def _wanted(view: View, asked: WhatIf, report: Report) -> tuple[list[Removal], list[str]]:
    """Return what the address asks to take out, and what of it cannot be."""
    if view.without:
        texts = view.without.split(",")
        found = [removal_of(text) for text in texts]
        known = asked.known([one for one in found if one is not None])
        wrong = [text for text, one in zip(texts, found, strict=True) if one not in known]
        return known, [f"the address asks to take out {text[:60]!r}, which this run does not have" for text in wrong]
    if not view.class_:
        return [], []
    title = BY_SLUG[view.class_].title if view.class_ in BY_SLUG else ""
    if not title:
        return [], [f"the address names the class {view.class_[:60]!r}, which does not exist"]
    finding = next((one for one in report.findings if one.class_ == view.class_), None)
    if finding is None:
        return [], [f"{title!r} was not found in this run, so it cannot be removed"]
    known = asked.of_finding(finding)
    return known, [] if known else [f"{title!r} is not a state or rank that could be taken out of the steps"]


def _ticked(offers: Sequence[Offer], wanted: Sequence[Removal]) -> list[Removal]:
    """Show what can be taken out, and return what is ticked; what the address wants is offered even where it saves little."""
    offered = {one.removal: one for one in offers}
    everything = [*offered, *(one for one in wanted if one not in offered)]
    left, right = st.columns(2)
    chosen = []
    with left:
        st.markdown("**Gone on all ranks**")
        chosen += [one for one in everything if one.rank is None and _tick(one, offered.get(one), wanted=one in wanted)]
    with right:
        ranks = [one for one in everything if one.rank is not None]
        st.markdown("**Ranks at the speed of the usual rank**")
        if not ranks:
            st.caption("No rank is later than the others by more than a hundredth of a step.")
        chosen += [one for one in ranks if _tick(one, offered.get(one), wanted=one in wanted)]
        if len(ranks) >= MOST_RANKS:
            st.caption(f"The {MOST_RANKS} that cost most.")
    return [one for one in everything if one in chosen]


def _tick(one: Removal, offer: Offer | None, *, wanted: bool) -> bool:
    key = f"what-if {one}"
    follow(key, wanted)
    alone = f"saves {seconds(offer.saved)}" if offer and offer.saved > 1e-7 else "saves nothing alone"
    what = _STATE_WORDS.get(one.state, one.state)
    if offer is not None:
        spent = "the rank that a step lasts for spends" if one.rank is None else f"beyond the usual rank, rank {one.rank} spends"
        what += f": {spent} {seconds(offer.spent)} a step"
    return st.checkbox(
        f"{escape_markdown(describe(one))}: {alone}", key=key, help=escape_markdown(f"{what[:1].upper()}{what[1:]}.")
    )


def _baseline(context: Context, view: View) -> str:
    likely = [one.job for one in compared_runs.baselines(context.settings.store_url, view.job)]
    return choice(
        "A run without it, to compare with",
        likely,
        view.baseline,
        "what-if-baseline",
        none="none" if likely else "no other run",
    )


def _measured(url: str, baseline: str) -> float | None:
    try:
        return sources.report(url, baseline).step_seconds.mean
    except TachoscopeError as error:
        st.warning(escape_markdown(str(error)))
        return None


def _numbers(asked: WhatIf, found: WithoutCauses, report: Report, measured: float | None) -> None:
    now, then = asked.measured.seconds, found.step.seconds
    columns = st.columns(4)
    columns[0].metric("Step now", seconds(now))
    less = f"-{seconds(found.saved.seconds)}" if found.saved.seconds else None
    columns[1].metric("Step then", seconds(then), less, delta_color="inverse")
    columns[2].metric("Speed-up", f"{now / then:.2f}x" if then > 0 else "nothing is left")
    before = "not known" if report.goodput is None else percent(report.goodput)
    columns[3].metric(
        "Compute share then",
        "not known" if found.goodput is None else percent(found.goodput),
        f"now {before}",
        delta_color="off",
        delta_arrow="off",
    )
    reach = _QUANTILE * found.step.error
    sentences = [
        f"Step then: 95 % interval {seconds(max(then - reach, 0.0))} to {seconds(then + reach)}, by the scatter of the steps."
    ]
    if measured:
        sentences.append(
            f"The baseline's measured step is {seconds(measured)}: the answer differs from it by {then / measured - 1:+.1%}."
        )
    st.caption(escape_markdown(" ".join(sentences)))


def _claims(asked: WhatIf, report: Report) -> None:
    rows = [_claim(asked, finding) for finding in report.findings if finding.seconds_per_step > 0]
    if not rows:
        return
    st.subheader("What the findings promise")
    table(pd.DataFrame(rows), "findings", columns={"why they differ": st.column_config.TextColumn(width="large")})


def _claim(asked: WhatIf, finding: Finding) -> dict[str, str]:
    now = asked.measured.seconds
    chosen = asked.of_finding(finding)
    promised = None if finding.speedup_if_fixed is None else now / finding.speedup_if_fixed
    then = asked.without(chosen).step.seconds if chosen else None
    return {
        "finding": BY_SLUG[finding.class_].title if finding.class_ in BY_SLUG else finding.class_,
        "step by the finding": "cannot be determined" if promised is None else seconds(promised),
        "taken out here": ", ".join(map(describe, chosen)) or "has no state or rank of its own",
        "step then": "-" if then is None else seconds(then),
        "why they differ": _why(now, promised, then),
    }


def _why(now: float, promised: float | None, then: float | None) -> str:
    if promised is None or then is None:
        return ""
    if abs(promised - then) <= _ALIKE * now:
        return "they agree"
    if promised < then:
        return "another rank, nearly as late, sets the step once this is gone; the finding takes its seconds off the step"
    return "the finding is only a part of what these ranks spend in that state; here all of it is gone"


def _limits() -> None:
    with st.expander("How this is worked out, and what it does not know"):
        st.markdown(
            "A step lasts as long as its latest rank's own time and the transfer. Each step is put together again without "
            "what is ticked: on **all ranks** the whole state is gone; of a **single rank** only what it has beyond the "
            "usual rank (the lower median). The wait then goes to the rank that is latest without it, so results are not simple "
            "subtractions, and fixing ranks saves at most what other ranks waited. It does not know what else would "
            "change: a loader without waiters still needs its cores. The compute share is the computing that is "
            "left over the time that is left."
        )
