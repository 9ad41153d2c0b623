"""The objectives that are shipped: they load, lint clean, promise what the design says, and become rules that Prometheus takes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers import REPOSITORY
from tachoscope_alerts.compile import event_alerts
from tachoscope_alerts.compile.sli_expressions import bad_events, error_ratio, total_events
from tachoscope_alerts.lint import lint
from tachoscope_alerts.lint.catalogue import catalogue
from tachoscope_alerts.measure.evaluator import selectors
from tachoscope_alerts.spec import policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import DAY, Timing
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector, Slices
from tachoscope_core import yaml_text
from tachoscope_core.metrics.catalogue import BY_NAME as BY_METRIC
from tachoscope_core.metrics.metric import IDENTITY
from tachoscope_core.metrics.training import EFFECTIVE_STATES, TRAINING_STATES

ALERTS = REPOSITORY / "alerts"
SLOS = slo_files.load([ALERTS / "slos"])
BY_NAME = {slo.name: slo for slo in SLOS}
PROMISES = {
    # objective: target, threshold, whether it pages
    "training-goodput": (0.95, None, True),
    "training-step-regularity": (0.99, 1.25, False),
    "training-checkpoint-age": (0.99, 3600.0, True),
    "training-recovery": (0.95, 600.0, False),
    "gang-wait": (0.95, 1800.0, False),
    "training-job-success": (0.99, None, True),
    "training-input-wait": (0.99, 0.1, False),
    "gpu-efficiency": (0.9, 0.8, False),
    "inference-availability": (0.999, None, True),
    "inference-uptime": (0.999, 1.0, False),
    "inference-ttft-p99": (0.99, 2.5, True),
    "inference-ttft-p95": (0.95, 0.5, False),
    "inference-inter-token": (0.99, 0.1, True),
    "inference-admission": (0.99, 0.5, True),
    "inference-joint-attainment": (0.975, None, False),
}


def test_the_objectives_promise_what_they_should_over_four_weeks():
    found = {slo.name: (slo.target, getattr(slo.indicator, "bound", None), slo.pages) for slo in SLOS}

    assert found == PROMISES
    assert {slo.period_days for slo in SLOS} == {28.0}


def test_they_lint_clean_with_the_alerts_the_policy_and_the_runbooks_beside_them():
    around = lint.Surroundings(catalogue(SLOS), policy.load(ALERTS / "policy.yaml").owners, REPOSITORY / "runbooks", 35 * DAY)

    assert [str(problem) for problem in lint.check(SLOS, event_alerts.load(ALERTS / "events"), around)] == []


def test_each_is_described_and_carries_a_source_an_owner_and_a_board():
    for slo in SLOS:
        assert len(slo.description.split()) > 10
        assert slo.title
        assert slo.dashboard
        assert slo.area == ("inference" if slo.name.startswith("inference") else "training")
        kept = ("service",) if slo.name == "inference-uptime" else ("service", "model") if slo.area == "inference" else ()
        assert slo.by == (*IDENTITY, *kept)  # a server is up for all of its models


def test_each_state_of_training_is_good_or_bad_on_purpose_and_only_the_queue_is_not_counted():
    assert set(TRAINING_STATES) - set(EFFECTIVE_STATES) - {"queued"} == {
        *("data_wait", "checkpoint", "compile", "initialisation", "restore", "lost_work", "hung", "unexplained"),
    }
    assert BY_NAME["training-goodput"].indicator == Ratio(
        good=Selector("tachoscope_job_effective_seconds_total"), total=Selector("tachoscope_job_held_seconds_total")
    )


def test_a_job_without_any_verified_checkpoint_is_bad():
    age = BY_NAME["training-checkpoint-age"].indicator
    assert isinstance(age, Slices)

    assert age.missing == "bad"


def test_no_objective_selects_a_series_a_rank_or_gpu_of_which_a_fleet_has_ten_thousand():
    labels = {slo.name: {label for one in selectors(slo) for label in BY_METRIC[one.metric].labels} for slo in SLOS}

    assert {name for name, there in labels.items() if there & {"rank", "gpu", "uuid"}} == set()


def test_a_gpu_is_good_above_its_threshold_and_a_step_up_to_its():
    active, waiting = BY_NAME["gpu-efficiency"].indicator, BY_NAME["training-input-wait"].indicator
    assert isinstance(active, MoreThan)
    assert isinstance(waiting, AtMost)


def test_documents_are_plain_openslo_that_other_tools_read():
    for path in sorted((ALERTS / "slos").glob("*.yaml")):
        document = yaml_text.load(path.read_text())
        spec = document["spec"]
        assert document["metadata"]["name"] == path.stem
        assert all(isinstance(value, str) for value in document["metadata"]["annotations"].values())
        assert isinstance(spec["indicator"]["metadata"]["name"], str)
        assert len(spec["description"]) <= 1050
        if spec["budgetingMethod"] == "Timeslices":
            assert all({"timeSliceTarget", "timeSliceWindow"} <= objective.keys() for objective in spec["objectives"])
            assert "on" in spec["indicator"]["spec"]["thresholdMetric"]["metricSource"]["spec"].get("while", {"on": []})


def test_thresholds_on_histograms_are_boundaries_that_the_mapped_servers_have_too():
    vllm = {
        "inference-ttft-p99": "vllm:time_to_first_token_seconds",
        "inference-ttft-p95": "vllm:time_to_first_token_seconds",
        "inference-inter-token": "vllm:inter_token_latency_seconds",
        "inference-admission": "vllm:request_queue_time_seconds",
    }
    known = catalogue()
    for name, metric in vllm.items():
        indicator = BY_NAME[name].indicator
        assert isinstance(indicator, AtMost)
        assert indicator.bound in known[metric].buckets


def test_the_examples_of_the_page_are_sound(tmp_path: Path):
    gateway, queue, metrics = re.findall(
        r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "guides" / "slos.md").read_text(), flags=re.DOTALL
    )
    (tmp_path / "gateway-availability.yaml").write_text(gateway)
    (tmp_path / "chat-queue.yaml").write_text(queue)
    (tmp_path / "metrics.yaml").write_text(metrics)
    slos = [slo for name in ("gateway-availability", "chat-queue") for slo in slo_files.read(tmp_path / f"{name}.yaml")]
    known = catalogue(slos, [tmp_path / "metrics.yaml"])

    assert [slo.alert for slo in slos] == ["GatewayAvailabilityBurn", "ChatQueueBurn"]
    around = lint.Surroundings(known, policy.load(ALERTS / "policy.yaml").owners, None, 35 * DAY)
    assert lint.check(slos, [], around) == []
    assert known["chat_seconds_bucket"].buckets == (0.5, 1.0, 2.0)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_takes_what_they_become(tmp_path: Path):
    timing = Timing()
    made = [one for slo in SLOS for one in (total_events(slo, timing), bad_events(slo, timing), error_ratio(slo, DAY))]
    rules = [{"record": f"tried:{number}", "expr": expression} for number, expression in enumerate(made)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "tried", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
