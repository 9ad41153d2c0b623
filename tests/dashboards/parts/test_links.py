"""Links keep what was chosen, and the time."""

from __future__ import annotations

import re

from board_making import POLICY
from helpers import REPOSITORY
from tachoscope_alerts.compile import event_alerts
from tachoscope_alerts.compile.links import BOARDS, board_name, board_uid, chosen_by, dashboard_url
from tachoscope_alerts.spec import files
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.links import board, explorer, runbook


def test_a_runbook_is_where_the_policy_says() -> None:
    assert runbook(POLICY, "AgentDown").url == f"{POLICY.runbook_base}/AgentDown.md"


def test_a_variable_that_is_passed_on_keeps_all_its_values_and_one_of_a_row_is_set() -> None:
    url = board("gpu-node", "Node", {"cluster": "${cluster}", "node": "${__data.fields.Node}"}).url

    assert url == (
        "/d/tachoscope-gpu-node?${cluster:queryparam}&var-node=${__data.fields.Node}&var-datasource=${datasource}&from=${__from}&to=${__to}"
    )


def test_a_page_of_the_explorer_gets_its_parameters_and_the_time() -> None:
    url = explorer(POLICY, "job", "Explorer", {"job": "${training_job}", "rank": "3"}).url

    assert url == f"{POLICY.explorer_base}/job?job=${{training_job}}&rank=3&from=${{__from}}&to=${{__to}}"


def test_what_an_alert_chooses_on_its_board_are_variables_that_the_board_has() -> None:
    variables = {board_name(one.uid): {variable.name for variable in one.variables} for one in boards(POLICY)}
    chosen = {
        event.alert: (event.dashboard, set(chosen_by(event.dashboard, event.tests["fires"]["labels"])))
        for event in event_alerts.load(files.path_of("events"))
        if event.dashboard
    }

    assert {alert for alert, (name, names) in chosen.items() if names - variables[name]} == set()
    assert chosen["TrainingNoProgress"] == ("training", {"training_job"})
    assert chosen["GpuLost"] == ("gpu-node", {"node", "gpu"})


def test_a_board_of_the_suite_is_named_shortly_and_has_a_uid_that_no_other_board_of_a_grafana_has() -> None:
    assert {one.uid for one in boards(POLICY)} == {f"tachoscope-{name}" for name in BOARDS}
    for name in ("fleet", "tachoscope-fleet"):
        assert board(name, "Fleet", {}).url.startswith("/d/tachoscope-fleet?")
        assert dashboard_url(POLICY, name, {}) == f"{POLICY.dashboard_base}/tachoscope-fleet"


def test_an_alert_may_lead_to_a_board_of_ones_own_by_its_uid() -> None:
    assert dashboard_url(POLICY, "ae3f-own", {"slo": "x"}) == f"{POLICY.dashboard_base}/ae3f-own?var-slo=x"


def test_all_rules_that_are_committed_lead_to_boards_of_the_suite() -> None:
    base = re.escape(POLICY.dashboard_base)
    for path in (REPOSITORY / "alerts" / "generated" / "prometheus").glob("*.rules.yaml"):
        assert set(re.findall(rf"{base}/([\w-]+)", path.read_text())) <= set(map(board_uid, BOARDS)), path
