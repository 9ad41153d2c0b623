"""The rules of Grafana's dashboard-linter (https://github.com/grafana/dashboard-linter), written again, under its names.

Where its code and its documentation differ, or it looks at some types of panels only, ours are the stricter ones: all panels that
ask a data source are looked at, mappings excuse a missing unit only if there are any, and `increase` has a window to choose too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tachoscope_alerts import promql
from tachoscope_alerts.promql import Call, Constant, Expression, Series, Window
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.lint import expressions, logql
from tachoscope_dashboards.lint.board_json import Dashboard, DataSourceRef, Panel, Target
from tachoscope_dashboards.lint.expressions import (
    GLOBALS,
    INTERVAL,
    RANGE,
    RATE_INTERVAL,
    board_expressions,
    parseable,
    short,
    speaks_logql,
    speaks_promql,
    without_variables,
)
from tachoscope_dashboards.lint.lint import Finding, Rule, panel_named
from tachoscope_dashboards.parts.units import UNITS

_NAMES = {"datasource": "Data source", "prometheus_datasource": "Prometheus data source"}
_MARKED = dict(GLOBALS) | {RATE_INTERVAL: "1000003s", INTERVAL: "1000033s", RANGE: "1000037s"}
"""Windows of lengths that nobody writes, to know them again in what was parsed."""
_OF_RATE, _OF_INCREASE = {1000003.0}, {1000003.0, 1000033.0, 1000037.0}
_VARIABLE_FUNCTIONS = ("label_names", "label_values", "metrics", "query_result")


def _template_datasource(board: Dashboard) -> Iterator[Finding]:
    found = [one for one in board.variables() if one.type == "datasource"]
    if len(found) != 1:
        yield Finding("", f"it has {len(found)} variables for the data source", "give it one, named datasource")
    for one in found:
        if one.name not in _NAMES:
            yield Finding(
                f"variable {one.name!r}", "a variable for the data source has this name", f"name it {' or '.join(_NAMES)}"
            )
        elif one.label != _NAMES[one.name]:
            yield Finding(f"variable {one.name!r}", f"its label is {one.label!r}", f"label it {_NAMES[one.name]!r}")


def _template(name: str, board: Dashboard) -> Iterator[Finding]:
    """Yield what is wrong with the variable `job` or `instance`."""
    found = next((one for one in board.variables() if one.name == name), None)
    if found is None:
        yield Finding("", f"it has no variable {name}", f"add one, of label_values(up, {name})")
        return
    where = f"variable {name!r}"
    if not _is_chosen(found.datasource, board):
        yield Finding(where, "it does not ask the data source that is chosen", "give it ${datasource}")
    if found.type != "query":
        yield Finding(where, f"it is of the type {found.type}", "make it a query")
    if found.label != name.capitalize():
        yield Finding(where, f"its label is {found.label!r}", f"label it {name.capitalize()}")
    if not found.multi:
        yield Finding(where, "only one value can be chosen", "make it multi")
    if found.all_value != ".+":
        yield Finding(where, f"all of it is {found.all_value!r}", "make allValue .+")


def _template_label_promql(board: Dashboard) -> Iterator[Finding]:
    for one in board.variables():
        if one.type != "query" or not speaks_promql(one.datasource):
            continue
        where, (function, _) = f"variable {one.name!r}", expressions.call(one.query_text)
        if function not in _VARIABLE_FUNCTIONS:
            yield Finding(where, f"{one.query_text!r} asks for nothing", f"use one of {', '.join(_VARIABLE_FUNCTIONS)}")
        elif found := expressions.of_variable(one):
            yield from (Finding(where, problem, "correct its query") for problem in _invalid(found))


def _template_reload(board: Dashboard) -> Iterator[Finding]:
    for one in board.variables():
        if one.type == "query" and one.refresh != 2:
            what = f"it is refreshed by {one.refresh!r}, and keeps values that no longer exist"
            yield Finding(f"variable {one.name!r}", what, "make refresh 2: when the time range changes")


def _panel_datasource(board: Dashboard) -> Iterator[Finding]:
    for panel in board.query_panels():
        for source in [panel.datasource, *(one.datasource for one in panel.targets if one.datasource)]:
            if not _is_chosen(source, board):
                name = source.uid if isinstance(source, DataSourceRef) else source
                yield Finding(panel_named(panel.name), f"it asks the data source {name!r}", "let it ask ${datasource}")


def _panel_title_description(board: Dashboard) -> Iterator[Finding]:
    for panel in board.query_panels():
        for what, text in (("title", panel.title), ("description", panel.description)):
            if not text.strip():
                yield Finding(panel_named(panel.name), f"it has no {what}", f"give it a {what}")


def _panel_units(board: Dashboard) -> Iterator[Finding]:
    for panel in board.query_panels():
        config = panel.field_config
        properties = [one for override in config.overrides for one in override.properties]
        if config.defaults.mappings or any(one.id == "mappings" and one.value for one in properties):
            continue
        if panel.type == "stat" and panel.options.get("reduceOptions", {}).get("fields"):
            continue
        units = [one.value for one in properties if one.id == "unit"] or [config.defaults.unit]
        for unit in units:
            if unit not in UNITS:
                what = f"{unit!r} is not a unit of Grafana's" if unit else "it has no unit"
                yield Finding(panel_named(panel.name), what, "give it one, such as s, percentunit, short or none")


def _panel_no_targets(board: Dashboard) -> Iterator[Finding]:
    for panel in board.query_panels():
        if not panel.targets:
            yield Finding(panel_named(panel.name), "it asks nothing", "give it a target")


def _target_promql(board: Dashboard) -> Iterator[Finding]:
    ids = {panel.id for panel in board.all_panels()}
    for panel, target in _targets(board, speaks_promql):
        if not target.expr and target.panel_id not in ids:
            yield Finding(panel_named(panel.name), f"target {target.ref_id} has no expression", "give it one")
    for one in board_expressions(board):
        if one.kind != "variable":
            yield from (Finding(one.where, problem, "correct the expression") for problem in _invalid(one.expr))


def _target_logql(board: Dashboard) -> Iterator[Finding]:
    ids = {panel.id for panel in board.all_panels()}
    for panel, target in _targets(board, speaks_logql):
        if not target.expr and target.panel_id in ids:
            continue
        if not target.hide and (problem := logql.fault(target.expr)):
            yield Finding(panel_named(panel.name), f"{problem}: {short(target.expr)}", "correct the expression")


def _target_logql_auto(board: Dashboard) -> Iterator[Finding]:
    for panel, target in _targets(board, speaks_logql):
        for found in logql.fixed_ranges(target.expr) if not target.hide else []:
            yield Finding(panel_named(panel.name), f"the range [{found}] is always the same: {short(target.expr)}", "use [$__auto]")


def _target_rate_interval(board: Dashboard) -> Iterator[Finding]:
    for one in board_expressions(board):
        if one.kind == "annotation" or (one.target is not None and one.target.is_instant) or one.target is None:
            continue
        for call in promql.walk(_tree(without_variables(one.expr, _MARKED))):
            window = call.arguments[0] if isinstance(call, Call) and call.arguments else None
            if not isinstance(call, Call) or not isinstance(window, Window):
                continue
            allowed = {"rate": _OF_RATE, "irate": _OF_RATE, "increase": _OF_INCREASE}.get(call.function)
            if allowed and window.seconds not in allowed:
                yield Finding(one.where, f"{call.function} over a window of its own: {short(one.expr)}", "use [$__rate_interval]")


def _target_matcher(label: str, board: Dashboard) -> Iterator[Finding]:
    """Yield series that are not limited to what is chosen as `job` or `instance`."""
    for one in board_expressions(board):
        if one.kind != "panel":
            continue
        for series, _ in promql.read(_tree(parseable(one.expr))):
            chosen = [f"{found.operator}{found.value}" for found in series.matchers if found.label == label]
            if f"=~${label}" not in chosen and f"=~${{{label}}}" not in chosen:
                yield Finding(
                    one.where, f"{series.metric} has no matcher of {label}: {short(one.expr)}", f'add {label}=~"${label}"'
                )


def _target_counter_agg(board: Dashboard) -> Iterator[Finding]:
    for one in board_expressions(board):
        if one.kind == "panel":
            for name in _bare_counters(_tree(without_variables(one.expr))):
                yield Finding(one.where, f"the counter {name} as it is: {short(one.expr)}", "take rate or increase of it")


def _bare_counters(expression: Expression) -> Iterator[str]:
    inside = {
        id(call.arguments[0].operand)
        for call in promql.walk(expression)
        if isinstance(call, Call) and call.function in {"rate", "irate", "increase"} and isinstance(call.arguments[0], Window)
    }
    for node in promql.walk(expression):
        if isinstance(node, Series) and node.metric.endswith("_total") and id(node) not in inside:
            yield node.metric


def _uneditable(board: Dashboard) -> Iterator[Finding]:
    if board.editable:
        yield Finding("", "it can be edited in Grafana, which its source does not see", "make editable false")


# --- what several of them need ------------------------------------------------------------------------------------------------


def _is_chosen(source: DataSourceRef | str, board: Dashboard) -> bool:
    names = [one.name for one in board.variables() if one.type == "datasource"]
    uid = source.uid if isinstance(source, DataSourceRef) else source
    return uid in {form for name in names for form in (f"${name}", f"${{{name}}}")}


def _targets(board: Dashboard, speaks: Callable[[DataSourceRef | str], bool]) -> Iterator[tuple[Panel, Target]]:
    """Yield the targets whose data source speaks a language, each with its panel."""
    for panel in board.query_panels():
        for target in panel.targets:
            if speaks(target.datasource or panel.datasource):
                yield panel, target


def _invalid(expr: str) -> Iterator[str]:
    try:
        found = promql.parse(without_variables(expr))
    except TachoscopeError as error:
        yield str(error)
        return
    if isinstance(found, Window) or (isinstance(found, Constant) and isinstance(found.value, str)):
        yield f"a range or a text is not a result: {short(expr)}"


def _tree(expr: str) -> Expression:
    """Return what can be read of an expression; of one that is invalid, which is target-promql's to say, nothing."""
    try:
        return promql.parse(expr)
    except TachoscopeError:
        return Constant(0.0)


