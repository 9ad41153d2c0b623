"""The course of a run as a picture: step time over steps, lasting changes marked, and a strip for each rank that came late."""

from __future__ import annotations

from html import escape

from tachoscope_core.report.report import Report
from tachoscope_core.report.trend import Bin, ChangePoint, LateRank, Trend
from tachoscope_show.report import trend_words as course_words
from tachoscope_show.text.state_bar import color
from tachoscope_show.text.units import seconds

STYLE = """
.course{display:grid;grid-template-columns:auto 1fr;column-gap:.5rem} .course svg{display:block;width:100%}
.course .y{display:flex;flex-direction:column;justify-content:space-between;text-align:right;height:10rem}
.course .plot svg{height:10rem;background:#f6f8fa;border-radius:4px} .course .plot{position:relative;margin-top:1.3rem}
.course .mark{position:absolute;top:-1.3rem;transform:translateX(-50%);font-weight:600;color:#cf222e;font-size:.9rem}
.course .y{margin-top:1.3rem} .course .axis{display:flex;justify-content:space-between}
.course .strip{height:.7rem;background:#eef1f4}
.course .who{text-align:right;line-height:1} .course .row{margin-top:.35rem} .course b.n{color:#cf222e}
"""
_HEIGHT = 100
_WIDTH = 1000
_TICKS = 4
_ROOM = 0.6
"""Above and below the medians, in parts of the distance between the lowest and the highest."""
_ROWS = 12


def body(report: Report) -> str:
    """Return heading, picture and sentences; empty where there is nothing to say."""
    said = course_words.lines(report)
    if report.course is None or not said:
        return ""
    count = len(report.course.changes or [])
    items = "".join(
        f"<li>{f'<b class=n>{index}</b> ' if index <= count else ''}{escape(line)}</li>" for index, line in enumerate(said, start=1)
    )
    return f'<h2>Over the run</h2>{_picture(report.course)}<ul class="note">{items}</ul>'


def _picture(course: Trend) -> str:
    bins = course.picture
    if not bins:
        return ""
    low, high = _range(bins)
    changes = course.changes or []
    places = enumerate((_x(one.step, bins) / _WIDTH * 100 for one in changes), start=1)
    marks = "".join(f'<span class="mark" style="left:{place:.2f}%">{number}</span>' for number, place in places)
    steps = [bins[0].first_step + round((bins[-1].last_step - bins[0].first_step) * tick / _TICKS) for tick in range(_TICKS + 1)]
    ticks = "".join(f"<span>{'step ' if not index else ''}{step:,}</span>" for index, step in enumerate(steps))
    strips = "".join(_strip(one, bins) for one in (course.late or [])[:_ROWS])
    return (
        f'<div class="course"><div class="y dim"><span>{seconds(high)}</span><span>{seconds(low)}</span></div>'
        f'<div class="plot">{marks}{_plot(bins, changes, low, high)}</div>{strips}'
        f'<div></div><div class="axis dim">{ticks}</div></div>'
        '<p class="dim">step time: median, and 5 to 95 % of the steps; dashed: a lasting change'
        f"{'; below: when a rank was late, in the colour of what it did' if strips else ''}</p>"
    )


def _range(bins: list[Bin]) -> tuple[float, float]:
    """Return the ends of the vertical axis in seconds: around the medians, whatever single steps, such as periodic saves, take."""
    low, high = min(one.p50 for one in bins), max(one.p50 for one in bins)
    room = max((high - low) * _ROOM, high * 0.05)
    return max(low - room, 0.0), high + room


def _x(step: float, bins: list[Bin]) -> float:
    first, last = bins[0].first_step, bins[-1].last_step
    return (step - first) / (last + 1 - first) * _WIDTH


def _plot(bins: list[Bin], changes: list[ChangePoint], low: float, high: float) -> str:
    def point(one: Bin, value: float) -> str:
        y = (1 - (min(max(value, low), high) - low) / (high - low)) * _HEIGHT
        return f"{_x((one.first_step + one.last_step + 1) / 2, bins):.1f},{y:.1f}"

    band = [*(point(one, one.p95) for one in bins), *(point(one, one.p05) for one in reversed(bins))]
    line = " ".join(point(one, one.p50) for one in bins)
    dashed = "".join(
        f'<line x1="{_x(one.step, bins):.1f}" x2="{_x(one.step, bins):.1f}" y1="0" y2="{_HEIGHT}" stroke="#cf222e" '
        f'stroke-dasharray="4 3" vector-effect="non-scaling-stroke"><title>{escape(course_words.change(one))}</title></line>'
        for one in changes
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="step time over the run">'
        f'<polygon points="{" ".join(band)}" fill="#0072B2" fill-opacity=".2"/>'
        f'<polyline points="{line}" fill="none" stroke="#0072B2" stroke-width="1.5" vector-effect="non-scaling-stroke"/>'
        f"{dashed}</svg>"
    )


def _strip(one: LateRank, bins: list[Bin]) -> str:
    parts = "".join(
        f'<rect x="{_x(row.first_step, bins):.1f}" width="{max(_x(row.last_step + 1, bins) - _x(row.first_step, bins), 2):.1f}" '
        f'height="10" fill="{color(row.state)}"><title>{escape(row.state)}, {seconds(row.seconds_per_step)} a step</title></rect>'
        for row in one.stretches
    )
    label = f"rank {one.rank} late"
    svg = f'<svg class="strip" viewBox="0 0 {_WIDTH} 10" preserveAspectRatio="none" role="img" aria-label="{label}">{parts}</svg>'
    return f'<div class="who dim row">rank {one.rank}</div><div class="row">{svg}</div>'
