"""What a server takes, as a page with its latency-throughput curve. Renders and computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import isfinite, log10

from tachoscope_analyzers.serving.capacity.capacity import Capacity
from tachoscope_analyzers.serving.capacity.objectives import SIGNALS, Objective
from tachoscope_show.capacity import text as capacity_text
from tachoscope_show.text.units import seconds

_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 16, 46
_COLORS = ("#0969da", "#bf8700", "#8250df", "#1a7f37", "#cf222e")
Scale = Callable[[float], float]
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:58rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin:1.6rem 0 .3rem} .dim{color:#59636e;font-size:.9rem}
svg{display:block;width:100%;height:auto} text{font:13px system-ui,sans-serif;fill:#59636e} .wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums} td,th{padding:.15rem .7rem .15rem 0;text-align:right;white-space:nowrap}
td.l,th.l{text-align:left;white-space:normal} tr.knee td{font-weight:600} tr.broken td{color:#9a6700}
.warn{border-left:6px solid #bf8700;padding:.4rem .8rem;background:#fff8e5}
"""


def render(found: Capacity, name: str) -> str:
    """Return the page."""
    warned = "".join(f'<p class="warn">{escape(row)}</p>' for row in capacity_text.warnings(found))
    drawn = list(dict.fromkeys(found.objectives))
    charts = "".join(_chart(found, objective) for objective in drawn)
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(name)}: tachoscope capacity</title><style>{_STYLE}</style></head><body>
<h1>{escape(name)}</h1><p>{escape(capacity_text.verdict(found))}</p>{warned}
{charts}{_table(found)}{_levers(found)}
{_list("Also", capacity_text.advice(found))}{_list("Measured", found.model.measured)}{_list("Assumed", found.model.assumed)}
</body></html>
"""


def _chart(found: Capacity, objective: Objective) -> str:
    """Return the curve of one objective: latency over rate, the limit as a line, the knee and its interval marked."""
    points = [(point.rate, point.seconds[objective.name]) for point in found.curve]
    points = [(rate, value) for rate, value in points if isfinite(value) and value > 0]
    if not points:
        return ""
    most = max(rate for rate, _ in points) * 1.02
    low = 10 ** (int(log10(min(*(value for _, value in points), objective.seconds)) - 1e-9) - 1)
    high = max(*(value for _, value in points), objective.seconds) * 1.3

    def x(rate: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(rate / most, 1.0)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - log10(value / low) / log10(high / low))

    color = _COLORS[found.objectives.index(objective) % len(_COLORS)]
    line = " ".join(f"{x(rate):.1f},{y(value):.1f}" for rate, value in points)
    dots = "".join(
        f'<circle cx="{x(rate):.1f}" cy="{y(value):.1f}" r="3.5" fill="{color}"><title>{rate:.3g} requests/s: {seconds(value)}</title></circle>'
        for rate, value in points
    )
    title = f"{objective.name.replace('_', ' ')}: {SIGNALS[objective.signal]}, {objective.percent:g} % within"
    return f"""<h2>{escape(title)}</h2>
<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(objective.name)} over the request rate">
{_grid(low, high, most, x, y)}{_knee(found, x)}
<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(objective.seconds):.1f}" y2="{y(objective.seconds):.1f}" stroke="#cf222e" stroke-dasharray="6 4"/>
<text x="{_LEFT + 6}" y="{y(objective.seconds) - 6:.1f}" style="fill:#cf222e">objective {seconds(objective.seconds)}</text>
<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2.5"/>{dots}</svg>"""


def _grid(low: float, high: float, most: float, x: Scale, y: Scale) -> str:
    parts = []
    value = low
    while value <= high:
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#d1d9e0"/>'
            f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
        value *= 10
    step = _step(most)
    for number in range(int(most / step) + 1):
        rate = number * step
        parts.append(f'<text x="{x(rate):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{rate:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">requests a second, one replica</text>')
    return "".join(parts)


def _knee(found: Capacity, x: Scale) -> str:
    if not found.knee:
        return ""
    low, high = (x(value) for value in found.knee_interval)
    at, bottom = x(found.knee), _HEIGHT - _BOTTOM
    return (
        f'<rect x="{low:.1f}" y="{_TOP}" width="{max(high - low, 1):.1f}" height="{bottom - _TOP}" fill="#1a7f37" fill-opacity=".12">'
        f"<title>95 % interval of the knee</title></rect>"
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}" stroke="#1a7f37" stroke-width="2"/>'
        f'<text x="{at - 6:.1f}" y="{_TOP + 14}" text-anchor="end" style="fill:#1a7f37">knee {found.knee:.3g}/s</text>'
    )


def _step(most: float) -> float:
    size: float = 10.0 ** int(log10(most) // 1)
    return next(size * part for part in (0.1, 0.2, 0.5, 1, 2) if most / (size * part) <= 10)


def _short(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"


def _table(found: Capacity) -> str:
    heads = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in ("requests/s", "tokens/s", "decoding", *capacity_text.COLUMNS))
    rows = []
    for point in found.curve:
        mark = capacity_text.mark(point, found)
        cells = [f"{point.rate:.3g}", f"{point.output_tokens_per_second:.0f}", f"{point.running:.1f}"]
        cells += [capacity_text.cell(point, name) for name in capacity_text.COLUMNS]
        rows.append(f'<tr class="{mark}">{"".join(f"<td>{text}</td>" for text in cells)}<td class="l">{mark}</td></tr>')
    return f'<h2>By rate</h2><div class="wide"><table><tr>{heads}<th class="l">objectives</th></tr>{"".join(rows)}</table></div>'


def _levers(found: Capacity) -> str:
    rows = "".join(
        f'<tr><td>{capacity_text.moved(lever.ratio)}</td><td class="l">{escape(lever.what)}'
        f"{f'<div class=dim>assumed: {escape(lever.assumed)}</div>' if lever.assumed else ''}</td></tr>"
        for lever in found.levers
    )
    return f"<h2>What moves the knee</h2><table>{rows}</table>" if rows else ""


def _list(title: str, rows: Sequence[str]) -> str:
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(row)}</li>' for row in rows)}</ul>" if rows else ""
