"""Objectives of Sloth, Pyrra and OpenSLO with queries become ours, or are refused with file, line, key and the accepted form."""

from pathlib import Path

import pytest

from tachoscope_alerts import promql
from tachoscope_alerts.compile import other_formats
from tachoscope_alerts.compile.planted_series import PlantedStretch, of_events
from tachoscope_alerts.compile.sli_expressions import bad_events, selector, total_events
from tachoscope_alerts.compile.yaml_writer import to_yaml
from tachoscope_alerts.lint.lint import Surroundings, check
from tachoscope_alerts.spec import files, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing, tiers
from tachoscope_alerts.spec.slo import AtMost, MoreThan, Ratio, Selector, Slices
from tachoscope_core.errors import TachoscopeError

TOTAL = 'sum(rate(http_seconds_count{job="shop"}[{{.window}}]))'
BAD = 'sum(rate(http_seconds_count{job="shop",code=~"(5..|429)"}[{{.window}}]))'
SLOTH = f"""\
version: prometheus/v1
service: Shop
labels: {{owner: shop-team}}
slos:
  - name: Requests
    objective: 99.9
    description: Requests that are answered.
    sli:
      events:
        error_query: {BAD}
        total_query: {TOTAL}
    alerting:
      name: ShopErrors
      labels: {{category: availability}}
      page_alert: {{disable: true}}
      ticket_alert: {{labels: {{severity: slack}}}}
"""
SLOTH_RESOURCE = f"""\
apiVersion: sloth.slok.dev/v1
kind: PrometheusServiceLevel
metadata: {{name: shop}}
spec:
  service: shop
  slos:
    - name: requests
      objective: 99.9
      sli: {{events: {{errorQuery: '{BAD}', totalQuery: '{TOTAL}'}}}}
"""
PYRRA = """\
apiVersion: pyrra.dev/v1alpha1
kind: ServiceLevelObjective
metadata: {name: shop-latency, labels: {team: shop-team, prometheus: k8s}}
spec:
  target: "90"
  window: 2w
  indicator:
    latency:
      success: {metric: 'http_seconds_bucket{job="shop",verb=~"GET|LIST",le="0.05"}'}
      total: {metric: 'http_seconds_count{job="shop",verb=~"GET|LIST"}'}
      grouping: [handler]
"""
OPENSLO = f"""\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: shop, displayName: Requests of the shop}}
spec:
  service: shop
  budgetingMethod: Occurrences
  timeWindow: [{{duration: 30d, isRolling: true}}]
  indicator:
    metadata: {{name: requests}}
    spec:
      ratioMetric:
        counter: true
        bad: {{metricSource: {{type: Prometheus, metricSourceRef: main, spec: {{query: '{BAD}'}}}}}}
        total: {{metricSource: {{type: Prometheus, spec: {{query: '{TOTAL}'}}}}}}
  objectives:
    - {{displayName: Good experience, op: gt, target: 0.999}}
    - {{displayName: best, target: 0.9999}}
  alertPolicies: [{{kind: AlertPolicy, metadata: {{name: fast}}}}]
"""
ALPHA = f"""\
apiVersion: openslo/v1alpha
kind: SLO
metadata: {{name: shop, displayName: Requests of the shop}}
spec:
  service: shop
  budgetingMethod: Occurrences
  objectives:
    - target: 0.999
      ratioMetrics:
        good: {{source: prometheus, queryType: promql, query: '{BAD.replace("=~", "!~")}'}}
        total: {{source: prometheus, queryType: promql, query: '{TOTAL}'}}
  timeWindows: [{{count: 30, unit: Day}}]
"""
FAILED = Selector("http_seconds_count", {"job": ("shop",)}, patterns={"code": "(5..|429)"})
ALL = Selector("http_seconds_count", {"job": ("shop",)})


@pytest.fixture
def read(tmp_path: Path):
    def of(text: str):
        path = tmp_path / "objectives.yaml"
        path.write_text(text)
        return slo_files.read(path)

    return of


