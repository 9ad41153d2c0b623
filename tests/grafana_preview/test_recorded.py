"""Every expression of every board, with the variables as a board is opened first, finds something in the recorded demo, or
in what is planted beside it.

What finds nothing there stands in `EMPTY` with the reason; what stands there and finds something fails as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import planted_watch
import recorded_series
from grafana_preview import choices
from grafana_preview import interpolate as filling
from grafana_preview.times import Span, at_least, span
from tachoscope_alerts.compile.links import board_name
from tachoscope_alerts.spec import files, policy
from tachoscope_core.net import prometheus as prometheus_query
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.parts.grafana_json import to_json

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")
Json = dict[str, Any]
Where = tuple[str, str, str]
"""Name of the board; title of the panel, or what it is and its name; refId of the query."""
BOARDS: dict[str, Json] = {board_name(board.uid): to_json(board) for board in boards(policy.load(files.path_of("policy.yaml")))}
EMPTY: dict[Where, str] = {
    ("gpu-node", "Memory errors and replaced rows, by GPU", "G"): "H100 replace rows of their memory, and retire no pages",
    ("nccl", "mark Alerts", ""): "no rule has evaluated what is planted",
    ("storage", "Young enough, 1 day", "A"): "checkpoints of a job count from its second hour on",
    **{
        (uid, f"variable {name}", ""): "only jobs and services in Kubernetes have one"
        for uid, names in {
            **dict.fromkeys(("nccl", "storage", "inference"), ("workload_namespace",)),
            **dict.fromkeys(("training", "data"), ("workload_namespace", "job_namespace")),
        }.items()
        for name in names
    },
    **{(uid, "variable job_team", ""): "nobody adds teams there" for uid in ("training", "data")},
    **{("slos", "Who spends $slo: services and models", name): "the first objective of all is one of training" for name in "ABCDE"},
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Span]]:
    """A Prometheus that holds the demo, and the time of it."""
    series = planted_watch.added(recorded_series.read())
    start, end = recorded_series.span(series)
    with recorded_series.served(tmp_path_factory.mktemp("prometheus"), series) as url:
        yield url, span(start, end, 800)


@pytest.mark.parametrize("name", BOARDS)
def test_every_expression_finds_something_in_the_recorded_demo_or_it_is_said_why_not(recorded: tuple[str, Span], name: str) -> None:
    url, time = recorded
    nothing = {where for where, has_found in _answers(BOARDS[name], url, time) if not has_found}

    assert nothing == {where for where in EMPTY if where[0] == name}


def test_what_is_empty_is_on_a_board_and_its_panel_says_why() -> None:
    assert {where[0] for where in EMPTY} <= BOARDS.keys()
    for name, title, _ in EMPTY:
        for panel in BOARDS[name]["panels"]:
            if panel.get("title") == title:
                assert panel["fieldConfig"]["defaults"]["noValue"]


def _answers(board: Json, url: str, time: Span) -> Iterator[tuple[Where, bool]]:
    """Yield for each expression whether it finds something: at the end of the demo, or over it."""
    name = board_name(board["uid"])
    chosen = choices.choices(board, {}, url, time)
    for one in chosen:
        yield (name, f"variable {one.name}", ""), bool(one.options)
    for mark in board["annotations"]["list"]:
        yield (name, f"mark {mark['name']}", ""), _over(url, filling.query(mark["expr"], chosen, time), time)
    for panel in board["panels"]:
        own = at_least(time, panel.get("interval", ""))
        for target in panel.get("targets", []):
            expr = filling.query(target["expr"], chosen, own)
            found = bool(prometheus_query.instant_query(url, expr, at=own.end)) if target["instant"] else _over(url, expr, own)
            yield (name, panel["title"], target["refId"]), found


def _over(url: str, expr: str, time: Span) -> bool:
    return bool(prometheus_query.range_query(url, expr, start=time.start, end=time.end, step=time.step))
