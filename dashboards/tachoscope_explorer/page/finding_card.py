"""What a report found, as cards: what, how much, whose, why it is believed, and what to do. For every page that has a report."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape

import streamlit as st

from tachoscope_core.report.palette import BAD, OK, SERIES, UNKNOWN, WARN
from tachoscope_core.report.report import Evidence, Finding, Report, gravest, speedup_text
from tachoscope_core.report.taxonomy import BY_SLUG, HEALTHY
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown
from tachoscope_show.report import verdict_words
from tachoscope_show.report.finding_words import (
    SMALL_LOSSES,
    culprits_text,
    large,
    loss_text,
    nothing_found,
    quantity,
    share_text,
    small,
    tells_speedup,
)
from tachoscope_show.text.runbook_pages import text_of
from tachoscope_show.text.units import percent

COLORS = {"critical": BAD, "warning": WARN, "info": SERIES[0]}
_QUALITY = {"bad": (BAD, "bad data"), "limited": (WARN, "limited data"), "note": (UNKNOWN, "note on the data")}
_MOST_LINKS = 8
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
_CODE = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"^##+ ", re.MULTILINE)
STYLE = """<style>
.f-tag{display:inline-block;color:#fff;border-radius:4px;padding:.05rem .5rem;font-size:.8rem;font-weight:600;margin-right:.6rem}
.f-head{font-size:1.1rem;font-weight:600} .f-dim{opacity:.75} .f-name{overflow-wrap:anywhere}
.f-facts{border-collapse:collapse;width:100%;margin-top:.5rem}
.f-facts td,.f-facts th{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top}
.f-facts th{font-weight:400;opacity:.75;white-space:nowrap;width:7rem} .f-facts td{overflow-wrap:anywhere}
.f-row{display:flex;flex-wrap:wrap;gap:.1rem .8rem;padding:.15rem 0;border-bottom:1px solid rgba(128,128,128,.25)}
.f-row>:first-child{flex:1 1 14rem;min-width:0;overflow-wrap:anywhere} .f-row:last-child{border:0}
.f-value{flex:0 0 12rem}
.f-bar{flex:0 0 7rem;position:relative;height:.7rem;margin-top:.45rem;background:rgba(128,128,128,.25);border-radius:2px}
.f-bar i{position:absolute;left:0;top:0;bottom:0;border-radius:2px}
.f-bar b{position:absolute;top:-.2rem;bottom:-.2rem;width:2px;background:currentColor}
@media(max-width:40rem){.f-facts tr,.f-facts th,.f-facts td{display:block}
.f-row>:first-child{flex-basis:100%} .f-value{flex:1 1 8rem}}
</style>"""


def title_of(class_: str) -> str:
    """Return what a class is called; of one that this version does not know, its slug."""
    return BY_SLUG[class_].title if class_ in BY_SLUG else class_


def verdict(report: Report) -> str:
    """Return what a report comes to: its first lines, without what the cards below say."""
    lines = verdict_words.first_lines(report)
    more = sum(one.class_ not in HEALTHY and not one.condition for one in large(report)) - 1
    rest = f"{more} more below." if more > 0 and lines.size else ""
    return " ".join(filter(None, (lines.verdict, f"{lines.size}." if lines.size else "", rest)))


def _each(report: Report) -> str:
    """Return what seconds are lost of, where the words of a loss do not say it."""
    return "" if report.life or report.serving else " a step"


def confidence_words(confidence: float) -> str:
    """Return how sure a finding is, in words."""
    if confidence >= 0.9:
        return "very likely"
    if confidence >= 0.7:
        return "likely"
    return "more likely than not" if confidence >= 0.5 else "uncertain"


def show_findings(context: Context, report: Report) -> None:
    """Show what bounds the verdict, the verdict, and a card for each finding, the largest loss first, small losses below."""
    st.html(STYLE)
    show_verdict(report)
    show_bounds(report)
    for index, finding in enumerate(large(report)):
        _card(context, report, finding, index)
    if rest := small(report):
        st.subheader(SMALL_LOSSES)
        for index, finding in enumerate(rest, len(report.findings) - len(rest)):
            _card(context, report, finding, index)


def show_verdict(report: Report) -> None:
    """Show the sentence in the colour and the word of what is worst."""
    bad = any(note.severity == "bad" for note in report.quality)
    worst = gravest(one for one in report.findings if one.class_ not in HEALTHY)
    color, word = (BAD, "no verdict") if bad else (OK, "healthy") if nothing_found(report) else (UNKNOWN, "unknown")
    if worst is not None and not bad:
        color, word = COLORS.get(worst.severity, UNKNOWN), worst.severity
    st.html(f'<p class="f-head">{_tag(word, color)}<span class="f-name">{escape(verdict(report))}</span></p>')
    for line in [] if bad else verdict_words.first_lines(report).conditions:
        st.html(f'<p class="f-name">{_tag("condition of the machine", WARN)}{escape(line)}</p>')


def show_bounds(report: Report) -> None:
    """Show what of the data bounds what can be concluded, and why a person should look at the job."""
    rows = [(*_QUALITY.get(note.severity, _QUALITY["note"]), f"{note.what}: {note.means}") for note in report.quality]
    rows += [(WARN, "to be reviewed", reason) for reason in report.review]
    if rows:
        st.html("".join(f'<p class="f-name">{_tag(word, color)}{escape(text)}</p>' for color, word, text in rows))


def _tag(word: str, color: str) -> str:
    ink = "#000" if color in (WARN, UNKNOWN) else "#fff"
    return f'<span class="f-tag" style="background:{color};color:{ink}">{escape(word)}</span>'


def _card(context: Context, report: Report, finding: Finding, index: int) -> None:
    healthy = finding.class_ in HEALTHY
    color = OK if healthy else COLORS.get(finding.severity, UNKNOWN)
    title, rows = verdict_words.title(finding, report), _facts(finding, report)
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{cell}</td></tr>" for name, cell in rows)
    with st.container(border=True):
        st.html(
            f'<div class="f-name">{_tag("healthy" if healthy else verdict_words.level(finding), color)}'
            f'<span class="f-head">{escape(title)}</span> <span class="f-dim">{escape(finding.class_)}'
            f"{escape(culprits_text(finding, report))}</span></div>"
            f'<table class="f-facts">{facts}</table>'
        )
        _links(context, report, finding)
        _runbook(context, finding, index)


def _facts(finding: Finding, report: Report) -> list[tuple[str, str]]:
    """Return the rows of a card; the cells are HTML."""
    sure = f'<b>{confidence_words(finding.confidence)}</b> <span class="f-dim">({finding.confidence:.2f} of 1)</span>'
    rows = [
        ("Lost" if finding.class_ not in HEALTHY else "Used", f"<b>{escape(loss_text(finding, report))}</b>{_each(report)}"),
        ("Share", escape(share_text(finding, report).rpartition(", confidence")[0])),
        ("Confidence", sure),
        ("Evidence", "".join(map(_evidence, finding.evidence[1:] or finding.evidence))),
    ]
    if finding.runner_up is not None:
        behind = f"{percent(finding.runner_up.margin)} behind"
        slug = finding.runner_up.class_
        rows.append(("Runner-up", f'{escape(title_of(slug))} <span class="f-dim">{escape(slug)}</span>, {behind}'))
    if tells_speedup(finding, report):
        rows.append(("If fixed", f"<b>{escape(speedup_text(finding))}</b>"))
    return [*rows, ("Do", _CODE.sub(r"<code>\1</code>", escape(finding.action)))]


def _evidence(row: Evidence) -> str:
    value, source = escape(quantity(row.value, row.unit)), escape(row.source)
    words = f'<span>{escape(row.signal)} <span class="f-dim">{source}</span></span>'
    if row.threshold is None:
        nothing = '<span class="f-bar" style="visibility:hidden"></span>'
        return f'<div class="f-row">{words}<span class="f-value"><b>{value}</b></span>{nothing}</div>'
    held = holds(row)
    sign = {True: "✓ holds", False: "✗ does not hold", None: ""}[held]
    against = f"{escape(row.comparison)} {escape(quantity(row.threshold, row.unit))}"
    longest = max(abs(row.value), abs(row.threshold)) or 1.0
    filled, mark = (min(abs(number) / longest * 100, 100) for number in (row.value, row.threshold))
    color = {True: WARN, False: OK, None: UNKNOWN}[held]
    return (
        f'<div class="f-row">{words}<span class="f-value"><b>{value}</b> {against} <span class="f-dim">{sign}</span></span>'
        f'<span class="f-bar" role="img" aria-label="{value} {against}"><i style="width:{filled:.1f}%;background:{color}"></i>'
        f'<b style="left:{min(mark, 98.5):.1f}%"></b></span></div>'
    )


def holds(row: Evidence) -> bool | None:
    """Return whether a value is on that side of its threshold that the finding needs; None: there is none, or no side."""
    if row.threshold is None or not row.comparison:
        return None
    return {
        ">=": row.value >= row.threshold,
        ">": row.value > row.threshold,
        "<=": row.value <= row.threshold,
        "<": row.value < row.threshold,
    }.get(row.comparison)


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
    with st.expander(
        f"Runbook: {escape_markdown(finding.class_)}", expanded=asked, icon=":material/menu_book:", key=f"runbook-{index}"
    ):
        if not asked:
            context.link("This page with the runbook open, as a link", "job", replace(context.view, class_=finding.class_))
        st.markdown(runbook_markdown(text))


def runbook_markdown(text: str) -> str:
    """Return one of our own runbooks as it is shown within a card: headings smaller, and no links to files that are not served."""
    body = text.split("\n", 1)[1] if text.startswith("# ") else text
    return _HEADING.sub("##### ", _LINK.sub(r"**\1**", body))
