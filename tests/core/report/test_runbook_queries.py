"""The PromQL of the runbooks of classes can be pasted: it parses, and every metric of ours and of vLLM's is one that there is."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers import REPOSITORY
from tachoscope_core.metrics.serving import SERVING_METRICS
from tachoscope_core.report.taxonomy import BY_SLUG

PAGES = {slug: (REPOSITORY / "runbooks" / f"{slug}.md").read_text() for slug in BY_SLUG}
QUERIES = {
    name: [line for line in "".join(blocks).splitlines() if not line.startswith("#")]
    for name, text in PAGES.items()
    if (blocks := re.findall(r"```promql\n(.*?)```", text, flags=re.DOTALL))
}
VLLM_PAGE = (
    Path(os.environ.get("TACHOSCOPE_TEST_DATA") or REPOSITORY.parent / "shared" / "data") / "serving" / "vllm_0.32.0_metrics.txt"
)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize("name", QUERIES)
def test_prometheus_takes_the_queries_as_pasted(name: str, tmp_path: Path) -> None:
    rules = [{"record": f"pasted:{number}", "expr": query} for number, query in enumerate(QUERIES[name])]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize("name", QUERIES)
def test_the_metrics_of_ours_in_a_query_are_in_the_catalogue_with_their_labels(name: str) -> None:
    known = {series: metric for metric in SERVING_METRICS for series in series_of(metric.name, metric.type)}
    for query in QUERIES[name]:
        used = re.findall(r"\b(tachoscope_\w+)(?:\{(\w+)=)?", query)
        for series, label in used:
            assert series in known
            assert label in {"", *known[series].labels}
        for labels in re.findall(r"by \((.*?)\)", query) if used else []:
            assert {label.strip() for label in labels.split(",")} - {"le"} <= set.intersection(
                *(set(known[s].labels) for s, _ in used)
            )


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