RULES: tuple[Rule, ...] = (
    Rule("template-datasource", "the data source can be chosen", _template_datasource),
    Rule("template-job", "the scrape job can be chosen", lambda board: _template("job", board)),
    Rule("template-instance", "the instance can be chosen", lambda board: _template("instance", board)),
    Rule("template-label-promql", "variables ask with valid PromQL", _template_label_promql),
    Rule("template-on-time-change-reload", "variables are asked again for another time range", _template_reload),
    Rule("panel-datasource", "panels ask the data source that is chosen", _panel_datasource),
    Rule("panel-title-description", "panels have a title and a description", _panel_title_description),
    Rule("panel-units", "panels have a unit that Grafana knows", _panel_units),
    Rule("panel-no-targets", "panels ask for something", _panel_no_targets),
    Rule("target-logql", "LogQL has its form", _target_logql),
    Rule("target-logql-auto", "ranges in LogQL follow the time range", _target_logql_auto),
    Rule("target-promql", "PromQL is valid", _target_promql),
    Rule("target-rate-interval", "rates follow the time range and the scrape interval", _target_rate_interval),
    Rule("target-job", "series are those of the chosen scrape job", lambda board: _target_matcher("job", board)),
    Rule("target-instance", "series are those of the chosen instance", lambda board: _target_matcher("instance", board)),
    Rule("target-counter-agg", "counters are shown as rates", _target_counter_agg),
    Rule("uneditable", "the board is not edited in Grafana", _uneditable),
)
