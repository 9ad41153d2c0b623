"""Jobs and services of one name stay apart on every board: of another cluster, another namespace, another team.

A real Prometheus holds the recorded demo four times: as it is but for these labels.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import planted_watch
import recorded_series
from grafana_preview import choices
from grafana_preview import interpolate as filling
from grafana_preview.interpolate import Choice
from grafana_preview.times import Span, span
from planted import POLICY
from recorded_series import Labels, Series
from tachoscope_core.metrics.metric import IDENTITY, WORKLOADS
from tachoscope_core.net import prometheus as prometheus_query
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.grafana_json import to_json
from tachoscope_dashboards.parts.variables import THIS_JOB

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
Json = dict[str, Any]
Place = tuple[str, str, str]
Values = dict[float, float]
"""Of a series, by time."""
BOARDS: dict[str, Json] = {board.uid: to_json(board) for board in boards(POLICY)}
PLACES: tuple[Place, ...] = (("a", "one", "x"), ("b", "one", "x"), ("a", "two", "x"), ("a", "one", "y"))
"""Cluster, namespace and team of each copy: the others differ from the first in one label each."""
OF_JOB = {"job_cluster": IDENTITY[0], "job_namespace": IDENTITY[1], "job_team": IDENTITY[2]}
"""Labels that variables of boards of one job choose."""
LEFT_OUT = "smoke-test"
"""A job of the demo, so that four copies of the others are few enough for panels of the ten worst."""
_GROUPED = re.compile(rf"\bby \([^)]*\b(?:{'|'.join(WORKLOADS)})\b")


def copies(series: Series) -> Series:
    """Return the series of jobs and services once a place, and those of nodes once a cluster."""
    found: Series = {}
    for labels, values in series.items():
        known = dict(labels)
        if known.get("training_job") == LEFT_OUT:
            continue
        if known.keys() & set(WORKLOADS):
            copied = [dict(zip(IDENTITY, place, strict=True)) for place in PLACES]
        else:
            copied = [{"cluster": cluster} for cluster in ("a", "b")] if "cluster" in known else [{}]
        for place in copied:
            found[_sorted(known | place)] = values
    return found


def _sorted(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Span]]:
    """A Prometheus that holds the copies, and the time of it."""
    series = copies(planted_watch.added(recorded_series.read()))
    start, end = recorded_series.span(series)
    with recorded_series.served(tmp_path_factory.mktemp("prometheus"), series) as url:
        yield url, span(start, end, 800)


@pytest.mark.parametrize("uid", BOARDS)
def test_each_copy_of_a_job_or_service_has_a_line_or_row_of_its_own_with_the_same_values(
    recorded: tuple[str, Span], uid: str
) -> None:
    url, time = recorded
    chosen = choices.choices(BOARDS[uid], {}, url, time)
    merged, seen = [], 0
    for title, expr, is_instant in _grouping(BOARDS[uid]):
        answer = _answer(url, filling.query(expr, chosen, time), time, is_instant=is_instant)
        for name, by_place in _copies_of(answer).items():
            seen += 1
            first = next(iter(by_place.values()))
            if by_place.keys() != _expected(expr, chosen) or any(
                one != pytest.approx(first, nan_ok=True) for one in by_place.values()
            ):
                merged.append((title, name, by_place))

    assert seen
    assert merged == []


@pytest.mark.parametrize("uid", ["tachoscope-training", "tachoscope-data"])
@pytest.mark.parametrize(
    "asked", [{}, {"var-cluster": ["b"]}, {"var-workload_namespace": ["two"]}, {"var-job_team": ["y"]}], ids=str
)
def test_a_board_of_one_job_is_of_one_whatever_its_address_leaves_open(
    recorded: tuple[str, Span], uid: str, asked: dict[str, list[str]]
) -> None:
    url, time = recorded
    chosen = choices.choices(BOARDS[uid], asked, url, time)
    jobs = prometheus_query.instant_query(url, filling.query(f"tachoscope_job_active{{{THIS_JOB}}}", chosen, time), at=time.end)
    found = {tuple(one["metric"][label] for label in (*IDENTITY, "training_job")) for one in jobs}

    assert len(found) == 1
    for name, values in asked.items():
        label = OF_JOB.get(name.removeprefix("var-"), name.removeprefix("var-"))
        assert {one["metric"][label] for one in jobs} == set(values)


def _grouping(board: Json) -> Iterator[tuple[str, str, bool]]:
    """Yield title, expression and kind of what groups by a job or service."""
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            if _GROUPED.search(target["expr"]):
                yield f"{panel['title']} {target['refId']}", target["expr"], target["instant"]
    for mark in board["annotations"]["list"]:
        if _GROUPED.search(mark["expr"]):
            yield mark["name"], mark["expr"], False


def _answer(url: str, expr: str, time: Span, *, is_instant: bool) -> Iterator[tuple[dict[str, str], Values]]:
    if is_instant:
        for one in prometheus_query.instant_query(url, expr, at=time.end):
            yield dict(one["metric"]), {time.end: float(one["value"][1])}
    else:
        for one in prometheus_query.range_query(url, expr, start=time.start, end=time.end, step=time.step):
            yield dict(one["metric"]), {float(at): float(value) for at, value in one["values"]}


def _copies_of(answer: Iterator[tuple[dict[str, str], Values]]) -> dict[Labels, dict[Place, Values]]:
    """Return what is known of each job or service, by place; what names none is left out."""
    found: dict[Labels, dict[Place, Values]] = defaultdict(dict)
    for labels, values in answer:
        if any(labels.get(name) for name in WORKLOADS):
            cluster, namespace, team = (labels.pop(label, "") for label in IDENTITY)
            found[_sorted(labels)][cluster, namespace, team] = values
    return found


def _expected(expr: str, chosen: list[Choice]) -> set[Place]:
    """Return the places that what is chosen leaves."""
    choosing = [one for one in chosen if not one.is_all and f"${one.name}" in expr]
    values = {OF_JOB.get(one.name, one.name): set(one.values) for one in choosing}
    return {
        place for place in PLACES if all(value in values.get(label, {value}) for label, value in zip(IDENTITY, place, strict=True))
    }
