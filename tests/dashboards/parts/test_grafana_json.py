"""What is made of a board for Grafana 11 to 13: typed data sources, variables, marks, and nothing of times before."""

from __future__ import annotations

from typing import Any

import pytest

from board_making import POLICY, made, variable
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.board import Board
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.variables import CLUSTER, ONE_JOB, Variable

CHOSEN = {"type": "prometheus", "uid": "${datasource}"}


def test_a_board_has_the_keys_of_grafanas_schema_and_no_others() -> None:
    raw = made()

    assert raw.keys() == {
        *("uid", "title", "description", "tags", "schemaVersion", "version", "editable", "graphTooltip", "fiscalYearStartMonth"),
        *("timezone", "refresh", "time", "timepicker", "links", "annotations", "templating", "panels"),
    }
    assert (raw["schemaVersion"], raw["editable"], raw["tags"]) == (41, False, ["tachoscope"])


def sources(value: Any) -> list[Any]:
    """Return all data sources in a document."""
    if isinstance(value, dict):
        return [part for key, part in value.items() if key == "datasource"] + [
            one for part in value.values() for one in sources(part)
        ]
    return [one for part in value for one in sources(part)] if isinstance(value, list) else []


def test_everything_asks_the_data_source_that_is_chosen() -> None:
    found = sources(made())

    assert len(found) > 10
    assert all(one == CHOSEN for one in found)


def test_the_data_source_is_chosen_first_and_is_a_prometheus() -> None:
    first = made()["templating"]["list"][0]

    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")


def variable_of(one: Variable) -> dict[str, Any]:
    return variable(to_json(Board("x", "X", "Is it?", "", (one,), ())), one.name)


def test_a_variable_takes_all_which_is_also_series_without_the_label() -> None:
    found = variable_of(CLUSTER)

    assert found["query"]["query"] == found["definition"] == "label_values(tachoscope_agent_info, cluster)"
    assert (found["multi"], found["includeAll"], found["allValue"]) == (True, True, ".*")
    assert found["current"]["value"] == ["$__all"]
    assert found["refresh"] == 2


@pytest.mark.parametrize(
    ("one", "multi", "all_", "all_value"),
    [
        (ONE_JOB[0], False, False, None),
        (Variable("a", "a", "up", "A", some=True), True, False, None),
        (Variable("a", "a", "up", "A", listed=True), True, True, None),
    ],
)
def test_a_variable_may_take_one_value_some_or_all_that_are_listed(
    one: Variable, multi: bool, all_: bool, all_value: str | None
) -> None:
    found = variable_of(one)

    assert (found["multi"], found["includeAll"], found.get("allValue")) == (multi, all_, all_value)
    assert bool(found["current"]) == all_


def test_alerts_that_belong_to_the_board_are_marked_and_events_beside_them() -> None:
    alerts, restarts = made()["annotations"]["list"]

    assert alerts["expr"].count('ALERTS{alertstate="firing", cluster=~"$cluster|", area="training"}') == 2
    assert (alerts["iconColor"], restarts["iconColor"]) == (palette.BAD, palette.WARN)
    assert restarts["titleFormat"] == "{{training_job}}"
    assert alerts["enable"]
    assert restarts["enable"]


def test_marks_of_alerts_are_those_of_the_chosen_cluster_and_of_all_together_where_one_can_be_chosen() -> None:
    without = to_json(Board("x", "X", "Is it?", "", (), (), alerts='area="training"'))

    assert 'ALERTS{alertstate="firing", area="training"}' in without["annotations"]["list"][0]["expr"]
    for board in boards(POLICY):
        assert to_json(board)["annotations"]["list"][0]["expr"].count('cluster=~"$cluster|"') == 2


def test_other_boards_are_one_click_away_with_the_choice_and_the_time() -> None:
    (link,) = made()["links"]

    assert (link["tags"], link["includeVars"], link["keepTime"]) == (["tachoscope"], True, True)
