"""The same samples give the same numbers in the store's evaluator and in a real Prometheus into which they were backfilled.

Backfilling knows no staleness markers, so values of series that vanished hold for 5 minutes on both sides here; that they end at
once where the store knows it is shown in test_evaluate.py.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from processes import ask_prometheus, prometheus, wait_for
from slo_making import ACTIVITY, AGE, BAD, BEGIN, GOOD, LATENCY, USE, openmetrics, slo, write_store
from slo_planting import plant
from tachoscope_alerts.compile.sli_expressions import BAD as BAD_EVENTS
from tachoscope_alerts.compile.sli_expressions import TOTAL as TOTAL_EVENTS
from tachoscope_alerts.compile.sli_expressions import bad_events, total_events
from tachoscope_alerts.lint import series_there
from tachoscope_alerts.measure.evaluator import bad_and_total, needed_metrics
from tachoscope_alerts.measure.events import Ask, Window
from tachoscope_alerts.measure.from_prometheus import PrometheusSource
from tachoscope_alerts.measure.from_samples import Reader, SamplesSource, store_reader
from tachoscope_alerts.measure.stored_samples import Samples
from tachoscope_alerts.report.report import report
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import AtMost, Ratio, Selector, Slo
from tachoscope_core.storage.store import Store

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")

SECONDS = 5 * 3600.0
START, END = BEGIN + 5400.0, BEGIN + SECONDS - 600.0
"""After the time that gates look back, and before the end of the samples."""
TIMING = Timing()
KINDS = {
    "bad": slo(BAD, by=("service", "model"), name="bad"),
    "bad-of-all": slo(BAD, name="bad-of-all"),
    "good": slo(GOOD, by=("service",), name="good"),
    "latency": slo(LATENCY, by=("service", "model"), name="latency"),
    "activity": slo(ACTIVITY, by=("training_job",), name="activity"),
    "age": slo(AGE, name="age"),
    "age-ignored": slo(replace(AGE, missing="ignored"), name="age-ignored"),
    "age-by-job": slo(AGE, by=("training_job",), name="age-by-job"),
    "use": slo(USE, name="use"),
    "worst-use": slo(replace(USE, by=("gpu",), reduce="max", comparison="gt"), by=("gpu",), name="worst-use"),
}
RECORDED = slo(BAD, by=("service",), name="recorded")
SHIPPED = {one.name: one for one in slo_files.load([Path(__file__).parents[3] / "alerts" / "slos"])}
ALL = {**KINDS, **{f"shipped-{name}": one for name, one in SHIPPED.items()}}


def without_ends(read: Reader) -> Reader:
    """Return a reader that, as a backfilled Prometheus, does not know that a series is gone."""

    def reading(*asked: object) -> Samples:
        samples = read(*asked)  # type: ignore[arg-type]
        ends = np.empty(0, dtype=np.int64)
        return replace(
            samples, by_metric={name: [replace(one, ends_ms=ends) for one in some] for name, some in samples.by_metric.items()}
        )

    return reading


def as_recorded(one: Slo, store: Store) -> Iterator[str]:
    """Yield what rules would have recorded of an objective, 7 s after each multiple of the interval."""
    read = store_reader(store)(needed_metrics([one]), BEGIN, BEGIN + SECONDS)
    found = bad_and_total(one, read.by_metric, BEGIN, BEGIN + SECONDS, TIMING)
    for name, by_group in ((BAD_EVENTS, found.bad), (TOTAL_EVENTS, found.total)):
        for (service,), values in by_group.items():
            for time, value in zip(found.times_ms.tolist(), values.tolist(), strict=True):
                if value == value:
                    yield f'{name}{{slo="{one.name}",service="{service}"}} {value!r} {time / 1000 + 7:.3f}\n'


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SamplesSource, int]]:
    """The source of the store, and the port of a Prometheus with the same samples."""
    folder = tmp_path_factory.mktemp("parity")
    planted = plant(ALL.values(), SECONDS)
    store = Store(str(folder / "store"))
    write_store(store, planted)
    text = folder / "samples.om"
    *some, end = openmetrics(planted, needed_metrics(ALL.values()))
    with text.open("w") as file:
        file.writelines([*some, *as_recorded(RECORDED, store), end])
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "tsdb")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    with prometheus(folder) as port:
        wait_for(lambda: ask_prometheus(port, "query", query=f"count(tachoscope_job_active @ {END})")["result"])
        yield SamplesSource(without_ends(store_reader(store)), "store"), port


@pytest.mark.parametrize("name", ALL)
def test_both_count_the_same_bad_and_total_events(both: tuple[SamplesSource, int], name: str) -> None:
    source, port = both
    ask = Ask(ALL[name], (Window(START, END), Window(END - 3600.0, END), Window(START, START + 3600.0)))

    (ours,) = source.measure([ask], TIMING)
    (theirs,) = PrometheusSource(f"http://127.0.0.1:{port}").measure([ask], TIMING)

    assert ours.keys() == theirs.keys()
    for group, sums in ours.items():
        for one, other in zip(sums, theirs[group], strict=True):
            assert one.evaluations == other.evaluations
            assert (one.bad, one.total) == pytest.approx((other.bad, other.total), rel=1e-9, abs=1e-9)
            assert (one.error_ratio is None) == (other.error_ratio is None)
            assert (one.error_ratio or 0.0) == pytest.approx(other.error_ratio or 0.0, rel=1e-3)  # the bar
    assert any(0 < sums[0].bad < sums[0].total for sums in ours.values()), "nothing was planted that could differ"


@pytest.mark.parametrize("name", ["bad", "latency", "age", "recorded"])
def test_both_have_the_same_moments_for_a_backtest(both: tuple[SamplesSource, int], name: str) -> None:
    source, port = both
    one = RECORDED if name == "recorded" else KINDS[name]
    asked = PrometheusSource(f"http://127.0.0.1:{port}")

    ours = source.moments(one, START, END, TIMING)
    theirs = asked.moments(one, START, END, TIMING)

    assert (asked.notes == []) == (name == "recorded")
    assert (theirs.times_ms == ours.times_ms).all()
    for group, total in ours.total.items():
        # What was recorded a few seconds after an evaluation is seen at the next.
        shift = 1 if name == "recorded" else 0
        size = len(total) - shift
        np.testing.assert_allclose(theirs.total[group][shift:], total[:size], rtol=1e-9)
        np.testing.assert_allclose(theirs.bad[group][shift:], ours.bad[group][:size], rtol=1e-9)


def test_a_prometheus_is_asked_for_series_and_for_the_buckets_of_thresholds(both: tuple[SamplesSource, int]) -> None:
    _, port = both
    url = f"http://127.0.0.1:{port}"
    absent = {
        "no-histogram": (AtMost(Selector("other_seconds"), 1.0), "of other_seconds"),
        "no-total": (Ratio(total=Selector("all_total", {"code": ("500",)}), bad=Selector("all_total")), 'all_total{code="500"}'),
        "no-good": (Ratio(total=BAD.total, good=Selector("good_total", {"code": ("200",)})), "good_total"),
        "no-gauge": (replace(USE, value=Selector("other_ratio")), "other_ratio"),
    }
    between = replace(KINDS["latency"], name="between", indicator=replace(LATENCY, bound=2.25))

    asked = series_there.of_prometheus(url, END)

    assert series_there.check(KINDS.values(), asked, "it") == []
    (error,) = series_there.check([between], asked, "it")
    assert error.severity == "error" and "ends at 2.25" in error.what and "2.5" in error.fix
    notes = series_there.check([slo(indicator, name=name) for name, (indicator, _) in absent.items()], asked, "it")
    said = {note.what for note in notes if note.severity == "note"}
    assert said == {f"{name}: it has no series {series}" for name, (_, series) in absent.items()}


@pytest.mark.parametrize("name", KINDS)
def test_each_evaluation_is_the_same(both: tuple[SamplesSource, int], name: str) -> None:
    """Not only the sums: the range query that Prometheus's own graph would show."""
    source, port = both
    start, end = START, START + 7200.0
    read = source._read(needed_metrics([ALL[name]]), BEGIN, end)
    ours = bad_and_total(ALL[name], read.by_metric, start - 0.001, end, TIMING)

    for events, expression in ((ours.bad, bad_events), (ours.total, total_events)):
        rows = ask_prometheus(port, "query_range", query=expression(ALL[name], TIMING), start=str(start), end=str(end), step="30")
        theirs = {tuple(row["metric"].get(label, "") for label in ALL[name].by): dict(row["values"]) for row in rows["result"]}
        there = {
            group: {
                time / 1000: value for time, value in zip(ours.times_ms.tolist(), values.tolist(), strict=True) if value == value
            }
            for group, values in events.items()
        }
        assert {group: values for group, values in there.items() if values}.keys() == theirs.keys()
        for group, values in theirs.items():
            assert there[group] == pytest.approx({float(time): float(text) for time, text in values.items()}, rel=1e-9, abs=1e-12)


