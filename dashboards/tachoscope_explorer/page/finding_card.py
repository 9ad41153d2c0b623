"""What a report found, as cards with links to traces and the runbook. For every page that has a report."""

from __future__ import annotations

import re
from dataclasses import replace

import streamlit as st

from tachoscope_core.report.report import Finding, Report
from tachoscope_core.report.taxonomy import HEALTHY
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown, folded
from tachoscope_show.report import verdict_words
from tachoscope_show.report.finding_card import bounds, cards, conditions, verdict_tag
from tachoscope_show.report.finding_words import SMALL_LOSSES, large
from tachoscope_show.text.pages import part, rendered
from tachoscope_show.text.runbook_pages import text_of

_MOST_LINKS = 8
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
_HEADING = re.compile(r"^##+ ", re.MULTILINE)


def verdict(report: Report) -> str:
    """Return what a report comes to: its first lines, without what the cards below say."""
    lines = verdict_words.first_lines(report)
    more = sum(one.class_ not in HEALTHY and not one.condition for one in large(report)) - 1
    rest = f"{more} more below." if more > 0 and lines.size else ""
    return " ".join(filter(None, (lines.verdict, f"{lines.size}." if lines.size else "", rest)))


def show_findings(context: Context, report: Report) -> None:
    """Show the verdict, what limits it, and a card for each finding."""
    show_verdict(report)
    show_cards(context, report)


def show_cards(context: Context, report: Report) -> None:
    """Show a card for each finding, the largest loss first, small losses below."""
    below = False
    for index, (card, finding) in enumerate(zip(cards(report), report.findings, strict=True)):
        if card.small and not below:
            st.subheader(SMALL_LOSSES)
            below = True
        with st.container(border=True):
            st.html(part("finding.html", "card", card))
            _links(context, report, finding)
            _runbook(context, finding, index)


def show_verdict(report: Report) -> None:
    """Show the verdict with its severity, conditions of the machine, and what limits the conclusions."""
    st.html(f"<style>{rendered('finding.css')}</style>")
    st.html(part("finding.html", "tagged", replace(verdict_tag(report), text=verdict(report)), "f-head"))
    if notes := [*conditions(report), *bounds(report)]:
        st.html("".join(part("finding.html", "tagged", note) for note in notes))


def _links(context: Context, report: Report, finding: Finding) -> None:
    """Put links to the traces of the ranks that a finding names."""
    if isinstance(finding.ranks, str) or report.serving:
        return
    with st.container(horizontal=True):
        for rank in finding.ranks[:_MOST_LINKS]:
            shown = context.view  # of traces without a job a report has another name
            view = View(job=shown.job or report.job, trace=shown.trace, rank=rank, start=shown.start, end=shown.end)
            context.link(f"Rank {rank} in the trace", "trace", view, icon=":material/timeline:")


def _runbook(context: Context, finding: Finding, index: int) -> None:
    text = text_of(finding.runbook)
    asked = context.view.class_ == finding.class_
    if not text:
        st.caption(f"Runbook: {escape_markdown(finding.runbook)}, which is not installed here.")
        return

    def show() -> None:
        if not asked:
            context.link("This page with the runbook open, as a link", "job", replace(context.view, class_=finding.class_))
        st.markdown(runbook_markdown(text))

    # Whether it is open is kept by its key: of another finding, or of an address that asks for it, it is another one.
    key = f"runbook-{index}-{finding.class_}-{asked}"
    folded(f"Runbook: {escape_markdown(finding.class_)}", show, key, icon=":material/menu_book:", expanded=asked)


def runbook_markdown(text: str) -> str:
    """Return one of our own runbooks as it is shown within a card: headings smaller, and no links to files that are not served."""
    body = text.split("\n", 1)[1] if text.startswith("# ") else text
    return _HEADING.sub("##### ", _LINK.sub(r"**\1**", body))
