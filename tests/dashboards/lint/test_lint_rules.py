"""Grafana's lint rules, each on a board that breaks it in one way; and what they let pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from board_making import Json, found, made, panel, variable
from tachoscope_dashboards.lint.grafana_rules import RULES
from tachoscope_dashboards.parts.units import UNITS

NAMES = """template-datasource template-job template-instance template-label-promql template-on-time-change-reload panel-datasource
panel-title-description panel-units panel-no-targets target-logql target-logql-auto target-promql target-rate-interval target-job
target-instance target-counter-agg uneditable""".split()
SCRAPE = {"template-job", "template-instance", "target-job", "target-instance"}
"""Those that our boards are excepted from: they ask for variables named job and instance."""


def test_all_seventeen_rules_of_grafanas_linter_are_there() -> None:
    assert [rule.name for rule in RULES] == NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SCRAPE])
def test_a_sound_board_keeps_it(name: str) -> None:
    assert found(RULES, name, made()) == []


def target(raw: Json, title: str = "Nodes") -> Json:
    return panel(raw, title)["targets"][0]


def no_source(raw: Json) -> None:
    raw["templating"]["list"].pop(0)


def two_sources(raw: Json) -> None:
    raw["templating"]["list"].append({**variable(raw, "datasource"), "name": "prometheus_datasource", "label": "Other"})


def source_of_another_name(raw: Json) -> None:
    variable(raw, "datasource")["name"] = "ds"


def source_of_another_label(raw: Json) -> None:
    variable(raw, "datasource")["label"] = "From"


def variable_that_asks_nothing(raw: Json) -> None:
    variable(raw, "node")["query"] = {"query": "values_of(up, node)", "refId": "x"}


def variable_with_a_broken_selector(raw: Json) -> None:
    variable(raw, "node")["query"] = "label_values(up{job=}, node)"


def variable_that_is_asked_once(raw: Json) -> None:
    variable(raw, "node")["refresh"] = 1


def panel_of_a_fixed_source(raw: Json) -> None:
    panel(raw, "Nodes")["datasource"] = {"type": "prometheus", "uid": "P1809F7CD0C75ACF3"}


def target_of_a_fixed_source(raw: Json) -> None:
    target(raw)["datasource"] = "Prometheus"


def no_description(raw: Json) -> None:
    del panel(raw, "Nodes")["description"]


def no_title(raw: Json) -> None:
    panel(raw, "Nodes")["title"] = " "


def no_unit(raw: Json) -> None:
    del panel(raw, "Where time goes")["fieldConfig"]["defaults"]["unit"]


def unit_of_nobody(raw: Json) -> None:
    panel(raw, "Nodes")["fieldConfig"]["defaults"]["unit"] = "tokens"


def column_with_a_unit_of_nobody(raw: Json) -> None:
    panel(raw, "Ranks")["fieldConfig"]["overrides"][0]["properties"][0] = {"id": "unit", "value": "steps"}


def no_target(raw: Json) -> None:
    del panel(raw, "Nodes")["targets"]


def loki(raw: Json, expr: str, title: str = "Nodes") -> None:
    target(raw, title).update(expr=expr, datasource={"type": "loki", "uid": "${datasource}"})


def logs_with_an_open_bracket(raw: Json) -> None:
    loki(raw, 'sum(count_over_time({app="x"}[$__auto])')


def logs_of_a_fixed_range(raw: Json) -> None:
    loki(raw, 'sum(count_over_time({app="x"}[5m]))')


def open_bracket(raw: Json) -> None:
    target(raw)["expr"] = "sum(up"


def rate_of_an_instant(raw: Json) -> None:
    target(raw)["expr"] = "rate(up)"


def range_as_a_result(raw: Json) -> None:
    target(raw)["expr"] = "up[5m]"


def no_expression(raw: Json) -> None:
    target(raw)["expr"] = ""


def mark_that_is_invalid(raw: Json) -> None:
    raw["annotations"]["list"][1]["expr"] = "changes(up) >"


def rate_over_a_window_of_its_own(raw: Json) -> None:
    target(raw)["expr"] = 'sum(rate(tachoscope_steps_total{training_job=~"$training_job"}[5m]))'


def increase_over_a_window_of_its_own(raw: Json) -> None:
    target(raw)["expr"] = "sum(increase(tachoscope_steps_total[1h]))"


def counter_as_it_is(raw: Json) -> None:
    target(raw)["expr"] = "sum(tachoscope_steps_total)"


def counter_in_another_function(raw: Json) -> None:
    target(raw)["expr"] = "max_over_time(tachoscope_steps_total[5m])"


def editable(raw: Json) -> None:
    raw["editable"] = True


def editable_because_nothing_is_said(raw: Json) -> None:
    del raw["editable"]


DAMAGES: list[tuple[str, Callable[[Json], None]]] = [
    ("template-datasource", no_source),
    ("template-datasource", source_of_another_name),
    ("template-datasource", source_of_another_label),
    ("template-label-promql", variable_that_asks_nothing),
    ("template-label-promql", variable_with_a_broken_selector),
    ("template-on-time-change-reload", variable_that_is_asked_once),
    ("panel-datasource", panel_of_a_fixed_source),
    ("panel-datasource", target_of_a_fixed_source),
    ("panel-title-description", no_description),
    ("panel-title-description", no_title),
    ("panel-units", no_unit),
    ("panel-units", unit_of_nobody),
    ("panel-units", column_with_a_unit_of_nobody),
    ("panel-no-targets", no_target),
    ("target-logql", logs_with_an_open_bracket),
    ("target-logql-auto", logs_of_a_fixed_range),
    ("target-promql", open_bracket),
    ("target-promql", rate_of_an_instant),
    ("target-promql", range_as_a_result),
    ("target-promql", no_expression),
    ("target-promql", mark_that_is_invalid),
    ("target-rate-interval", rate_over_a_window_of_its_own),
    ("target-rate-interval", increase_over_a_window_of_its_own),
    ("target-counter-agg", counter_as_it_is),
    ("target-counter-agg", counter_in_another_function),
    ("uneditable", editable),
    ("uneditable", editable_because_nothing_is_said),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES, ids=[damage.__name__ for _, damage in DAMAGES])
def test_what_breaks_it_is_found_once(name: str, damage: Callable[[Json], None]) -> None:
    raw = made()
    damage(raw)

    assert len(found(RULES, name, raw)) == 1


def test_two_data_sources_are_one_too_many() -> None:
    raw = made()
    two_sources(raw)

    assert [one.where for one in found(RULES, "template-datasource", raw)] == ["", "variable 'prometheus_datasource'"]


def scrape_variable(raw: Json, name: str) -> Json:
    one = {**variable(raw, "node"), "name": name, "label": name.capitalize(), "allValue": ".+"}
    raw["templating"]["list"].append(one)
    return one


@pytest.mark.parametrize("name", ["job", "instance"])
def test_a_variable_for_the_scrape_has_all_that_it_needs(name: str) -> None:
    assert len(found(RULES, f"template-{name}", made())) == 1

    raw = made()
    scrape_variable(raw, name)
    assert found(RULES, f"template-{name}", raw) == []

    for key, value in {"label": "x", "multi": False, "allValue": ".*", "type": "custom", "datasource": "Prometheus"}.items():
        raw = made()
        scrape_variable(raw, name)[key] = value
        assert len(found(RULES, f"template-{name}", raw)) == 1, key


@pytest.mark.parametrize("name", ["job", "instance"])
def test_each_series_needs_the_matcher_of_the_scrape(name: str) -> None:
    raw = made()
    raw["panels"] = [panel(raw, "Nodes")]
    asked = raw["panels"][0]["targets"][0]
    for expr, faults in {
        f'sum(up{{{name}=~"${name}"}})': 0,
        f'sum(up{{{name}=~"${{{name}}}"}})': 0,
        f'sum(up{{{name}="${name}"}})': 1,
        f'sum(rate(up{{{name}=~"${name}"}}[$__rate_interval])) / sum(up)': 1,
        "up / up": 2,
    }.items():
        asked["expr"] = expr
        assert len(found(RULES, f"target-{name}", raw)) == faults, expr


def test_a_table_of_now_may_have_a_window_of_its_own_and_what_is_no_rate_too() -> None:
    raw = made()
    asked = target(raw)
    for expr in (
        "max_over_time(up[1h])",
        "sum(increase(tachoscope_steps_total[$__range]))",
        "max_over_time(rate(tachoscope_steps_total[$__rate_interval])[1h:])",
    ):
        asked["expr"] = expr
        assert found(RULES, "target-rate-interval", raw) == [], expr
    asked["expr"] = "sum(rate(tachoscope_steps_total[$__interval]))"
    assert len(found(RULES, "target-rate-interval", raw)) == 1
    asked.update(instant=True, range=False)
    assert found(RULES, "target-rate-interval", raw) == []


def test_mappings_or_words_excuse_a_missing_unit_and_an_empty_list_does_not() -> None:
    raw = made()
    defaults = panel(raw, "Nodes")["fieldConfig"]["defaults"]
    del defaults["unit"]
    defaults["mappings"] = []
    assert len(found(RULES, "panel-units", raw)) == 1

    defaults["mappings"] = [{"type": "value", "options": {"1": {"text": "up"}}}]
    assert found(RULES, "panel-units", raw) == []

    defaults["mappings"] = []
    panel(raw, "Nodes")["options"]["reduceOptions"]["fields"] = "/.*/"
    assert found(RULES, "panel-units", raw) == []


def test_a_target_may_take_the_result_of_another_panel() -> None:
    raw = made()
    target(raw).update(expr="", panelId=panel(raw, "Ranks")["id"])

    assert found(RULES, "target-promql", raw) == []


def test_hidden_logs_and_logs_of_the_boards_range_are_let_be() -> None:
    raw = made()
    loki(raw, 'sum(count_over_time({app="x"} |= "[5m" [$__auto]))')
    assert found(RULES, "target-logql", raw) == found(RULES, "target-logql-auto", raw) == []

    loki(raw, "sum(count_over_time([5m]")
    target(raw)["hide"] = True
    assert found(RULES, "target-logql", raw) == found(RULES, "target-logql-auto", raw) == []


def test_panels_in_a_folded_row_are_looked_at_too() -> None:
    raw = made()
    inside = panel(raw, "Nodes")
    raw["panels"] = [one for one in raw["panels"] if one is not inside]
    inside["targets"][0]["expr"] = "sum(up"
    panel(raw, "Time").update(collapsed=True, panels=[inside])

    assert [one.where for one in found(RULES, "target-promql", raw)] == ["panel 'Nodes'"]


def test_units_are_those_that_boards_may_name() -> None:
    assert {"s", "percentunit", "bytes", "short", "none", "bool", "currencyUSD"} <= UNITS
    assert not {"", "tokens", "count:tok/s"} & UNITS
