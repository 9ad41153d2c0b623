"""The confusion matrix and the calibration curve as SVG: text that any browser shows, and the same bytes for the same counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from benchmarks.lab.reliability import Bin

_CELL, _LEFT, _TOP = 38, 190, 170
_STYLE = "<style>text{font:13px system-ui,sans-serif;fill:#1f2328}.soft{fill:#59636e}.light{fill:#fff}</style>"
_RIGHT_COLOR, _WRONG_COLOR, _SOFT_COLOR = (26, 127, 55), (207, 34, 46), (154, 103, 0)


def _document(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
    head += f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
    return "\n".join([head, _STYLE, f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, *, anchor: str = "middle", style: str = "", turned: bool = False) -> str:
    turn = f' transform="rotate(-55 {x:g} {y:g})"' if turned else ""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{kind}{turn}>{escape(text)}</text>'


def _color(base: tuple[int, int, int], share: float) -> str:
    """Return a colour between white and the base."""
    return "#" + "".join(f"{round(255 - (255 - one) * (0.15 + 0.85 * share)):02x}" for one in base)


def confusion(counts: Mapping[tuple[str, str], int], classes: Sequence[str], soft: Sequence[str]) -> str:
    """Return the matrix: a row for each injected class, a column for each named one, coloured by the share of the row.

    Args:
        counts: runs by injected and named class. classes: in the order in which they are drawn. soft: columns that are no wrong
            name, of an abstention or of nothing that was found.
    """
    injected = [slug for slug in classes if any(truth == slug for truth, _ in counts)]
    named = [slug for slug in classes if any(slug in pair for pair in counts)]
    parts = [_text(_LEFT - 10, _TOP - 10, "injected ↓   named →", anchor="end", style="soft")]
    parts += [
        _text(_LEFT + (column + 0.6) * _CELL, _TOP - 8, slug, anchor="start", turned=True) for column, slug in enumerate(named)
    ]
    for line, truth in enumerate(injected):
        whole = sum(count for (slug, _), count in counts.items() if slug == truth)
        y = _TOP + line * _CELL
        parts.append(_text(_LEFT - 10, y + _CELL / 2 + 4, f"{truth} ({whole})", anchor="end"))
        for column, predicted in enumerate(named):
            count = counts.get((truth, predicted), 0)
            color = _RIGHT_COLOR if truth == predicted else _SOFT_COLOR if predicted in soft else _WRONG_COLOR
            fill = _color(color, count / whole) if count else "#f6f8fa"
            x = _LEFT + column * _CELL
            parts.append(f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_CELL - 2}" fill="{fill}"/>')
            if count:
                style = "light" if count / whole > 0.5 else ""
                parts.append(_text(x + _CELL / 2 - 1, y + _CELL / 2 + 4, str(count), style=style))
    width, height = _LEFT + len(named) * _CELL + 110, _TOP + len(injected) * _CELL + 20
    return _document(width, height, "confusion matrix: runs by injected and named class", parts)


_SIDE, _EDGE = 440, 60


def _x(confidence: float) -> float:
    return _EDGE + _SIDE * confidence


def _y(share: float) -> float:
    return 20 + _SIDE * (1 - share)


def calibration(told: Sequence[Bin], scored: Sequence[Bin]) -> str:
    """Return the share of names that were right over the confidence that was told, with 95 % intervals, and over the raw score."""
    parts = [f'<rect x="{_x(0):g}" y="{_y(1):g}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#d1d9e0"/>']
    for tick in range(0, 11, 2):
        parts.append(_text(_x(tick / 10), _y(0) + 20, f"{tick / 10:g}", style="soft"))
        parts.append(_text(_x(0) - 8, _y(tick / 10) + 4, f"{tick * 10} %", anchor="end", style="soft"))
    parts.append(f'<line x1="{_x(0):g}" y1="{_y(0):g}" x2="{_x(1):g}" y2="{_y(1):g}" stroke="#59636e" stroke-dasharray="5 4"/>')
    parts.extend(_dot(one, "none", "#9a6700") for one in scored)
    for one in told:
        low, high = one.right.interval
        x = _x(one.confidence)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(low):.1f}" y2="{_y(high):.1f}" stroke="#0969da" stroke-width="1.5"/>'
        )
        parts.append(_dot(one, "#0969da", "#0969da"))
    foot = _y(0) + 48
    parts.append(_text(_x(0.5), foot, "confidence that was told"))
    signs = (
        ("●", "#0969da", "calibrated, with 95 % interval"),
        ("○", "#9a6700", "raw score"),
        ("- -", "#59636e", "as it should be"),
    )
    for place, (sign, color, words) in zip((0.0, 0.5, 0.72), signs, strict=True):
        parts.append(f'<text x="{_x(place):g}" y="{foot + 28:g}"><tspan fill="{color}">{sign}</tspan> {words}</text>')
    parts.append(_text(_x(0) + 8, _y(1) + 18, "right, of the names that were told", anchor="start", style="soft"))
    return _document(_SIDE + _EDGE + 40, foot + 40, "calibration: share of right names over the confidence told", parts)


def _dot(one: Bin, fill: str, stroke: str) -> str:
    share = one.right.hits / one.right.cases
    radius = min(3 + one.right.cases**0.5 / 2, 12)
    title = f"{one.right.hits} of {one.right.cases} right at {one.confidence:.2f}"
    return (
        f'<circle cx="{_x(one.confidence):.1f}" cy="{_y(share):.1f}" r="{radius:.1f}" fill="{fill}" stroke="{stroke}" '
        f'stroke-width="1.5"><title>{title}</title></circle>'
    )
