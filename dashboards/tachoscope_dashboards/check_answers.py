"""What a Prometheus answers to the expressions of boards: that it understands them, and which find nothing there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net import prometheus as prometheus_query
from tachoscope_dashboards.lint.board_json import Dashboard
from tachoscope_dashboards.lint.expressions import BoardExpression, board_expressions, short, without_variables
from tachoscope_dashboards.lint.lint import Problem


def check(
    boards: Sequence[Dashboard], url: str, on_progress: Callable[[float], None] = lambda _: None, at: float | None = None
) -> list[Problem]:
    """Ask all expressions, with every variable at all its values, for what is now or was at `at`; return what is refused or empty.

    Marks are asked only whether they are understood: where no alert fires there are none.

    Args:
        url: of the Prometheus. on_progress: called with the part that is done. at: Unix seconds.

    Raises:
        TachoscopeError: there is no Prometheus.
    """
    prometheus_query.instant_query(url, "vector(1)")
    wanted = [(board, one) for board in boards for one in board_expressions(board)]
    found: list[Problem] = []
    for number, (board, one) in enumerate(wanted):
        found += _ask(one, board.place, url, at)
        on_progress((number + 1) / len(wanted))
    return sorted(set(found))


def _ask(one: BoardExpression, place: str, url: str, at: float | None) -> list[Problem]:
    try:
        series = prometheus_query.instant_query(
            url, without_variables(one.expr), at=at, less="ask for fewer series, such as topk(10, ...)"
        )
    except TachoscopeError as error:
        return [Problem(place, one.where, "answer", str(error), "correct the expression")]
    if series or one.kind == "annotation":
        return []
    reason = one.panel.field_config.defaults.no_value if one.panel is not None else ""
    fix = f"its panel then says {reason!r}" if reason else "nothing says why"
    return [Problem(place, one.where, "empty", f"no series there: {short(one.expr)}", fix, "note")]
