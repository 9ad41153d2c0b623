"""The PromQL of the runbooks can be pasted: it parses, and every metric of ours and of vLLM's is one that there is."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers import REPOSITORY
from tachoscope_core.metric import PROMETHEUS_LABELS
from tachoscope_core.names import METRICS

PAGES = {page.stem: page.read_text() for page in sorted((REPOSITORY / "runbooks").glob("*.md"))}
QUERIES = {
    name: [line for line in "".join(blocks).splitlines() if not line.startswith("#")]
    for name, text in PAGES.items()
    if (blocks := re.findall(r"```promql\n(.*?)```", text, flags=re.DOTALL))
}
VLLM_PAGE = (
    Path(os.environ.get("TACHOSCOPE_TEST_DATA") or REPOSITORY.parent / "shared" / "data") / "serving" / "vllm_0.32.0_metrics.txt"
)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_prometheus_takes_the_queries_as_pasted(tmp_path: Path) -> None:
    groups = [
        {"name": name, "rules": [{"record": f"pasted:{name.replace('-', '_')}:{number}", "expr": query} for number, query in enumerate(queries)]}
        for name, queries in QUERIES.items()
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f"{sum(map(len, QUERIES.values()))} rules found" in done.stdout


@pytest.mark.parametrize("name", QUERIES)
def test_the_metrics_of_ours_in_a_query_are_in_the_catalogue_with_their_labels(name: str) -> None:
    labels_of = {series: {*metric.labels} for metric in METRICS for series in series_of(metric.name, metric.type)}
    for query in QUERIES[name]:
        filled = re.sub(r"\$\{\w+\}", "label", query)
        used = re.findall(r"\b(tachoscope_\w+)(?:\{(.*?)\})?", filled)
        for series, matchers in used:
            assert series in labels_of
            assert set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', matchers)) <= labels_of[series] | PROMETHEUS_LABELS, query
        # Both sides of a join, or of an `or`, have labels of their own.
        several = re.search(r"\b(on|or|ignoring)\b", filled)
        known = (set.union if several else set.intersection)(*(labels_of[series] for series, _ in used)) if used else set()
        for labels in re.findall(r"by \((.*?)\)", filled) if used else []:
            assert {label.strip() for label in labels.split(",")} <= known | PROMETHEUS_LABELS, query


@pytest.mark.skipif(not VLLM_PAGE.exists(), reason=f"no {VLLM_PAGE} (set TACHOSCOPE_TEST_DATA)")
@pytest.mark.parametrize("name", QUERIES)
def test_the_metrics_of_vllm_in_a_query_are_on_its_real_page(name: str) -> None:
    types = re.findall(r"^# TYPE (vllm:\w+) (\w+)", VLLM_PAGE.read_text(), flags=re.MULTILINE)
    known = {series for metric, kind in types for series in series_of(metric, kind)}

    assert {series for query in QUERIES[name] for series in re.findall(r"vllm:\w+", query)} <= known


def series_of(metric: str, kind: str) -> list[str]:
    return [f"{metric}_{part}" for part in ("bucket", "sum", "count")] if kind == "histogram" else [metric]


def test_every_page_on_inference_has_queries() -> None:
    assert {"queue_saturation", "kv_pressure", "prefill_interference", "decode_bandwidth", "cold_start"} <= QUERIES.keys()
