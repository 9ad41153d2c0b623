"""What is recorded for the boards: which labels its series have, what they are of series that are known, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from test_rule_manifests import refused

from helpers import REPOSITORY
from promtool_running import faults, lint
from tachoscope_alerts.build import HEADER, contents, write
from tachoscope_alerts.compile import event_alerts
from tachoscope_alerts.compile.recordings import BOARDS_GROUP, GROUP, Recording, groups, load, needed
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_alerts.lint.label_flow import faults as label_faults
from tachoscope_alerts.lint.lint import check_recordings
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.policy import load as load_policy
from tachoscope_alerts.spec.slo_files import load as load_slos
from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import IDENTITY
from tachoscope_core.metrics.training import TRAINING_STATES

ALERTS = REPOSITORY / "alerts"
RECORDINGS = load(ALERTS / "recordings.yaml")
EVENTS = event_alerts.load(ALERTS / "events")
RULES = {f"{GROUP}.rules.yaml": {"groups": groups(RECORDINGS, Timing())}}


def written(folder: Path, *rules: tuple[str, str]) -> Path:
    path = folder / "recordings.yaml"
    path.write_text(yaml.safe_dump({"recordings": [{"record": name, "expr": expr} for name, expr in rules]}))
    return path


def found(folder: Path, series: dict[str, str], wanted: dict[str, list[tuple[str, float]]], at: str = "5m") -> dict[str, str]:
    """Return what promtool says against the shipped recordings of these series at a moment; nothing if they are as wanted."""
    samples = {expr: [{"labels": labels, "value": value} for labels, value in pairs] for expr, pairs in wanted.items()}
    checks = [{"expr": expr, "eval_time": at, "exp_samples": those} for expr, those in samples.items()]
    planted = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "15s", "input_series": planted, "promql_expr_test": checks}
    document = {"rule_files": list(RULES), "evaluation_interval": "30s", "tests": [test]}
    return faults(folder, RULES, {"planted_test.yaml": document})


# --- what is shipped ----------------------------------------------------------------------------------------------------------


def test_nothing_is_wrong_with_the_shipped_recordings_and_promtool_takes_them(tmp_path: Path) -> None:
    assert check_recordings(RECORDINGS, catalogue(), EVENTS) == []
    assert lint(tmp_path, RULES) == ""


def test_what_no_alert_reads_is_evaluated_every_minute() -> None:
    read = {one.name for one in needed([event.expr for event in EVENTS], RECORDINGS)}

    assert {one.name for one in RECORDINGS if not one.boards_only} == read
    assert [(group["name"], group["interval"]) for group in groups(RECORDINGS, Timing())] == [(GROUP, "30s"), (BOARDS_GROUP, "1m")]


def test_the_lint_names_a_recording_for_boards_that_an_alert_reads(tmp_path: Path) -> None:
    path = tmp_path / "recordings.yaml"
    path.write_text("recordings:\n- {record: 'job:tachoscope_steps:sum', boards_only: true, expr: 'sum by (cluster) (up)'}\n")

    (problem,) = [one for one in check_recordings(load(path), catalogue(), EVENTS) if "alert" in one.what]
    assert (problem.fix, problem.line) == ("remove boards_only", 2)


def test_each_shipped_recording_keeps_the_cluster_so_that_boards_can_choose_one() -> None:
    assert [one.name for one in RECORDINGS if "cluster" not in one.labels] == []


def test_the_ledger_of_a_job_and_of_the_fleet_are_sums_over_ranks_nodes_and_jobs(tmp_path: Path) -> None:
    name = "tachoscope_job_time_seconds_total"
    series = {
        f'{name}{{training_job="a", state="compute", instance="n1", cluster="x"}}': "0+90x30",
        f'{name}{{training_job="a", state="compute", instance="n2", cluster="x"}}': "0+60x30",
        f'{name}{{training_job="a", state="data_wait", instance="n2", cluster="x"}}': "0+30x30",
        f'{name}{{training_job="b", state="compute", instance="n3", cluster="y"}}': "0+120x30",
    }
    of_job, of_fleet = "job_state:tachoscope_job_time:rate1m", "fleet_state:tachoscope_job_time:rate1m"
    wanted = {
        of_job: [
            (f'{of_job}{{cluster="x", training_job="a", state="compute"}}', 10.0),
            (f'{of_job}{{cluster="x", training_job="a", state="data_wait"}}', 2.0),
            (f'{of_job}{{cluster="y", training_job="b", state="compute"}}', 8.0),
        ],
        f'{of_fleet}{{cluster="x"}}': [
            (f'{of_fleet}{{cluster="x", state="compute"}}', 10.0),
            (f'{of_fleet}{{cluster="x", state="data_wait"}}', 2.0),
        ],
    }

    assert found(tmp_path, series, wanted) == {}


def test_means_of_a_job_weigh_each_step_and_each_look_alike_and_there_is_none_of_nothing(tmp_path: Path) -> None:
    series = {
        'tachoscope_step_seconds_sum{training_job="a", instance="n1"}': "0+30x30",
        'tachoscope_step_seconds_count{training_job="a", instance="n1"}': "0+60x30",
        'tachoscope_step_seconds_sum{training_job="a", instance="n2"}': "0+60x30",
        'tachoscope_step_seconds_count{training_job="a", instance="n2"}': "0+30x30",
        'tachoscope_step_seconds_sum{training_job="stands", instance="n3"}': "7x30",
        'tachoscope_step_seconds_count{training_job="stands", instance="n3"}': "3x30",
        'tachoscope_job_sm_active_ratio_sum{training_job="a", instance="n1"}': "0+6x30",
        'tachoscope_job_sm_active_ratio_count{training_job="a", instance="n1"}': "0+15x30",
        'tachoscope_job_sm_active_ratio_sum{training_job="stands", instance="n3"}': "6x30",
        'tachoscope_job_sm_active_ratio_count{training_job="stands", instance="n3"}': "15x30",
    }
    wanted = {
        "job:tachoscope_step_seconds:mean1m": [('job:tachoscope_step_seconds:mean1m{training_job="a"}', 1.0)],
        "job:tachoscope_sm_active:mean1m": [('job:tachoscope_sm_active:mean1m{training_job="a"}', 0.4)],
        "job:tachoscope_steps:rate1m": [
            ('job:tachoscope_steps:rate1m{training_job="a"}', 6.0),
            ('job:tachoscope_steps:rate1m{training_job="stands"}', 0.0),
        ],
    }

    assert found(tmp_path, series, wanted) == {}


def test_nodes_are_recorded_one_by_one_only_where_something_is_wrong_with_them(tmp_path: Path) -> None:
    series = {
        f'tachoscope_node_health{{state="{state}", instance="n{number}"}}': f"{int(state == of)}x30"
        for number, of in enumerate(("healthy", "healthy", "degraded"))
        for state in ("healthy", "degraded", "unhealthy", "unknown")
    }
    series |= {f'tachoscope_gpus{{kind="expected", instance="n{number}"}}': "8x30" for number in range(3)}
    series |= {f'tachoscope_gpus{{kind="seen", instance="n{number}"}}': f"{8 - (number == 1)}x30" for number in range(3)}
    wanted = {
        "node:tachoscope_node_health:bad": [('node:tachoscope_node_health:bad{instance="n2", state="degraded"}', 1.0)],
        "node:tachoscope_gpus_missing:sum": [('node:tachoscope_gpus_missing:sum{instance="n1"}', 1.0)],
        'fleet:tachoscope_node_health:count{state=~"healthy|degraded|unhealthy"}': [
            ('fleet:tachoscope_node_health:count{state="healthy"}', 2.0),
            ('fleet:tachoscope_node_health:count{state="degraded"}', 1.0),
        ],
        "fleet:tachoscope_gpus:sum": [
            ('fleet:tachoscope_gpus:sum{kind="expected"}', 24.0),
            ('fleet:tachoscope_gpus:sum{kind="seen"}', 23.0),
        ],
    }

    assert found(tmp_path, series, wanted) == {}


def test_held_gpus_are_added_up_and_agents_that_do_not_answer_are_down(tmp_path: Path) -> None:
    series = {
        'tachoscope_gpus_held{instance="n1"}': "2x30",
        'tachoscope_gpus_held{instance="n2"}': "1x30",
        'up{job="tachoscope", instance="n1"}': "1x30",
        'up{job="tachoscope", instance="n2"}': "0x30",
        'up{job="node", instance="n3"}': "0x30",
    }
    wanted = {
        "fleet:tachoscope_gpus_held:count": [("fleet:tachoscope_gpus_held:count", 3.0)],
        "fleet:tachoscope_agents_down:sum": [("fleet:tachoscope_agents_down:sum", 1.0)],
    }

    assert found(tmp_path, series, wanted) == {}


# --- what expressions may use of it -------------------------------------------------------------------------------------------


def test_recorded_names_are_in_the_catalogue_with_the_labels_that_they_keep_and_the_values_of_what_they_read() -> None:
    known = catalogue(load_slos([ALERTS / "slos"]))

    of_job = known["job_state:tachoscope_job_time:rate1m"]
    assert of_job.all_labels == {*IDENTITY, "training_job", "state"} and of_job.recorded
    assert of_job.values == {"state": TRAINING_STATES}
    assert known["fleet_state:tachoscope_job_time:rate1m"].values == {"state": TRAINING_STATES}
    assert {one.name for one in RECORDINGS} <= known.keys()


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ('job_state:tachoscope_job_time:rate1m{state="comput"}', "never has state='comput'"),
        ("sum by (rank) (job_state:tachoscope_job_time:rate1m)", "has the label rank"),
        ('job:tachoscope_ranks:sum{namespace="a"}', "has no label namespace"),
        ("job:tachoscope_rank:sum", "is in no catalogue"),
    ],
)
def test_what_an_expression_asks_of_a_recording_that_there_is_not_is_named(expression: str, said: str) -> None:
    assert any(said in fault.what for fault in label_faults(expression, catalogue()))


# --- what is built ------------------------------------------------------------------------------------------------------------


def test_a_build_writes_them_for_prometheus_and_for_its_operator(tmp_path: Path) -> None:
    write(contents([], [], load_policy(ALERTS / "policy.yaml"), Timing(), RECORDINGS, manifests=True), tmp_path)

    rules, manifest = (
        tmp_path / name / end for name, end in (("prometheus", "recordings.rules.yaml"), ("kubernetes", "recordings.yaml"))
    )
    assert all(path.read_text().startswith(HEADER) for path in (rules, manifest))
    made = yaml_text.load(manifest.read_text())
    assert made["spec"]["groups"] == yaml_text.load(rules.read_text())["groups"]
    assert {rule["record"] for group in made["spec"]["groups"] for rule in group["rules"]} == {one.name for one in RECORDINGS}
    assert refused(made) == []


def test_a_build_without_them_removes_their_files(tmp_path: Path) -> None:
    policy = load_policy(ALERTS / "policy.yaml")
    write(contents([], [], policy, Timing(), RECORDINGS), tmp_path)
    write(contents([], [], policy, Timing()), tmp_path)

    assert not list(tmp_path.rglob("recordings*"))


@pytest.mark.parametrize(
    ("timing", "window"),
    [(Timing(), "[1m]"), (Timing(scrape=60.0), "[4m]"), (Timing(interval=1.0, scrape=1.0, scale=0.01), "[4s]")],
)
def test_a_window_holds_four_scrapes_however_rare_they_are(timing: Timing, window: str, tmp_path: Path) -> None:
    (one,) = load(written(tmp_path, ("a:b:rate1m", "sum by (state) (rate(tachoscope_job_time_seconds_total[1m]))")))

    assert window in groups([one], timing)[0]["rules"][0]["expr"]


# --- what is refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([("steps", "sum by (a) (b)")], "not a name of a recording"),
        ([("slo:steps:sum", "sum by (a) (b)")], "not a name of a recording"),
        ([("a:steps:sum", "tachoscope_gpus")], "which labels it keeps"),
        ([("a:steps:sum", "sum (tachoscope_gpus)")], "which labels it keeps"),
        ([("a:steps:sum", "sum without (kind) (tachoscope_gpus)")], "which labels it keeps"),
        ([("a:steps:sum", "sum by (a) (b) / sum by (c) (b)")], "which labels it keeps"),
        ([("a:steps:sum", "sum by (a (b)")], "cannot be read"),
        ([("a:b:sum", "sum by (a) (b)"), ("a:b:sum", "sum by (a) (c)")], "in line 2 already"),
        ([("a:b:sum", "sum by (a) (a:c:sum)"), ("a:c:sum", "sum by (a) (c)")], "not recorded before it"),
        ([("a:b:sum", "sum by (a) (a:b:sum)")], "not recorded before it"),
    ],
)
def test_what_cannot_be_recorded_is_refused_with_its_place(rules: list[tuple[str, str]], said: str, tmp_path: Path) -> None:
    path = written(tmp_path, *rules)

    with pytest.raises(TachoscopeError, match=rf"{path}:\d+: .*{said}"):
        load(path)


@pytest.mark.parametrize(
    ("expr", "said"),
    [
        ("sum by (cluster, kind) (tachoscope_gpuss)", "in no catalogue"),
        ("sum by (cluster, rank) (tachoscope_gpus)", "no series has the label rank"),
        ("sum by (cluster, kind) (rate(tachoscope_gpus[1m]))", "which is a gauge"),
        ("sum by (cluster, state) (rate(tachoscope_job_time_seconds_total[1d]))", "raw series"),
        ("sum by (cluster, training_job) (tachoscope_job_active)", "drops workload_namespace, team"),
    ],
)
def test_the_lint_names_what_can_never_be_in_a_recording(expr: str, said: str, tmp_path: Path) -> None:
    bad = load(written(tmp_path, ("a:b:sum", expr)))

    (problem,) = check_recordings(bad, catalogue(recordings=bad))
    assert problem.severity == "error" and said in problem.what and problem.path == str(tmp_path / "recordings.yaml")


def test_without_a_file_or_a_list_the_message_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "recordings.yaml"
    for content in ("", "rules: []\n", "recordings: 3\n"):
        path.write_text(content)
        with pytest.raises(TachoscopeError, match=rf"{path}.*\(.+\)$"):
            load(path)


def test_a_recording_of_nothing_is_no_group() -> None:
    assert groups([], Timing()) == []
    assert groups([Recording("a:b:sum", "sum by (c) (d)", frozenset({"c"}), ("d",))], Timing())[0]["name"] == GROUP


def test_what_expressions_need_is_what_they_read_and_what_that_reads_in_the_order_of_the_file() -> None:
    names = [one.name for one in needed(["max(fleet_state:tachoscope_job_time:rate1m) > job:tachoscope_steps:sum"], RECORDINGS)]

    assert names == [
        "job_state:tachoscope_job_time:rate1m",
        "fleet_state:tachoscope_job_time:rate1m",
        "job:tachoscope_steps:sum",
    ]
    assert needed(["up == 0"], RECORDINGS) == []


def test_a_step_within_ten_minutes_is_in_eight_minutes_of_what_is_recorded_of_two(tmp_path: Path) -> None:
    steps = "tachoscope_step_seconds_count"
    series = {f'{steps}{{training_job="a", instance="n1"}}': "7x20 8x80", f'{steps}{{training_job="a", instance="n2"}}': "0x100"}
    asked = "max_over_time(job:tachoscope_steps:increase2m[8m]) > 0"  # the step is between 5m and 5m15s

    assert found(tmp_path, series, {f"count({asked})": [("{}", 1.0)]}, at="15m") == {}
    assert found(tmp_path, series, {f"count({asked})": []}, at="15m30s") == {}
