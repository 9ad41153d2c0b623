"""No alert without a page that works: its queries find something on a fleet where all is broken, its commands and links exist."""

from __future__ import annotations

import datetime
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

import runbook_fixture
from helpers import REPOSITORY
from processes import prometheus, wait_for
from runbook_pages import (
    ALERTS,
    RUNBOOKS,
    Query,
    alert_names,
    alert_pages,
    anchors,
    blocks,
    filled,
    links,
    procedures,
    queries,
    section,
)
from tachoscope_alerts import promql
from tachoscope_alerts.compile import event_alerts
from tachoscope_alerts.compile.runbooks import HEAD, HEADINGS, refresh, subjects
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_alerts.lint.label_flow import faults
from tachoscope_alerts.spec import policy
from tachoscope_alerts.spec.slo_files import load
from tachoscope_cli.app import app
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.metric import IDENTITY, NAMESPACE
from tachoscope_core.report.taxonomy import BY_SLUG
from trying import each

PAGES = alert_pages()
ALL = {**PAGES, **procedures()}
STALE_DAYS = 180
ADDRESSES = {"server", "gateway", "prometheus", "alertmanager", "replicas_plus_one"}
"""What whoever is on call knows beforehand, and a number that the line above it prints."""
OF_PROMETHEUS = ("ALERTS", "alertmanager_", "prometheus_")
"""What Prometheus and Alertmanager say of themselves, in whichever cluster they run."""
LABELS_OF_A_TARGET = {"instance", "job"}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert alert_names() == PAGES.keys()


def test_a_page_that_is_neither_an_alerts_nor_a_classs_nor_a_procedure_is_nobodys() -> None:
    others = {path.stem for path in RUNBOOKS.glob("*.md")} - ALL.keys() - {"README"}

    assert others == BY_SLUG.keys()


@each("name", PAGES)
def test_the_sections_stand_in_the_order_in_which_they_are_needed(name: str) -> None:
    page = PAGES[name]

    assert tuple(re.findall(r"^## (.+)$", page, flags=re.MULTILINE)) == HEADINGS
    assert page.splitlines()[2].startswith("**TL;DR** ")
    assert all(section(page, heading).strip() for heading in HEADINGS)


@each("name", ALL)
def test_nothing_is_left_to_be_written(name: str) -> None:
    assert "TODO" not in ALL[name]


@each("name", PAGES)
def test_the_first_action_can_be_taken_back_and_says_what_to_expect(name: str) -> None:
    first = section(PAGES[name], "3 Stop it").split("\n2. ")[0]

    assert re.findall(r"^\d\. (?:\(.*?\))?", first, flags=re.MULTILINE) == ["1. (90 s, reversible)"]
    assert blocks(first, "sh")
    assert "Expected: " in first
    assert "Undo" in first


@each("name", PAGES)
def test_symptoms_lead_over_a_query_to_a_cause_and_a_step(name: str) -> None:
    lines = section(PAGES[name], "4 Diagnose").splitlines()
    begin = lines.index("| symptom | query | cause | step |")
    rows = [line.strip("|").split("|") for line in lines[begin + 2 :] if line.startswith("|")]

    assert len(rows) >= 3
    assert {len(row) for row in rows} == {4}
    assert all(cell.strip() for row in rows for cell in row)


@each("name", ALL)
def test_queries_are_numbered_and_each_number_that_is_referred_to_is_one(name: str) -> None:
    numbers = [query.number for query in queries(ALL[name])]

    assert numbers == list(range(1, len(numbers) + 1))
    assert {int(number) for number in re.findall(r"\bQ(\d+)\b", ALL[name])} <= set(numbers)


@each("name", PAGES)
def test_the_head_names_a_test_of_the_alert_that_was_run_within_half_a_year(name: str) -> None:
    head = HEAD.fullmatch(PAGES[name].splitlines()[0])

    assert head is not None
    assert head["alert"] == name
    assert re.search(rf"\b{name}\b", (ALERTS / "generated" / "prometheus" / head["test"]).read_text())
    warn_if_old(name, datetime.date.fromisoformat(head["tested"]), datetime.datetime.now(tz=datetime.UTC).date())


