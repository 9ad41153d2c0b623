"""Our own rules, each on a board that breaks it in one way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from board_making import Json, found, made, panel, variable
from tachoscope_core.report import palette
from tachoscope_dashboards.lint.tachoscope_rules import GONE, HOUSE, RULES, TYPES

ALL = (*RULES, *HOUSE)


@pytest.mark.parametrize("name", [rule.name for rule in ALL])
def test_a_sound_board_keeps_it(name: str) -> None:
    assert found(ALL, name, made()) == []


def angular(raw: Json) -> None:
    panel(raw, "Nodes")["type"] = "singlestat"


def type_of_nobody(raw: Json) -> None:
    panel(raw, "Nodes")["type"] = "time-series"


def heatmap_of_before(raw: Json) -> None:
    panel(raw, "Nodes").update(type="heatmap", cards={"cardPadding": None}, dataFormat="tsbuckets")


def rows_of_before(raw: Json) -> None:
    raw["rows"] = [{"panels": []}]


def schema_of_before(raw: Json) -> None:
    raw["schemaVersion"] = 22


def same_id(raw: Json) -> None:
    panel(raw, "Nodes")["id"] = panel(raw, "Ranks")["id"]


def same_query_name(raw: Json) -> None:
    panel(raw, "Ranks")["targets"][1]["refId"] = "A"


def beyond_the_last_column(raw: Json) -> None:
    panel(raw, "Ranks")["gridPos"]["x"] = 12


def one_on_another(raw: Json) -> None:
    panel(raw, "Where time goes")["gridPos"]["y"] -= 1


def uid_that_is_too_long(raw: Json) -> None:
    raw["uid"] = "u" * 41


def uid_that_grafana_makes(raw: Json) -> None:
    raw["uid"] = None


def variable_that_is_not_there(raw: Json) -> None:
    panel(raw, "Nodes")["targets"][0]["expr"] = 'up{cluster=~"$clustre"}'


def link_with_a_variable_that_is_not_there(raw: Json) -> None:
    panel(raw, "Nodes")["links"] = [{"title": "x", "url": "https://example.com/${shard:csv}"}]


def variable_that_comes_too_late(raw: Json) -> None:
    variables = raw["templating"]["list"]
    variables.insert(1, variables.pop(2))


def variable_that_nothing_needs(raw: Json) -> None:
    raw["templating"]["list"].append({**variable(raw, "node"), "name": "rank"})


def no_reason(raw: Json) -> None:
    del panel(raw, "Nodes")["fieldConfig"]["defaults"]["noValue"]


def a_reason_that_says_nothing(raw: Json) -> None:
    panel(raw, "Nodes")["fieldConfig"]["defaults"]["noValue"] = "No data"


def no_word_on_what_to_do(raw: Json) -> None:
    one = panel(raw, "Nodes")
    one["description"] = one["description"].split("**Otherwise:**")[0]


def no_word_on_what_it_shows(raw: Json) -> None:
    one = panel(raw, "Nodes")
    one["description"] = one["description"][one["description"].index("**Healthy:**") :]


def no_question(raw: Json) -> None:
    raw["description"] = raw["panels"][0]["options"]["content"] = "All nodes."


def question_that_is_not_at_the_head(raw: Json) -> None:
    del raw["panels"][0]


def threshold_of_another_colour(raw: Json) -> None:
    panel(raw, "Nodes")["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["color"] = "green"


def mark_of_another_colour(raw: Json) -> None:
    raw["annotations"]["list"][0]["iconColor"] = "#FF0000"


def series_of_another_states_colour(raw: Json) -> None:
    overrides = panel(raw, "Where time goes")["fieldConfig"]["overrides"]
    (one,) = [one for one in overrides if one["matcher"]["options"] == "compute"]
    one["properties"][0]["value"]["fixedColor"] = palette.STATE_COLORS["hung"]


def text_of_another_states_colour(raw: Json) -> None:
    values = {"1": {"text": "Data wait", "color": palette.STATE_COLORS["compute"]}}
    panel(raw, "Nodes")["fieldConfig"]["defaults"]["mappings"] = [{"type": "value", "options": values}]


DAMAGES: list[tuple[str, Callable[[Json], None]]] = [
    ("modern", angular),
    ("modern", type_of_nobody),
    ("modern", heatmap_of_before),
    ("modern", rows_of_before),
    ("modern", schema_of_before),
    ("ids", same_id),
    ("ids", same_query_name),
    ("grid", beyond_the_last_column),
    ("grid", one_on_another),
    ("uid", uid_that_is_too_long),
    ("uid", uid_that_grafana_makes),
    ("known-variables", variable_that_is_not_there),
    ("known-variables", link_with_a_variable_that_is_not_there),
    ("known-variables", variable_that_comes_too_late),
    ("known-variables", variable_that_nothing_needs),
    ("empty-reason", no_reason),
    ("empty-reason", a_reason_that_says_nothing),
    ("three-parts", no_word_on_what_to_do),
    ("three-parts", no_word_on_what_it_shows),
    ("question", no_question),
    ("question", question_that_is_not_at_the_head),
    ("palette", threshold_of_another_colour),
    ("palette", mark_of_another_colour),
    ("state-color", series_of_another_states_colour),
    ("state-color", text_of_another_states_colour),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES, ids=[damage.__name__ for _, damage in DAMAGES])
def test_what_breaks_it_is_found_once(name: str, damage: Callable[[Json], None]) -> None:
    raw = made()
    damage(raw)

    assert len(found(ALL, name, raw)) == 1


def test_what_grafana_has_given_up_has_a_successor_that_it_has() -> None:
    assert set(GONE.values()) <= TYPES
    assert not set(GONE) & TYPES


def test_a_dollar_before_a_number_and_grafanas_own_variables_are_no_variables_of_the_board() -> None:
    raw = made()
    asked = 'label_replace(tachoscope_agent_info{cluster=~"$cluster"}, "x", "$1", "version", "(.*)") > $__range_s'
    panel(raw, "Nodes")["targets"][0]["expr"] = asked

    assert found(ALL, "known-variables", raw) == []


def test_a_threshold_by_value_is_no_colour_of_a_state() -> None:
    raw = made()
    column = {"matcher": {"id": "byName", "options": "Data wait"}, "properties": [{"id": "color", "value": {"mode": "thresholds"}}]}
    panel(raw, "Ranks")["fieldConfig"]["overrides"].append(column)

    assert found(ALL, "state-color", raw) == []
