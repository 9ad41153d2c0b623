"""What the catalogue says of series is what the programs serve: ours by their own catalogue, others by their real pages."""

import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers import REPOSITORY
from processes import free_port
from tachoscope_alerts.compile import sli_expressions
from tachoscope_alerts.lint.catalogue import KnownSeries, catalogue
from tachoscope_alerts.spec.slo import AtMost, Selector, Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.catalogue import METRICS, TRAINING_STATES
from tachoscope_core.metrics.serving import FIRST_TOKEN_BUCKETS, OUTCOMES

VLLM_PAGE = (
    Path(os.environ.get("TACHOSCOPE_TEST_DATA") or REPOSITORY.parent / "shared" / "data") / "serving" / "vllm_0.32.0_metrics.txt"
)
PATIENCE_SECONDS = 120.0


def test_all_of_our_metrics_are_known_with_their_labels_and_states():
    known = catalogue()

    for metric in METRICS:
        assert known[metric.name].labels == set(metric.labels)
        assert known[metric.name].type == metric.type
    assert known["tachoscope_time_seconds_total"].values["state"] == TRAINING_STATES
    assert known["tachoscope_requests_total"].values["outcome"] == OUTCOMES


def test_a_histogram_is_known_by_its_parts_and_its_buckets_by_their_bounds():
    known = catalogue()

    bucket = known["tachoscope_request_first_token_seconds_bucket"]
    assert bucket.labels == {"service", "model", "version", "workload_namespace", "le"}
    assert bucket.buckets == FIRST_TOKEN_BUCKETS
    assert known["tachoscope_request_first_token_seconds_count"].labels == bucket.labels - {"le"}
    assert {known[f"tachoscope_request_first_token_seconds{part}"].type for part in ("_bucket", "_count", "_sum")} == {"counter"}


def test_values_of_labels_are_given_of_labels_that_there_are():
    for known in catalogue().values():
        assert set(known.values) <= known.labels


def test_series_have_the_labels_of_a_scrape_and_recorded_ones_only_those_of_their_rules():
    slo = Slo("one", "", "", "inference", AtMost(Selector("m"), 1.0), ("model",), 0.99, 28.0, "OneBurn", True, "me", "judgement")
    known = catalogue([slo])

    assert {"job", "instance"} <= known["up"].all_labels
    assert known[sli_expressions.ERROR_RATIO].all_labels == {"slo", "area", "model", "window"}
    assert known[sli_expressions.BAD].all_labels == {"slo", "area", "model"}
    assert known[sli_expressions.BAD].values == {"slo": ("one",)}


def test_metrics_of_a_users_own_are_added_from_a_file(tmp_path: Path):
    path = tmp_path / "chat.yaml"
    path.write_text(
        "source: https://example.com\nlabels: [model]\nmetrics:\n"
        "  - {name: chat_total, type: counter, labels: [model, result], values: {result: [ok, failed]}}\n"
        "  - {name: chat_seconds, type: histogram, buckets: [2, 0.5]}\n"
    )
    known = catalogue(own=[path])

    assert known["chat_total"] == KnownSeries(
        "chat_total", "counter", frozenset({"model", "result"}), "https://example.com", {"result": ("ok", "failed")}
    )
    assert known["chat_seconds_bucket"].labels == {"model", "le"}
    assert known["chat_seconds_bucket"].buckets == (0.5, 2.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("metrics: [", "is not a catalogue of metrics"),
        ("- a", "is not a catalogue of metrics"),
        ("source: x\nmetrics: [{name: a, type: summary}]", r"\$\.metrics\[0\]\.type"),
        ("source: x\nmetrics: [{name: a, type: gauge, lables: [b]}]", "lables"),
        ("source: x\nmetrics: [{name: a-b, type: gauge}]", "'a-b' is not a metric's name"),
        ("source: x\nmetrics: [{name: a, type: gauge, values: {b: [c]}}]", "'a' gives values of b, not one of its labels"),
        ("source: x\nmetrics: [{name: a, type: gauge}, {name: a, type: counter}]", "declares a twice"),
    ],
)
def test_a_file_that_is_no_catalogue_is_refused_by_its_name(text: str, said: str, tmp_path: Path):
    path = tmp_path / "own.yaml"
    path.write_text(text)

    with pytest.raises(TachoscopeError, match=said) as caught:
        catalogue(own=[path])
    assert str(path) in str(caught.value)