def test_the_expression_of_an_objective_over_a_window_is_its_attainment(both: tuple[SamplesSource, int]) -> None:
    source, port = both
    one = KINDS["latency"]
    bad, total = (
        {
            (row["metric"]["service"], row["metric"]["model"]): float(row["value"][1])
            for row in ask_prometheus(port, "query", query=f"sum_over_time(({expression})[3h:30s])", time=str(END))["result"]
        }
        for expression in (bad_events(one, TIMING), total_events(one, TIMING))
    )
    (ours,) = source.measure([Ask(one, (Window(END - 10800.0, END),))], TIMING)

    assert {group: sums[0].error_ratio for group, sums in ours.items()} == pytest.approx(
        {group: bad[group] / total[group] for group in total}, rel=1e-2
    )
    assert len(total) == 2


def test_what_rules_recorded_is_read_and_needs_no_raw_series(both: tuple[SamplesSource, int]) -> None:
    source, port = both
    theirs = PrometheusSource(f"http://127.0.0.1:{port}")
    ask = Ask(RECORDED, (Window(START, END), Window(END - 1800.0, END)))

    (ours,), (its,) = source.measure([ask], TIMING), theirs.measure([ask], TIMING)

    assert theirs.notes == []
    assert ours.keys() == its.keys() == {("chat",), ("code",)}
    for group, sums in ours.items():
        for one, other in zip(sums, its[group], strict=True):
            # Recorded 7 s later, one evaluation at each end falls into the next window.
            assert abs(one.evaluations - other.evaluations) <= 1
            assert other.error_ratio == pytest.approx(one.error_ratio, rel=0.05)


