"""Links keep what was chosen, and the time."""

from __future__ import annotations

from board_making import POLICY
from tachoscope_alerts import events, places
from tachoscope_alerts.links import chosen_by
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.links import board, explorer, runbook


def test_a_runbook_is_where_the_policy_says() -> None:
    assert runbook(POLICY, "AgentDown").url == f"{POLICY.runbook_base}/AgentDown.md"


def test_a_variable_that_is_passed_on_keeps_all_its_values_and_one_of_a_row_is_set() -> None:
    url = board("gpu-node", "Node", {"cluster": "${cluster}", "node": "${__data.fields.Node}"}).url

    assert url == (
        "/d/gpu-node?${cluster:queryparam}&var-node=${__data.fields.Node}&var-datasource=${datasource}&from=${__from}&to=${__to}"
    )


def test_a_page_of_the_explorer_gets_its_parameters_and_the_time() -> None:
    url = explorer(POLICY, "job", "Explorer", {"job": "${training_job}", "rank": "3"}).url

    assert url == f"{POLICY.explorer_base}/job?job=${{training_job}}&rank=3&from=${{__from}}&to=${{__to}}"


def test_what_an_alert_chooses_on_its_board_are_variables_that_the_board_has() -> None:
    variables = {one.uid: {variable.name for variable in one.variables} for one in boards(POLICY)}
    chosen = {
        event.alert: (event.dashboard, set(chosen_by(event.dashboard, event.tests["fires"]["labels"])))
        for event in events.load(places.path_of("events"))
        if event.dashboard
    }

    assert {alert for alert, (uid, names) in chosen.items() if names - variables[uid]} == set()
    assert chosen["TrainingNoProgress"] == ("training", {"training_job"})
    assert chosen["GpuLost"] == ("gpu-node", {"node", "gpu"})
