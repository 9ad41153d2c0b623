"""Expressions against the catalogue: names, labels, the board's scope, legends and columns."""

from __future__ import annotations

import pytest

from board_making import KNOWN, Json, found, made, panel, variable
from tachoscope_dashboards.lint.lint import Finding
from tachoscope_dashboards.lint.query_rules import rules
from tachoscope_dashboards.parts.grafana_json import _variable
from tachoscope_dashboards.parts.variables import JOB_NAMESPACE, ONE_JOB

RULES = rules(KNOWN)
SCOPE = 'cluster=~"$cluster", namespace=~"$namespace"'
NODE = f'{SCOPE}, instance=~"$node"'


JOB = 'cluster=~"$cluster", training_job="$training_job"'


def of(name: str, expr: str, title: str = "Nodes", **changes: object) -> list[Finding]:
    """Return what a rule finds when a panel asks this."""
    raw = made()
    panel(raw, title)["targets"][0] |= {"expr": expr, **changes}
    return found(RULES, name, raw)


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_a_sound_board_keeps_it(name: str) -> None:
    assert found(RULES, name, made()) == []


def test_a_name_or_label_that_there_is_not_is_found_with_the_nearest_one() -> None:
    (fault,) = of("catalogue", "count(tachoscope_agent_inf)")
    assert (fault.where, fault.what) == ("panel 'Nodes'", "metric tachoscope_agent_inf is in no catalogue")
    assert "did you mean tachoscope_agent_info?" in fault.fix

    (fault,) = of("catalogue", 'count(tachoscope_agent_info{node_name=~"$node"})')
    assert fault.what == "tachoscope_agent_info has no label node_name"

    (fault,) = of("catalogue", 'sum(rate(tachoscope_job_time_seconds_total{state="computing"}[$__rate_interval]))')
    assert "never has state='computing'" in fault.what


def test_variables_and_marks_are_held_against_the_catalogue_too() -> None:
    raw = made()
    variable(raw, "node")["query"]["query"] = 'label_values(tachoscope_agent_info{cluster=~"$cluster"}, host_name)'
    raw["annotations"]["list"][1]["expr"] = "changes(tachoscope_restart[5m])"

    assert [one.where for one in found(RULES, "catalogue", raw)] == ["variable 'node'", "annotation 'Restarts'"]


def test_an_expression_that_cannot_be_read_is_said_once_and_by_one_rule_only() -> None:
    assert [len(of(rule.name, "sum(up")) for rule in RULES] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("expr", "missing"),
    [
        (f"count(tachoscope_agent_info{{{NODE}}})", []),
        (f"count(tachoscope_agent_info{{{SCOPE}}})", ["instance"]),
        ("count(tachoscope_agent_info)", ["cluster", "namespace", "instance"]),
        (f'sum(tachoscope_job_active{{{NODE}, training_job="$training_job"}})', []),
        (f'sum(tachoscope_job_active{{{NODE}, training_job="resnet"}})', ["training_job"]),
        (f"sum(rate(tachoscope_host_cpu_seconds_total{{{NODE}}}[$__rate_interval]))", []),
        (f"sum(rate(tachoscope_host_cpu_seconds_total{{{SCOPE}}}[$__rate_interval]))", ["instance"]),
        (f"count(tachoscope_agent_info{{{NODE}}} unless on (instance) tachoscope_job_active{{{NODE}}})", ["training_job"]),
        ("sum(up)", []),
        ('count(ALERTS{alertstate="firing"})', []),
    ],
)
def test_raw_series_of_ours_are_limited_to_all_that_can_be_chosen_and_have(expr: str, missing: list[str]) -> None:
    assert of("catalogue", expr) == []
    assert [one.what.split(" to the ")[1].split()[0] for one in of("scope", expr)] == missing


@pytest.mark.parametrize(
    ("where", "words", "missing"),
    [
        ("", "All of it.", ["clusters", "namespaces", "nodes", "jobs"]),
        (JOB, "All of it.", ["namespaces", "nodes"]),
        (JOB, "Of all namespaces and nodes.", []),
        ("", "Of all clusters and namespaces, and of all jobs and nodes.", []),
        ("", "Of all clusters; nodes of all jobs in namespaces.", ["namespaces", "nodes"]),
    ],
)
def test_a_panel_of_recorded_series_says_what_of_the_choice_it_does_not_follow(where: str, words: str, missing: list[str]) -> None:
    raw = made()
    one = panel(raw, "Nodes")
    one["targets"][0]["expr"] = f"sum(job_state:tachoscope_job_time:rate1m{{{where}}})"
    one["description"] = words

    assert [fault.what.split("of all ")[1].split(",")[0] for fault in found(RULES, "scope", raw)] == missing
    raw["panels"][0]["options"]["content"] += " Numbers are of all clusters, namespaces, nodes and jobs."
    assert found(RULES, "scope", raw) == []


