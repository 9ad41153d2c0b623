"""What can never be in an expression is found, and what can be is left alone; Prometheus itself is asked whether that is so."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tachoscope_alerts.lint.catalogue import KnownSeries
from tachoscope_alerts.lint.label_flow import faults, spellings

KNOWN = {
    known.name: known
    for known in (
        KnownSeries("up", "gauge", frozenset(), "test"),
        KnownSeries("gpu_temperature", "gauge", frozenset({"gpu", "sensor"}), "test", {"sensor": ("gpu", "memory")}),
        KnownSeries("gpu_errors_total", "counter", frozenset({"gpu", "kind"}), "test"),
        KnownSeries("job_running", "gauge", frozenset({"training_job"}), "test"),
        KnownSeries("job_info", "gauge", frozenset({"gpu", "training_job", "mig"}), "test"),
        KnownSeries("requests_total", "counter", frozenset({"model", "outcome"}), "test", {"outcome": ("ok", "failed", "shed")}),
        KnownSeries("wait_seconds", "histogram", frozenset({"model"}), "test", buckets=(0.5, 1.0, 600.0)),
        KnownSeries("wait_seconds_bucket", "counter", frozenset({"model", "le"}), "test", buckets=(0.5, 1.0, 600.0)),
        KnownSeries("wait_seconds_count", "counter", frozenset({"model"}), "test"),
        KnownSeries("ALERTS", "gauge", frozenset({"alertname", "alertstate"}), "test", {"alertstate": ("firing",)}, any_label=True),
        KnownSeries("slo:error:ratio", "gauge", frozenset({"slo", "window"}), "test", {"slo": ("one", "two")}, recorded=True),
    )
}

FINE = [
    'up{job="a"} == 0',
    "sum by (instance, gpu) (rate(gpu_errors_total[5m])) > 0",
    "gpu_temperature * on (gpu, instance) group_left (training_job) job_info",
    'sum by (model) (rate(requests_total{outcome=~"failed|shed"}[5m])) / sum by (model) (rate(requests_total[5m]))',
    'rate(wait_seconds_bucket{le="0.5"}[5m])',
    'rate(wait_seconds_bucket{le=~"600(\\\\.0)?"}[5m])',
    'rate(wait_seconds_bucket{le="+Inf"}[5m])',
    "histogram_quantile(0.9, sum by (le, model) (rate(wait_seconds_bucket[5m])))",
    'slo:error:ratio{slo="one",window="1h"} > 0.1 and ignoring (window) slo:error:ratio{slo="one",window="5m"} > 0.1',
    "(sum(up) or vector(0)) < 3",
    "absent(job_running)",
    'job_running unless on (training_job) ALERTS{alertname="Other",model="m",alertstate="firing"}',
    'absent(up{job="a"}) * on (job) up{job="a"}',
    "time() - job_running > 5",
    "count without (gpu) (gpu_temperature) == 2",
    "label_replace(gpu_temperature, 'card', '$1', 'gpu', '(.*)') * on (card) label_replace(job_info, 'card', '$1', 'gpu', '(.*)')",
    "max by (gpu) (gpu_temperature) > scalar(max(gpu_temperature))",
    'count_values("value", up) * on (value) count_values("value", up)',
    "topk(3, gpu_temperature) * on (sensor) topk(1, gpu_temperature)",
    "delta(gpu_temperature[5m]) > 3",
    'gpu_temperature{sensor=~"mem.*"}',
    'sum by (gpu, training_job) (job_info{mig=""}) * sum by (gpu, training_job) (job_info)',
]

FAULTY = {
    "upp == 0": "metric upp is in no catalogue",
    "rate(request_total[5m])": "metric request_total is in no catalogue",
    'gpu_temperature{card="0"}': "gpu_temperature has no label card",
    'gpu_temperature{sensor="hbm"}': "gpu_temperature never has sensor='hbm'",
    'requests_total{outcome=~"failed|refused"}': "requests_total never has outcome='refused'",
    'requests_total{outcome!="okay"}': "requests_total never has outcome='okay'",
    "sum by (card) (gpu_temperature)": "sum by (card): no series has the label card",
    "sum without (card) (gpu_temperature)": "sum without (card): no series has the label card",
    "sum by (gpu) (sum by (sensor) (gpu_temperature))": "sum by (gpu): no series has the label gpu",
    "gpu_temperature * on (training_job) job_running": "on (training_job): no series has the label training_job",
    "gpu_temperature > job_running": "the sides of `>` never match: only one has gpu, sensor, training_job",
    "sum by (gpu) (gpu_temperature) / sum(gpu_temperature)": "the sides of `/` never match: only one has gpu",
    "gpu_temperature and on (gpu) job_info unless job_running": "the sides of `unless` never match",
    "gpu_temperature * on (gpu) group_left (model) job_info": "group_left (model): no series has the label model",
    'slo:error:ratio{window="1h"} > 0.1 and ignoring (windw) slo:error:ratio': "ignoring (windw): no series",
    'slo:error:ratio{slo="three"}': "slo:error:ratio never has slo='three'",
    'slo:error:ratio{job="x"}': "slo:error:ratio has no label job",
    'ALERTS{alertstate="fires"}': "ALERTS never has alertstate='fires'",
    "rate(wait_seconds[5m])": "wait_seconds is a histogram",
    'rate(wait_seconds_bucket{le="2"}[5m])': "no bucket of wait_seconds_bucket ends at '2'",
    'rate(wait_seconds_bucket{le="600"}[5m])': "le='600' misses the same bucket of exporters that write it otherwise",
    'rate(wait_seconds_bucket{le="600.0"}[5m])': "le='600.0' misses the same bucket",
    "histogram_quantile(0.9, rate(wait_seconds_count[5m]))": "histogram_quantile: no series has the label le",
    "histogram_quantile(0.9, sum by (model) (rate(wait_seconds_bucket[5m])))": "no series has the label le",
    "rate(gpu_temperature[5m])": "rate of gpu_temperature, which is a gauge",
    "label_replace(gpu_temperature, 'a', '$1', 'card', '(.*)')": "label_replace: no series has the label card",
    "absent(up) * on (instance) up": "on (instance): no series has the label instance",
}


@pytest.mark.parametrize("expression", FINE)
def test_what_can_be_is_left_alone(expression: str):
    assert faults(expression, KNOWN) == []


@pytest.mark.parametrize("expression", FAULTY)
def test_what_can_never_be_is_told(expression: str):
    found = faults(expression, KNOWN)

    assert [fault.what.startswith(FAULTY[expression]) or FAULTY[expression] in fault.what for fault in found] == [True]
    assert found[0].fix


def test_a_name_that_is_near_is_suggested():
    (fault,) = faults("rate(request_total[5m])", KNOWN)

    assert "requests_total" in fault.fix


def test_what_reads_an_unknown_metric_is_not_blamed_for_its_labels():
    assert [fault.what for fault in faults("sum by (card) (other) * on (slot) other", KNOWN)] == [
        "metric other is in no catalogue",
        "on (slot): no series has the label slot",
    ]


def test_whole_bounds_are_written_in_two_ways():
    assert spellings(600.0) == ("600", "600.0")
    assert spellings(0.5) == ("0.5",)
    assert spellings(float("inf")) == ("+Inf",)


# What is faulty and its correction, on series that exist: Prometheus answers the one with nothing, the other with something.
PAIRS = [
    ("gpu_temperature > job_running", "gpu_temperature > on (instance) group_left job_running"),
    (
        "sum by (gpu) (gpu_temperature) / sum(gpu_temperature)",
        "sum by (gpu) (gpu_temperature) / on () group_left sum(gpu_temperature)",
    ),
    ("absent(up) * on (instance) up", "up * on (instance) up"),
    ('wait_seconds_bucket{le="600"}', 'wait_seconds_bucket{le=~"600(\\\\.0)?"}'),
    ("histogram_quantile(0.9, wait_seconds_count)", "histogram_quantile(0.9, wait_seconds_bucket)"),
]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_answers_faulty_expressions_with_nothing(tmp_path: Path):
    series = {
        'gpu_temperature{gpu="0",sensor="gpu",instance="n1"}': "80",
        'job_running{training_job="a",instance="n1"}': "1",
        'up{instance="n1"}': "1",
        'wait_seconds_bucket{model="m",le="600.0",instance="n1"}': "3",
        'wait_seconds_bucket{model="m",le="+Inf",instance="n1"}': "3",
        'wait_seconds_count{model="m",instance="n1"}': "3",
    }
    for faulty, right in PAIRS:
        assert faults(faulty, KNOWN)
        assert faults(right, KNOWN) == []
    wanted = [
        {"expr": f"count({faulty}) or vector(0)", "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 0}]}
        for faulty, _ in PAIRS
    ]
    wanted += [
        {"expr": f"vector(1) and count({right}) > 0", "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for _, right in PAIRS
    ]
    inputs = [{"series": name, "values": f"{value}x5"} for name, value in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": wanted}
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