def warn_if_old(name: str, tested: datetime.date, today: datetime.date) -> None:
    """A warning, not a failure: nobody should have to touch a page before they can ship something else."""
    if (today - tested).days > STALE_DAYS:
        warnings.warn(f"runbooks/{name}.md was last tested {(today - tested).days} days ago", stacklevel=2)


def test_a_page_whose_test_was_not_run_for_more_than_180_days_is_warned_of() -> None:
    tested = datetime.date(2026, 1, 1)
    with pytest.warns(UserWarning, match=r"GpuLost.md was last tested 181 days ago"):
        warn_if_old("GpuLost", tested, tested + datetime.timedelta(days=181))
    with warnings.catch_warnings(action="error"):
        warn_if_old("GpuLost", tested, tested + datetime.timedelta(days=180))


# --- queries ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real Prometheus with the planted fleet; its port."""
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "fleet.om").write_text(runbook_fixture.openmetrics())
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "fleet.om", "tsdb"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with prometheus(folder) as port:
        wait_for(lambda: ready(port))
        yield port


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def ask(port: int, expression: str) -> list[dict[str, Any]]:
    """Return the rows of an instant query at the end of the planted samples, or fail with what Prometheus says against it."""
    words = urllib.parse.urlencode({"query": expression, "time": runbook_fixture.END})
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}", timeout=60) as answer:
            rows: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        pytest.fail(f"{expression}\n{json.load(error)['error']}")
    return rows


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs prometheus and promtool")
@each("name", [name for name in ALL if queries(ALL[name])])
def test_every_query_finds_something_on_a_fleet_where_everything_is_broken(name: str, fleet: int) -> None:
    silent = [query.expression for query in queries(ALL[name]) if not usable(ask(fleet, to_ask(query)))]

    assert silent == []


def to_ask(query: Query) -> str:
    return filled(query.expression, runbook_fixture.LABELS)


def usable(rows: list[dict[str, Any]]) -> bool:
    return any(row["value"][1] != "NaN" for row in rows)


@each("name", PAGES)
def test_a_query_asks_the_cluster_of_the_alert_and_for_a_job_or_service_its_namespace(name: str) -> None:
    asked = [series for query in queries(PAGES[name]) for series in selectors(query) if not series.metric.startswith(OF_PROMETHEUS)]
    chosen = [{one.label: one.value for one in series.matchers if one.operator == "="} for series in asked]
    named = [labels for labels in chosen if {labels.get("service"), labels.get("training_job")} & {"$service", "$training_job"}]

    assert [labels for labels in chosen if labels.get("cluster") != "$cluster"] == []
    assert [labels for labels in named if labels.get("workload_namespace") != "$workload_namespace"] == []


def selectors(query: Query) -> list[promql.Series]:
    tree = promql.parse(re.sub(r"\$\{(\w+)\}", r"$\1", query.expression))
    return [node for node in promql.walk(tree) if isinstance(node, promql.Series)]


@each("name", ALL)
def test_a_query_uses_only_metrics_labels_and_values_that_there_are(name: str) -> None:
    known = catalogue(load([ALERTS / "slos"]))

    assert [(query.number, fault) for query in queries(ALL[name]) for fault in faults(to_ask(query), known)] == []


def test_every_alert_has_queries() -> None:
    assert [name for name in PAGES if not section(PAGES[name], "1 Is it real?").count("```promql")] == []


def test_the_planted_fleet_has_the_metrics_and_labels_of_the_catalogue() -> None:
    for series in runbook_fixture.all_series():
        if series.name.startswith("tachoscope_"):
            metric = BY_NAME.get(series.name) or BY_NAME[re.sub("_(bucket|count|sum)$", "", series.name)]
            assert {*series.labels} - LABELS_OF_A_TARGET - {"le", NAMESPACE} == {*metric.labels} - {NAMESPACE}, series.name


# --- commands and links -------------------------------------------------------------------------------------------------------