@pytest.mark.parametrize(
    ("series", "missing"),
    [
        ("tachoscope_job_active{%s}", ["workload_namespace", "team"]),
        ('tachoscope_job_active{%s, workload_namespace=~"$job_namespace", team=~"$job_team"}', []),
        ("tachoscope_host_memory_bytes{%s}", []),
    ],
)
def test_only_series_of_jobs_and_services_are_limited_to_their_place_and_by_any_variable_of_it(
    series: str, missing: list[str]
) -> None:
    raw = made()
    raw["templating"]["list"] += [_variable(one) for one in (JOB_NAMESPACE, *ONE_JOB[1:])]
    matchers = 'cluster=~"$job_cluster", namespace=~"$namespace", instance=~"$node"'
    job = "" if "host" in series else ', training_job=~"$training_job"'
    panel(raw, "Nodes")["targets"][0]["expr"] = f"count({series % f'{matchers}{job}'})"

    found_there = [one for one in found(RULES, "scope", raw) if one.where == "panel 'Nodes'"]
    assert [one.what.split(" to the ")[1].split()[0] for one in found_there] == missing


def test_a_panel_may_show_all_ranks_where_one_can_be_chosen() -> None:
    raw = made()
    rank = {"name": "rank", "query": {"query": 'label_values(tachoscope_steps_total{training_job=~"$training_job"}, rank)'}}
    raw["templating"]["list"].append({**variable(raw, "node"), **rank})

    assert found(RULES, "scope", raw) == []


_WHOLE = "cluster, workload_namespace, team, training_job"


@pytest.mark.parametrize(
    ("expr", "dropped"),
    [
        ("sum by (training_job) (tachoscope_job_active)", "sum (training_job) drops cluster, workload_namespace, team"),
        ("sum by (cluster, team, service, le) (tachoscope_requests_total)", "drops workload_namespace:"),
        (f"topk by (training_job) (1, sum by ({_WHOLE}) (tachoscope_job_active))", "topk (training_job) drops cluster,"),
        ("tachoscope_job_active and on (training_job) tachoscope_steps_total", "`and` (training_job) drops cluster,"),
        ("sum without (instance, team) (tachoscope_job_active)", "drops team:"),
        ("tachoscope_job_active unless ignoring (cluster) tachoscope_steps_total", "`unless` (cluster) drops cluster:"),
        (f"sum by ({_WHOLE}) (tachoscope_job_active) * on ({_WHOLE}) tachoscope_steps_total", ""),
        ("topk(10, sum by (rank) (tachoscope_steps_total)) / on () group_left () sum(tachoscope_steps_total)", ""),
        ("topk without (team) (1, tachoscope_job_active)", ""),
    ],
)
def test_what_groups_or_joins_by_a_job_or_service_keeps_what_tells_it_from_others_of_its_name(expr: str, dropped: str) -> None:
    faults = of("identity", expr)

    assert len(faults) == bool(dropped)
    assert all(dropped in one.what and one.where == "panel 'Nodes'" for one in faults)


def test_a_mark_keeps_what_tells_jobs_apart_and_a_variable_only_lists_names() -> None:
    raw = made()
    raw["annotations"]["list"][1]["expr"] = "max by (training_job) (tachoscope_job_active)"

    assert [one.where for one in found(RULES, "identity", raw)] == ["annotation 'Restarts'"]


def test_a_legend_and_the_title_of_a_mark_name_labels_that_the_series_have() -> None:
    assert of("legend", f"sum by (instance) (tachoscope_agent_info{{{NODE}}})", legendFormat="{{instance}} and {{ version }}") == [
        Finding(
            "panel 'Nodes'",
            "its legend names version, which the series do not have",
            f"they have instance: sum by (instance) (tachoscope_agent_info{{{NODE}}})",
        )
    ]
    raw = made()
    raw["annotations"]["list"][1]["titleFormat"] = "{{job_name}}"
    assert [one.where for one in found(RULES, "legend", raw)] == ["annotation 'Restarts'"]


def test_an_alert_may_have_any_label_and_buckets_have_theirs() -> None:
    assert of("legend", "ALERTS", legendFormat="{{whatever}}") == []
    buckets = f"sum by (le) (rate(tachoscope_step_seconds_bucket{{{NODE}}}[$__rate_interval]))"
    assert of("legend", buckets, legendFormat="{{le}}") == []


def renamed(raw: Json) -> Json:
    (one,) = [one for one in panel(raw, "Ranks")["transformations"] if one["id"] == "organize"]
    return one["options"]["renameByName"]


def test_a_column_is_a_label_or_a_query_of_its_table() -> None:
    raw = made()
    names = renamed(raw)
    names["ranks"] = names.pop("rank")
    names["Value #C"] = names.pop("Value #B")
    faults = found(RULES, "columns", raw)

    assert sorted(one.what for one in faults) == ["no query of it is named C", "the column ranks is not a label of what it asks"]
    assert {one.fix for one in faults} == {"there are A, B", "there are rank"}


def test_links_and_settings_of_a_table_name_columns_that_there_are() -> None:
    raw = made()
    override = panel(raw, "Ranks")["fieldConfig"]["overrides"][0]
    override["properties"][-1]["value"][0]["url"] = '/d/small?var-node=${__data.fields.Host}&x=${__data.fields["Silent for"]}'
    assert [one.what for one in found(RULES, "columns", raw)] == ["it names a column 'Host'"]

    raw = made()
    panel(raw, "Ranks")["fieldConfig"]["overrides"][1]["matcher"]["options"] = "Silent since"
    assert [one.what for one in found(RULES, "columns", raw)] == ["it names a column 'Silent since'"]


def test_a_link_of_a_whole_panel_knows_no_row() -> None:
    raw = made()
    panel(raw, "Nodes")["links"] = [{"title": "Node", "url": "/d/small?var-node=${__data.fields.Node}"}]

    assert [one.fix for one in found(RULES, "columns", raw)] == ["give the link to a column"]