def test_a_metric_in_two_files_is_refused_and_one_of_ours_may_be_given_other_buckets(tmp_path: Path):
    for name in ("one", "other"):
        (tmp_path / f"{name}.yaml").write_text(
            "source: x\nmetrics: [{name: tachoscope_request_first_token_seconds, type: histogram, buckets: [3]}]"
        )

    known = catalogue(own=[tmp_path / "one.yaml"])
    assert known["tachoscope_request_first_token_seconds_bucket"].buckets == (3.0,)
    with pytest.raises(TachoscopeError, match=r"other\.yaml declares tachoscope_request_first_token_seconds\w*, and so does .*one"):
        catalogue(own=[tmp_path / "one.yaml", tmp_path / "other.yaml"])


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(TachoscopeError, match=r"none\.yaml cannot be read"):
        catalogue(own=[tmp_path / "none.yaml"])


# --- what others really serve -------------------------------------------------------------------------------------------------


def declared(prefix: str) -> dict[str, KnownSeries]:
    """Return what is declared of the names that a program itself serves, in versions as old as Debian's."""
    return {name: known for name, known in catalogue().items() if name.startswith(prefix) and not known.since}


def served(page: str) -> dict[str, set[str]]:
    """Return the labels of each series of a page."""
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", page, flags=re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def assert_served(prefix: str, page: str) -> None:
    there, types = served(page), dict(re.findall(r"^# TYPE (\S+) (\S+)", page, flags=re.MULTILINE))
    for name, known in declared(prefix).items():
        if known.type == "histogram":
            assert types[name] == "histogram"
            bounds = re.findall(rf'^{name}_bucket\{{.*le="([^"+]+)"', page, flags=re.MULTILINE)
            assert tuple(dict.fromkeys(map(float, bounds))) == known.buckets
        else:
            assert known.labels <= there[name], name
        assert types.get(name, known.type) == known.type


@pytest.mark.skipif(not VLLM_PAGE.exists(), reason=f"no {VLLM_PAGE} (set TACHOSCOPE_TEST_DATA)")
def test_what_is_declared_of_vllm_is_on_its_real_page():
    assert_served("vllm:", VLLM_PAGE.read_text())


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
def test_what_is_declared_of_prometheus_is_on_its_real_page(tmp_path: Path):
    port = free_port()
    (tmp_path / "rules.yml").write_text('groups: [{name: g, interval: 1s, rules: [{record: "a:b", expr: "1"}]}]')
    targets = f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{free_port()}']}}]}}]}}"
    (tmp_path / "p.yml").write_text(f"rule_files: [rules.yml]\n{targets}\n")
    words = (f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}")
    with running("prometheus", *words):
        page = page_with(f"http://127.0.0.1:{port}/metrics", declared("prometheus_"))
    assert_served("prometheus_", page)
    assert "process_start_time_seconds" in served(page)


@pytest.mark.skipif(shutil.which("prometheus-alertmanager") is None, reason="needs prometheus-alertmanager")
def test_what_is_declared_of_alertmanager_is_on_its_real_page(tmp_path: Path):
    port = free_port()
    (tmp_path / "a.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    words = (f"--config.file={tmp_path}/a.yml", f"--storage.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}")
    with running("prometheus-alertmanager", *words, "--cluster.listen-address=127.0.0.1:0"):
        page = page_with(f"http://127.0.0.1:{port}/metrics", declared("alertmanager_"))
    assert_served("alertmanager_", page)


@pytest.mark.skipif(shutil.which("prometheus-node-exporter") is None, reason="needs prometheus-node-exporter")
def test_what_is_declared_of_the_node_exporter_is_on_its_real_page():
    port = free_port()
    with running("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"):
        page = page_with(f"http://127.0.0.1:{port}/metrics", {"node_load1"})
    there = served(page)
    # A container has no disks or no clock of its own: what is there has the labels that are declared.
    assert len(declared("node_").keys() & there.keys()) > 8
    assert [name for name, known in declared("node_").items() if name in there and not known.labels <= there[name]] == []


@contextmanager
def running(*command: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def page_with(url: str, names: Iterable[str]) -> str:
    """Return a program's page once it has all names, or as it is when patience ends."""
    until = time.monotonic() + PATIENCE_SECONDS
    page = ""
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                page = answer.read().decode()
        except OSError:
            page = ""
        if set(names) <= served(page).keys():
            break
        time.sleep(0.1)
    return page