@each("name", ALL)
def test_the_commands_are_bash(name: str) -> None:
    for block in blocks(ALL[name], "sh"):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@each("name", ALL)
def test_a_placeholder_is_a_label_or_the_readme_says_where_it_is_from(name: str) -> None:
    used = set(re.findall(r"\$\{(\w+)", ALL[name]))
    explained = re.findall(r"^\| (`.+?`) \|", (RUNBOOKS / "README.md").read_text(), flags=re.MULTILINE)

    assert used <= runbook_fixture.LABELS.keys() | {word for cell in explained for word in re.findall(r"`(\w+)`", cell)}


@each("name", PAGES)
def test_what_a_step_needs_is_given_by_the_alert_or_by_a_line_above_it(name: str) -> None:
    page, known = PAGES[name], labels_of(name) | ADDRESSES
    needed = {word: page.index(f"${{{word}") for word in re.findall(r"\$\{(\w+)", page) if word not in known}

    assert [word for word, place in needed.items() if f"`{word}`" not in page[:place]] == []
    assert re.findall(r"(?<![\w/])(?:NAME|POD|NODE|HOST|CHECKPOINT)\b", section(page, "3 Stop it")) == []


@cache
def commands() -> Any:
    return typer.main.get_command(app)


@each("name", ALL)
def test_the_commands_of_ours_exist_with_their_options(name: str) -> None:
    for words in re.findall(r"(?:^|`|\(|; )tachoscope ((?:[a-z]+ ?)[^`\n#|;]*)", ALL[name], flags=re.MULTILINE):
        command: Any = commands()
        for word in words.split():
            if word not in getattr(command, "commands", {}):
                break
            command = command.commands[word]
        assert not hasattr(command, "commands"), f"tachoscope {words}"
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        # After a lone -- comes somebody else's command.
        ours = words.split(" -- ")[0]
        assert set(re.findall(r"(?<!\S)--[\w-]+", ours)) <= known | {"--help"}, f"tachoscope {words}"


@each("name", ALL)
def test_the_links_lead_somewhere(name: str) -> None:
    for link in links(ALL[name]):
        file, _, anchor = link.partition("#")
        path = (RUNBOOKS / file).resolve() if file else RUNBOOKS / f"{name}.md"
        assert path.is_relative_to(REPOSITORY) and path.exists(), link
        if anchor:
            assert anchor in anchors(path), link


def test_a_link_that_leads_nowhere_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What is it?\n[there](#what-is-it) [gone](other.md#no)\n```\n[not](a link)\n```\n")

    assert links(page.read_text()) == ["#what-is-it", "other.md#no"]
    assert anchors(page) == {"what-is-it"}


# --- generated parts ----------------------------------------------------------------------------------------------------------

SLOS, EVENTS = load([ALERTS / "slos"]), event_alerts.load(ALERTS / "events")
SUBJECTS = subjects(SLOS, EVENTS)


def labels_of(name: str) -> set[str]:
    """Return the labels that an alert carries."""
    of_objectives = {label for slo in SLOS if slo.alert == name for label in slo.by}
    of_events = {label for event in EVENTS if event.alert == name for label in event.tests["fires"]["labels"]}
    return of_objectives | of_events | {label for label in IDENTITY if label != "team"}


@each("name", PAGES)
def test_what_is_generated_is_current(name: str) -> None:
    assert refresh(PAGES[name], SUBJECTS[name], policy.load(ALERTS / "policy.yaml")) == PAGES[name], "make generate"


@each("name", PAGES)
def test_a_label_in_a_query_is_one_of_the_alert_or_of_a_row_that_the_page_names(name: str) -> None:
    named = {
        label
        for line in re.findall(r"^.*\bbelow (?:is|are)\b.*$", PAGES[name], flags=re.MULTILINE)
        for label in re.findall(r"`(\w+)`", line)
    }
    used = {label for query in queries(PAGES[name]) for label in re.findall(r"\$\{(\w+)\}", query.expression)}

    assert used <= labels_of(name) | named


def test_what_is_read_here_by_name_is_what_the_readers_read() -> None:
    assert alert_names() == SUBJECTS.keys()