def test_reports_from_both_agree(both: tuple[SamplesSource, int]) -> None:
    source, port = both
    period = (END - START) / 86400.0
    slos: list[Slo] = [replace(KINDS[name], period_days=period) for name in ("bad", "latency", "age-by-job")]

    ours = report(slos, source, END, timing=TIMING)
    theirs = report(slos, PrometheusSource(f"http://127.0.0.1:{port}"), END, timing=TIMING)

    assert [one.name for one in ours.objectives] == ["bad", "latency", "age-by-job"]
    for one, other in zip(ours.objectives, theirs.objectives, strict=True):
        assert [budget.labels for budget in one.budgets] == [budget.labels for budget in other.budgets]
        for mine, its in zip(one.budgets, other.budgets, strict=True):
            assert mine.attainment == pytest.approx(its.attainment, rel=1e-9)
            assert (mine.state, mine.coverage, mine.recent) == (its.state, its.coverage, its.recent)
            assert [o.value for o in mine.offenders] == [o.value for o in its.offenders]
            assert [point.left for point in mine.burn_down] == pytest.approx([point.left for point in its.burn_down])
            assert [burn.long for burn in mine.burns] == pytest.approx([burn.long for burn in its.burns])
    assert "evaluated from raw series" in theirs.notes[0]
    assert ours.objectives[0].budgets[0].offenders
