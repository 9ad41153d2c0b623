"""Expressions are taken apart as Prometheus does it: promtool accepts and refuses the same."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tachoscope_alerts import promql
from tachoscope_alerts.promql import Aggregation, Binary, Call, Constant, Matcher, Series, Window
from tachoscope_core.errors import TachoscopeError
from trying import each

GOOD = {
    # expression: the series that it reads, each with its window in seconds
    "up": [("up", 0)],
    "up == 0": [("up", 0)],
    "-up ^ 2 + 1": [("up", 0)],
    "(up)": [("up", 0)],
    "1 + 2 > bool 2": [],
    "0x1F + .5e3 + 1. + Inf - NaN": [],
    'up{job="a", instance=~"b.*",}': [("up", 0)],
    "up{}": [("up", 0)],
    '{__name__=~"up|down"}': [("", 0)],
    "rate(vllm:num_preemptions_total[5m])": [("vllm:num_preemptions_total", 300)],
    "rate(m[1h30m])": [("m", 5400)],
    "rate(m[500ms])": [("m", 0.5)],
    "sum by (a, b) (rate(m[1m]))": [("m", 60)],
    "sum(rate(m[1m])) by (a)": [("m", 60)],
    "sum without () (m)": [("m", 0)],
    "SUM(m)": [("m", 0)],
    "topk(3, m)": [("m", 0)],
    'count_values("version", m)': [("m", 0)],
    "quantile by (a) (0.9, m)": [("m", 0)],
    "max_over_time(rate(m[5m])[1h:30s])": [("m", 3900)],
    "max_over_time(m[1d:])": [("m", 86400)],
    "max_over_time((a + b)[2h:1m] offset 1w)": [("a", 7200), ("b", 7200)],
    "m offset 5m": [("m", 0)],
    "m offset -5m": [("m", 0)],
    "rate(m[5m] offset 1h)": [("m", 300)],
    "m @ 1609746000": [("m", 0)],
    "rate(m[5m] @ end())": [("m", 300)],
    "a / on (x) b": [("a", 0), ("b", 0)],
    "a * ignoring (x, y) group_left (z) b": [("a", 0), ("b", 0)],
    "a * on (x) group_right b": [("a", 0), ("b", 0)],
    "a > bool on (x) b": [("a", 0), ("b", 0)],
    "a and b or c unless on () d": [("a", 0), ("b", 0), ("c", 0), ("d", 0)],
    "a and\n# why\nb": [("a", 0), ("b", 0)],
    "vector(1)": [],
    "time() - m": [("m", 0)],
    "absent(up{job='x'})": [("up", 0)],
    "label_replace(up, 'a', `$1`, \"b\", '(.*)')": [("up", 0)],
    "histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))": [("m_bucket", 300)],
    'm{le=~"600(\\\\.0)?"}': [("m", 0)],
    'm{by="x", on="y"}': [("m", 0)],
    "sum by (on, by) (m)": [("m", 0)],
    "count": [("count", 0)],
    "a atan2 b": [("a", 0), ("b", 0)],
}
BAD = [
    "",
    "sum(",
    "up{job}",
    'up{job=="a"}',
    "up{job=a}",
    "rate(up[5m)",
    "rate(sum(up)[5m])",
    "up up",
    "up + ",
    "by (a) (up)",
    "sum by a (up)",
    "sum()",
    'up{job="a}',
    "up offset",
    "up @ now",
    "a on (x) b",
    "up)",
    "up ! 1",
    "a $ b",
]


@each("text", GOOD)
def test_an_expression_reads_these_series_over_these_windows(text: str):
    assert [(series.metric, seconds) for series, seconds in promql.read(promql.parse(text))] == GOOD[text]


@each("text", BAD)
def test_what_is_not_an_expression_is_refused_with_the_reason(text: str):
    with pytest.raises(TachoscopeError, match=r"^the expression .* is not valid: \w+"):
        promql.parse(text)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_accepts_and_refuses_the_same(tmp_path: Path):
    rules = [{"record": f"tried:{number}", "expr": text} for number, text in enumerate(GOOD)]
    assert promtool(tmp_path, rules).returncode == 0, promtool(tmp_path, rules).stderr

    refused = promtool(tmp_path, [{"record": f"tried:{number}", "expr": text} for number, text in enumerate(BAD)])
    assert refused.returncode != 0
    assert [f'"tried:{number}"' in refused.stderr for number in range(len(BAD))] == [True] * len(BAD)


def promtool(folder: Path, rules: list[dict[str, str]]) -> subprocess.CompletedProcess[str]:
    path = folder / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "tried", "rules": rules}]}))
    return subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)


def test_operators_bind_as_in_prometheus():
    a, b, c = (Series(name) for name in "abc")

    assert promql.parse("a + b * c") == Binary("+", a, Binary("*", b, c))
    assert promql.parse("a - b - c") == Binary("-", Binary("-", a, b), c)
    assert promql.parse("a ^ b ^ c") == Binary("^", a, Binary("^", b, c))
    assert promql.parse("-a ^ b * c") == Binary("*", Binary("^", a, b), c)  # a sign changes neither series nor labels
    assert promql.parse("a or b and c") == Binary("or", a, Binary("and", b, c))
    assert promql.parse("a > b == c") == Binary("==", Binary(">", a, b), c)
    assert promql.parse("(a or b) and c") == Binary("and", Binary("or", a, b), c)


def test_matching_grouping_and_escapes_are_kept():
    assert promql.parse("a * ignoring (x) group_left (y) b") == Binary(
        "*", Series("a"), Series("b"), ("x",), ignoring=True, many="left", include=("y",)
    )
    assert promql.parse("sum without (x) (a)") == Aggregation("sum", (Series("a"),), ("x",), without=True)
    assert promql.parse("sum(a) by (x)") == Aggregation("sum", (Series("a"),), ("x",))
    assert promql.parse(r'm{le=~"600(\\.0)?"}') == Series("m", (Matcher("le", "=~", r"600(\.0)?"),))
    assert promql.parse("rate(m[5m])") == Call("rate", (Window(Series("m"), 300.0),))
    assert promql.parse("0x10") == Constant(16.0)
    assert promql.parse("'x\\n'") == Constant("x\n")


def test_an_expression_nested_beyond_all_measure_is_refused_and_no_crash():
    for text in ("(" * 20_000 + "a" + ")" * 20_000, "(" * 1_500 + "a" + ")" * 1_500, "a" + " * a" * 1_500, "a" + " * a" * 20_000):
        with pytest.raises(TachoscopeError, match="nested too deeply"):
            promql.parse(text)
