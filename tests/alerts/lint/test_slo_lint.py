"""Lints of objectives and alerts: planted mistakes are found with their file, line and offender, and sound ones are left alone."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tachoscope_alerts.lint import lint
from tachoscope_alerts.lint.catalogue import KnownSeries, catalogue
from tachoscope_alerts.spec.slo import AtMost, Gate, MoreThan, Ratio, Selector, Slices, Slo

OWN = (
    KnownSeries("requests_total", "counter", frozenset({"model", "outcome"}), "test", {"outcome": ("ok", "failed", "left")}),
    KnownSeries("wait_seconds", "histogram", frozenset({"model"}), "test", buckets=(0.5, 1.0)),
    KnownSeries("wait_seconds_bucket", "counter", frozenset({"model", "le"}), "test", buckets=(0.5, 1.0)),
    KnownSeries("wait_seconds_count", "counter", frozenset({"model"}), "test"),
    KnownSeries("saved_timestamp_seconds", "gauge", frozenset({"run"}), "test"),
    KnownSeries("run_active", "gauge", frozenset({"run"}), "test"),
)
RATIO = Slo(
    name="availability",
    title="Availability",
    description="",
    area="inference",
    indicator=Ratio(
        total=Selector("requests_total", excluding={"outcome": ("left",)}),
        bad=Selector("requests_total", labels={"outcome": ("failed",)}),
    ),
    by=("model",),
    target=0.999,
    period_days=28.0,
    alert="AvailabilityBurn",
    pages=True,
    owner="team",
    target_source="judgement: ours",
    path="slos.yaml",
    line=7,
)
HISTOGRAM = replace(RATIO, name="waiting", alert="WaitingBurn", indicator=AtMost(Selector("wait_seconds"), 0.5), target=0.99)
SLICES = replace(
    RATIO,
    name="age",
    alert="AgeBurn",
    by=(),
    target=0.99,
    indicator=Slices(
        Selector("saved_timestamp_seconds"),
        ("run",),
        "lte",
        3600.0,
        age=True,
        gate=Gate(Selector("run_active"), ("run",)),
        missing="bad",
    ),
)


@dataclass(frozen=True)
class Event:
    """The part of an alert beside the objectives that is looked at."""

    alert: str = "Down"
    severity: str = "page"
    owner: str = "team"
    slo: str = "availability"
    expr: str = 'sum by (cluster, model) (rate(requests_total{outcome="failed"}[5m])) > 5'
    path: str = "events.yaml"
    line: int = 3


@pytest.fixture
def around(tmp_path: Path):
    for name in ("AvailabilityBurn", "WaitingBurn", "AgeBurn", "Down"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n")

    def made(*slos: Slo, retention_days: float = 35.0) -> lint.Surroundings:
        known = {**catalogue(slos), **{one.name: one for one in OWN}}
        return lint.Surroundings(known, ("team", "others"), tmp_path, retention_days * 86400)

    return made


@pytest.fixture
def problems(around):
    def found(*slos: Slo, events: tuple[Event, ...] = (), retention_days: float = 35.0) -> list[str]:
        checked = lint.check(slos, events, around(*slos, retention_days=retention_days))  # type: ignore[arg-type]
        return [str(problem) for problem in checked]

    return found


def test_sound_objectives_and_alerts_have_no_problem(problems):
    above = replace(HISTOGRAM, name="patience", alert="Down", indicator=MoreThan(Selector("wait_seconds"), 0.5))

    assert problems(RATIO, HISTOGRAM, SLICES, events=(Event(),)) == []
    assert problems(above, replace(SLICES, indicator=replace(SLICES.indicator, missing="ignored"))) == []


MISTAKES = {
    "a metric that does not exist": (
        replace(RATIO, indicator=Ratio(Selector("request_total"), bad=Selector("requests_total", {"outcome": ("failed",)}))),
        "availability: metric request_total is in no catalogue (did you mean requests_total?",
    ),
    "a label that does not exist": (
        replace(RATIO, indicator=Ratio(Selector("requests_total"), bad=Selector("requests_total", {"code": ("500",)}))),
        "availability: requests_total has no label code (its labels are model, outcome",
    ),
    "a value that a label never has": (
        replace(RATIO, indicator=Ratio(Selector("requests_total"), bad=Selector("requests_total", {"outcome": ("error",)}))),
        "availability: requests_total never has outcome='error' (it is one of ok, failed, left)",
    ),
    "a kept label that does not exist": (replace(RATIO, by=("service",)), "availability: requests_total has no label service"),
    "a part that does not exist": (
        replace(RATIO, indicator=Ratio(Selector("requests_total"), bad=Selector("run_total"))),
        "availability: metric run_total is in no catalogue",
    ),
    "a histogram where events are counted": (
        replace(RATIO, indicator=Ratio(Selector("wait_seconds"), bad=Selector("requests_total", {"outcome": ("failed",)}))),
        "availability: wait_seconds is a histogram, not a counter",
    ),
    "a gauge as a histogram": (
        replace(HISTOGRAM, by=(), indicator=AtMost(Selector("run_active"), 1.0)),
        "run_active is a gauge, not a histogram",
    ),
    "a counter in slices of time": (
        replace(SLICES, indicator=Slices(Selector("requests_total"), ("model",), "lte", 1.0)),
        "age: requests_total is a counter, not a gauge",
    ),
    "an entity by a label that does not exist": (
        replace(SLICES, indicator=Slices(Selector("saved_timestamp_seconds"), ("rank",), "lte", 1.0)),
        "age: saved_timestamp_seconds has no label rank",
    ),
    "a threshold between two buckets": (
        replace(HISTOGRAM, indicator=AtMost(Selector("wait_seconds"), 0.45)),
        "waiting: no bucket of wait_seconds ends at 0.45 (its boundaries are 0.5, 1)",
    ),
    "a threshold above which no bucket begins": (
        replace(HISTOGRAM, indicator=MoreThan(Selector("wait_seconds"), 0.5000001)),
        "waiting: no bucket of wait_seconds ends at 0.5000001 (its boundaries are 0.5, 1)",
    ),
    "a gauge as a histogram with a threshold to exceed": (
        replace(HISTOGRAM, by=(), indicator=MoreThan(Selector("run_active"), 0.5)),
        "run_active is a gauge, not a histogram",
    ),
    "bad events that total does not count": (
        replace(
            RATIO,
            indicator=Ratio(
                Selector("requests_total", excluding={"outcome": ("left",)}),
                bad=Selector("requests_total", {"outcome": ("failed", "left")}),
            ),
        ),
        "availability: bad counts outcome='left', which total excludes",
    ),
    "good events of more than total": (
        replace(
            RATIO,
            indicator=Ratio(Selector("requests_total", {"model": ("a",)}), good=Selector("requests_total", {"outcome": ("ok",)})),
        ),
        "availability: good is not limited to the model of total: a",
    ),
    "an owner whom nobody knows": (
        replace(RATIO, owner="nobody"),
        "AvailabilityBurn has the owner 'nobody', who is not in the policy (there are team, others)",
    ),
    "no runbook": (replace(RATIO, alert="UnwrittenBurn"), "UnwrittenBurn has no runbook (write "),
    "a source that is none": (replace(RATIO, target_source="a friend"), "availability: target-source is 'a friend'"),
    "a target that allows too much": (
        replace(RATIO, target=0.02),
        "no alert of availability can fire: its budget is 98 % of all, and no more than 90 % is bad when everything fails",
    ),
    "pages that can never be": (
        replace(RATIO, target=0.5),
        "availability pages, and no page of it can fire: 2 times its budget is 100 % of all events",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_an_error_with_file_line_and_offender(mistake: str, problems):
    slo, said = MISTAKES[mistake]
    (found,) = problems(slo)

    assert found.startswith("slos.yaml:7: error: ")
    assert said in found


def test_a_late_first_page_is_a_note_unless_something_pages_when_all_is_down(problems):
    lenient = replace(RATIO, target=0.9)
    (slow,) = problems(lenient)

    assert slow.startswith("slos.yaml:7: note: when all of availability fails, its first page comes after 81 minutes")
    assert problems(lenient, events=(Event(),)) == []
    assert problems(lenient, events=(Event(severity="ticket"),)) != []  # a ticket waits until morning


def test_a_runbook_that_is_not_finished_is_an_error(problems, tmp_path):
    (tmp_path / "AvailabilityBurn.md").write_text("# AvailabilityBurn\n1. TODO\n2. Look.\n3. TODO: ask whom?\n")
    (found,) = problems(RATIO)

    assert "error: the runbook of AvailabilityBurn has 2 lines with TODO (finish " in found


@pytest.mark.parametrize("text", ["", "# LatencyBurn | page\nAvailabilityBurn\n"])
def test_a_runbook_that_is_empty_or_another_alerts_is_an_error(problems, tmp_path, text: str):
    (tmp_path / "AvailabilityBurn.md").write_text(text)
    (found,) = problems(RATIO)

    assert "AvailabilityBurn.md does not name AvailabilityBurn (begin it with `# AvailabilityBurn`" in found


def test_a_first_page_after_half_an_hour_of_nothing_working_is_a_note(problems):
    # 2 % of the budget of 28 days within an hour: 13.44 times 5 %, which all being bad reaches after 40 minutes.
    (found,) = problems(replace(RATIO, target=0.95))

    assert "note: when all of availability fails, its first page comes after 40 minutes" in found
    assert problems(replace(RATIO, target=0.95, pages=False)) == []
    assert problems(replace(RATIO, target=0.99)) == []


def test_an_objective_whose_alerts_are_tickets_is_not_asked_for_pages(problems):
    assert problems(replace(RATIO, target=0.9, pages=False)) == []


def test_samples_must_be_kept_for_the_period_and_the_longest_window(problems):
    (found,) = problems(RATIO, retention_days=30.9)

    assert "error: availability needs 31 days of samples, and the server keeps 30.9" in found
    assert "--storage.tsdb.retention.time=31d" in found
    assert problems(RATIO, retention_days=31) == []


def test_names_that_are_given_twice_name_the_first_place(problems):
    twice = replace(HISTOGRAM, name="availability", alert="AvailabilityBurn", line=20)

    assert problems(RATIO, twice) == [
        "slos.yaml:20: error: alert AvailabilityBurn is there already, at slos.yaml:7 (give it another name)",
        "slos.yaml:20: error: objective availability is there already, at slos.yaml:7 (give it another name)",
    ]


EVENT_MISTAKES = {
    "an alert by the name of another": (Event(alert="AvailabilityBurn"), "alert AvailabilityBurn is there already, at slos.yaml:7"),
    "an objective that does not exist": (Event(slo="latency"), "Down is of the objective 'latency', which does not exist"),
    "an owner whom nobody knows": (Event(owner="nobody"), "Down has the owner 'nobody'"),
    "an unknown metric": (Event(expr="upp == 0"), "Down: metric upp is in no catalogue"),
    "what is not an expression": (Event(expr="up =="), "Down: the expression 'up =='"),
    "raw series over days": (
        Event(expr="sum by (cluster) (increase(requests_total[1d])) > 5"),
        "Down: raw series requests_total over 1d",
    ),
    "raw series in a long subquery": (
        Event(expr="max_over_time(up[5h:1m] offset 5m) + max_over_time(up[7h:1m]) == 0"),
        "raw series up over 7h",
    ),
    "an error ratio above all": (Event(expr='slo:error:ratio{slo="availability"} > 1.34'), "Down: an error ratio above 1.34"),
}


@pytest.mark.parametrize("mistake", EVENT_MISTAKES)
def test_alerts_beside_the_objectives_are_checked_too(mistake: str, problems):
    event, said = EVENT_MISTAKES[mistake]
    (found,) = problems(RATIO, events=(event,))

    assert found.startswith("events.yaml:3: error: ")
    assert said in found


@pytest.mark.parametrize("level", ["base", "sum4m", "sum30m"])
def test_recorded_series_may_be_read_over_days(level: str, problems):
    assert problems(RATIO, events=(Event(expr=f'sum_over_time(slo:bad_events:{level}{{slo="availability"}}[28d]) > 5'),)) == []


def test_a_missing_runbook_is_no_problem_where_none_are_looked_for(around):
    unwritten = replace(RATIO, alert="UnwrittenBurn")

    assert lint.check([unwritten], [], replace(around(unwritten), runbooks=None)) == []
