"""What a server takes, as a page with its latency-throughput curve. Renders and computes nothing."""

from __future__ import annotations

from math import isfinite, log10

from tachoscope_analyzers.serving.capacity.capacity import Capacity
from tachoscope_analyzers.serving.capacity.objectives import SIGNALS, Objective
from tachoscope_show.capacity import text as capacity_text
from tachoscope_show.text.chart import Area, Chart, Label, Rule
from tachoscope_show.text.pages import rendered
from tachoscope_show.text.units import seconds

_COLORS = ("#0969da", "#bf8700", "#8250df", "#1a7f37", "#cf222e")
_GREEN, _RED, _GREY = "#1a7f37", "#cf222e", "#d1d9e0"


def render(found: Capacity, name: str) -> str:
    """Return the page, with a chart for each objective."""
    drawn = ((_title(objective), _chart(found, objective)) for objective in dict.fromkeys(found.objectives))
    charts = [(title, chart) for title, chart in drawn if chart is not None]
    return str(rendered("capacity.html", found=found, name=name, charts=charts, words=capacity_text))


def _title(objective: Objective) -> str:
    return f"{objective.name.replace('_', ' ')}: {SIGNALS[objective.signal]}, {objective.percent:g} % within"


def _chart(found: Capacity, objective: Objective) -> Chart | None:
    """Return the curve of one objective: latency over rate, the limit as a line, the knee and its interval marked."""
    points = [(point.rate, point.seconds[objective.name]) for point in found.curve]
    points = [(rate, value) for rate, value in points if isfinite(value) and value > 0]
    if not points:
        return None
    most = max(rate for rate, _ in points) * 1.02
    low = 10 ** (int(log10(min(*(value for _, value in points), objective.seconds)) - 1e-9) - 1)
    high = max(*(value for _, value in points), objective.seconds) * 1.3
    color = _COLORS[found.objectives.index(objective) % len(_COLORS)]
    drawn = Chart(f"{objective.name} over the request rate", color, height=300, room_below=46)

    def share(value: float) -> float:
        return log10(value / low) / log10(high / low)

    value = low
    while value <= high:
        drawn.level(share(value), _GREY)
        drawn.labels.append(Label(drawn.left - 8, drawn.y(share(value)) + 4, _short(value), "end"))
        value *= 10
    step = _step(most)
    for number in range(int(most / step) + 1):
        drawn.labels.append(Label(drawn.x(number * step / most), drawn.bottom + 18, f"{number * step:g}", "middle"))
    drawn.labels.append(Label(drawn.x(0.5), drawn.height - 8, "requests a second, one replica", "middle"))
    _mark_knee(found, drawn, most)
    limit = share(objective.seconds)
    drawn.level(limit, _RED, dashed=True)
    drawn.labels.append(Label(drawn.left + 6, drawn.y(limit) - 6, f"objective {seconds(objective.seconds)}", color=_RED))
    for rate, value in points:
        told = f"{rate:.3g} requests/s: {seconds(value)}"
        drawn.points.append((drawn.x(min(rate / most, 1.0)), drawn.y(share(value)), told))
    return drawn


def _mark_knee(found: Capacity, drawn: Chart, most: float) -> None:
    if not found.knee:
        return
    low, high = (drawn.x(min(value / most, 1.0)) for value in found.knee_interval)
    at = drawn.x(min(found.knee / most, 1.0))
    drawn.areas.append(Area(low, max(high - low, 1), "#1a7f3720", "95 % interval of the knee"))
    drawn.rules.append(Rule(at, at, drawn.top, drawn.bottom, _GREEN))
    drawn.labels.append(Label(at - 6, drawn.top + 14, f"knee {found.knee:.3g}/s", "end", _GREEN))


def _step(most: float) -> float:
    size: float = 10.0 ** int(log10(most) // 1)
    return next(size * part for part in (0.1, 0.2, 0.5, 1, 2) if most / (size * part) <= 10)


def _short(value: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1e3:g} ms" if value >= 1e-3 else f"{value * 1e6:g} µs"