def test_a_file_of_sloth_gives_its_objective_owner_and_alert_and_names_what_has_no_effect(read):
    (slo,) = read(SLOTH)

    assert (slo.name, slo.target, slo.period_days, slo.owner, slo.alert) == (
        "shop-requests",
        0.999,
        30.0,
        "shop-team",
        "ShopErrors",
    )
    assert slo.indicator == Ratio(ALL, bad=FAILED)
    assert {tier.severity for tier in tiers(slo)} == {"ticket"}
    assert list(slo.not_honoured) == ["slos[0].alerting.labels", "slos[0].alerting.ticket_alert"]


def test_the_rules_read_the_series_that_the_queries_read(read):
    (slo,) = read(SLOTH)
    asked = {series for query in (TOTAL, BAD) for series, _ in promql.read(promql.parse(query.replace("{{.window}}", "5m")))}

    made = {
        series for text in (total_events(slo, Timing()), bad_events(slo, Timing())) for series, _ in promql.read(promql.parse(text))
    }

    assert {_sorted(one) for one in made} == {_sorted(one) for one in asked}


def _sorted(series: promql.Series):
    return series.metric, frozenset(series.matchers)


@pytest.mark.parametrize("text", [SLOTH_RESOURCE, OPENSLO, ALPHA], ids=["sloth's resource", "openslo v1", "openslo v1alpha"])
def test_the_same_objective_is_the_same_however_it_is_written(read, text):
    slo = read(text)[0]

    good = Ratio(ALL, good=Selector(FAILED.metric, FAILED.labels, excluded_patterns=FAILED.patterns))
    assert slo.indicator in (Ratio(ALL, bad=FAILED), good)
    assert (slo.target, slo.period_days, slo.by) == (0.999, 30.0, ("cluster",))


def test_objectives_of_openslo_whose_names_are_sentences_are_numbered_and_policies_are_named_as_without_effect(read):
    slos = read(OPENSLO)

    assert [slo.name for slo in slos] == ["shop-1", "best"]
    assert list(slos[0].not_honoured) == ["spec.alertPolicies", "spec.objectives[0].op"]


def test_a_latency_of_pyrra_is_a_bucket_with_a_budget_for_each_group(read):
    (slo,) = read(PYRRA)

    histogram = Selector("http_seconds", {"job": ("shop",), "verb": ("GET", "LIST")})
    assert (slo.indicator, slo.by) == (AtMost(histogram, 0.05), ("cluster", "handler"))
    assert (slo.target, slo.period_days, slo.owner) == (0.9, 14.0, "shop-team")


def test_a_boolean_gauge_of_pyrra_is_time_of_each_target(read):
    gauge = PYRRA[: PYRRA.index("    latency:")] + "    bool_gauge: {metric: 'up{job=\"shop\"}'}\n"

    (slo,) = read(gauge)

    assert slo.indicator == Slices(Selector("up", {"job": ("shop",)}), ("cluster", "job", "instance"), "gte", 1.0, reduce="min")


COUNT, BUCKET = "sum(rate(http_seconds_count[5m]))", 'sum(rate(http_seconds_bucket{le="0.4"}[5m]))'


@pytest.mark.parametrize(
    ("bad", "total", "indicator"),
    [
        (f"({COUNT} - {BUCKET})", COUNT, AtMost(Selector("http_seconds"), 0.4)),
        (BUCKET, COUNT, MoreThan(Selector("http_seconds"), 0.4)),
        (f"{BAD} or on() vector(0)", TOTAL, Ratio(ALL, bad=FAILED)),
        (f"{TOTAL} - {BAD}", TOTAL, Ratio(ALL, good=FAILED)),
    ],
    ids=["count without a bucket", "a bucket is bad", "or zero", "all without some"],
)
def test_queries_that_say_the_same_are_the_same_indicator(read, bad, total, indicator):
    (slo,) = read(SLOTH.replace(BAD, f"'{bad}'").replace(f"total_query: {TOTAL}", f"total_query: '{total}'"))

    assert slo.indicator == indicator


EVENTS = f"events:\n        error_query: {BAD}\n        total_query: {TOTAL}"
REFUSED = {
    "a subquery": (BAD, "sum_over_time((count(x < 1))[5m:])", ("error_query", "not a sum of rates")),
    "no PromQL": (BAD, "sum(rate(", ("error_query", "not valid PromQL")),
    "a ratio": (
        f"events:\n        error_query: {BAD}\n        total_query: {TOTAL}",
        "raw: {error_ratio_query: x}",
        ("sli.raw", "ratio"),
    ),
    "other labels": (BAD, BAD.replace("sum(", "sum by (code) ("), ("error_query", "other labels")),
    "without": (BAD, BAD.replace("sum(", "sum without (code) ("), ("error_query", "without")),
    "irate": (BAD, BAD.replace("rate", "irate"), ("error_query", "not a sum of rates")),
    "increase and rate": (BAD, BAD.replace("rate", "increase"), ("error_query", "same function")),
    "all buckets": (BAD, "sum(rate(http_seconds_bucket[5m]))", ("error_query", "buckets")),
    "another histogram": (BAD, 'sum(rate(other_bucket{le="1"}[5m]))', ("error_query", "other")),
    "a regular expression": (BAD, 'sum(rate(x{code=~"5["}[5m]))', ("error_query", "5[")),
    "a target above 100": ("99.9", "101", ("objective", "101")),
    "another version": ("prometheus/v1", "prometheus/v2", ("version", "prometheus/v1")),
    "an unknown key": ("description", "descripton", ("descripton", "description")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_evaluated_is_refused_with_its_place_and_reason(read, case):
    old, new, said = REFUSED[case]
    assert old in SLOTH

    with pytest.raises(TachoscopeError) as caught:
        read(SLOTH.replace(old, f"'{new}'" if old == BAD else new))

    assert all(part in str(caught.value) for part in ("objectives.yaml:", *said))


def test_planted_events_of_a_pattern_are_inside_and_outside_of_it(read):
    (slo,) = read(SLOTH)

    series = [one["series"] for one in of_events(slo, [PlantedStretch(10, 100, 1)])]

    assert len(series) == 2
    matched = [FAILED.matches(_labels(one)) for one in series]
    assert matched == [True, False]
    assert all(ALL.matches(_labels(one)) for one in series)


def _labels(series: str) -> dict[str, str]:
    parsed = promql.parse(series)
    assert isinstance(parsed, promql.Series)
    return {one.label: one.value for one in parsed.matchers}


@pytest.mark.parametrize("write", [other_formats.openslo, other_formats.pyrra], ids=["openslo", "pyrra"])
def test_a_shipped_objective_that_is_exported_is_read_as_the_same_one(read, write):
    written, refused = {}, set()
    for slo in slo_files.load([files.path_of("slos")]):
        try:
            written[slo.name] = read(to_yaml(write(slo)))[0], slo
        except TachoscopeError:
            refused.add(slo.name)

    assert refused
    assert all(
        (one.indicator, one.by, one.target, one.period_days) == (slo.indicator, slo.by, slo.target, slo.period_days)
        for one, slo in written.values()
    )
    assert all(isinstance(slo.indicator, Ratio | AtMost) for _, slo in written.values()) or write is other_formats.openslo


def test_a_pattern_is_written_as_it_was_read():
    assert selector(FAILED) == 'http_seconds_count{job="shop",code=~"(5..|429)"}'


def test_an_objective_without_alerts_needs_neither_owner_nor_runbook(read, tmp_path):
    (slo,) = read(SLOTH.replace("{labels: {severity: slack}}", "{disable: true}").replace("shop-team", "somebody"))

    found = check([slo], [], Surroundings({}, ["shop-team"], tmp_path, 40 * 86400))

    assert {problem.severity for problem in found} == {"note"}
