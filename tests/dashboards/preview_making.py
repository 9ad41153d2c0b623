"""A board with each type of panel, and series in a real Prometheus whose values are known."""

from __future__ import annotations

import contextlib
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.remote_write import Sender, encoded

from processes import free_port, wait_for
from tachoscope_core.report import palette
from tachoscope_dashboards.parts.board import Board, BoardAnnotation
from tachoscope_dashboards.parts.panels import (
    ColorStep,
    Column,
    Link,
    PanelText,
    PlacedPanel,
    Query,
    bars,
    heatmap,
    row,
    stat,
    table,
    text,
    timeline,
    timeseries,
)
from tachoscope_dashboards.parts.variables import Variable

SCRIPT = "<script>document.title='owned'</script><b>bold</b>"
"""A label that must never be read as HTML."""
AWAY = ' & "quoted"\\'
HOUR, AHEAD, EVERY = 3600.0, 600.0, 15.0
NODES = Variable("node", "instance", "demo_up", "Node")
JOB = Variable("training_job", "training_job", "demo_up", "Training job", one=True)
_ON = 'instance=~"$node", training_job=~"$training_job"'


def about(empty: str = "nothing planted") -> PanelText:
    return PanelText("What is *planted*.", "as planted", "look at `preview_making.py`", empty)


def every_type() -> Board:
    """Return the board; what its panels must show follows from `series`."""
    hot = ColorStep(60.0, palette.BAD)
    runbook, job = Link("Runbook Test", "https://runbooks.example.com/Test.md"), Link("Job", "/d/other?var-node=${node}")
    return Board(
        uid="every-type",
        title="Each type of panel",
        question="Is every panel drawn as its JSON says?",
        hint="See [the other board](/d/other?from=${__from}), of **$node**.",
        variables=(NODES, JOB),
        panels=(
            row("Numbers"),
            stat("Temperature", about(), Query(f"max(demo_celsius{{{_ON}}})"), unit="celsius", steps=[hot]),
            stat("Rate", about(), Query("sum(rate(demo_total[$__rate_interval]))"), unit="reqps", links=[runbook, job]),
            stat("State", about(), Query("max(demo_state)", instant=True), unit="none", texts={"2": "hung"}),
            stat("Each node", about(), Query(f"demo_bytes{{{_ON}}}", "{{instance}}"), unit="bytes", width=6),
            stat("Nothing here", about("no traffic"), Query("demo_absent"), unit="s", width=6),
            row("Over time"),
            timeseries(
                "Lines",
                about(),
                [Query(f"demo_seconds{{{_ON}}}", "{{instance}}"), Query("vector(0.7)", "bound")],
                unit="s",
                steps=[ColorStep(1.5, palette.BAD)],
                colors={"bound": "#123456"},
                links=[runbook],
            ),
            timeseries(
                "Areas", about(), [Query("demo_share", "{{state}}")], unit="percentunit", stacked=True, maximum=1.0,
                colors=dict(palette.STATE_COLORS),
            ),
            now_and_then("Now and then, bars", "bars"),
            now_and_then("Now and then, points", "points"),
            timeseries("Logarithm", about(), [Query("demo_bytes", "{{instance}}")], unit="bytes", log=True, width=8),
            timeseries("No line", about("no GPU on this node"), [Query("demo_absent")], unit="s", width=8),
            timeseries("Refused", about(), [Query("sum(")], unit="s", width=8),
            heatmap("Rows", about(), Query("demo_share", "{{state}}"), unit="percentunit", width=12, height=8),
            heatmap(
                "Buckets", about(), Query("sum by (le) (rate(demo_wait_bucket[$__rate_interval]))", "{{le}}"), unit="s",
                is_histogram=True, width=12, height=8,
            ),
            timeline(
                "Bands",
                about(),
                [Query("demo_state", "rank {{rank}}")],
                {"0": ("working", palette.OK), "1": ("silent", palette.WARN), "2": ("hung", palette.BAD)},
                height=5,
            ),
            row("Now"),
            table(
                "Nodes",
                about(),
                [Query(f"max by (instance) ({name})") for name in ("demo_up", "demo_celsius", "demo_bytes")],
                [
                    Column("instance", "Node", link=Link("The node", "/d/other?var-node=${__data.fields.Node}&at=${__value.raw}")),
                    Column("A", "Up", texts={"1": "up", "0": "down"}),
                    Column("B", "Hottest", unit="celsius", steps=(ColorStep(60.0, palette.BAD),)),
                    Column("C", "Memory", unit="bytes"),
                ],
                sort="Hottest",
                width=12,
            ),
            bars("Bars", about(), Query("sort_desc(demo_celsius)", "{{instance}}"), unit="celsius", maximum=100.0, width=12,
                 height=9, steps=[ColorStep(60.0, palette.BAD)]),
            table("No rows", about("all agents are up"), [Query("demo_up == 7")], [Column("instance", "Node")], width=12, height=4),
            bars("No bars", about("no rank waits"), Query("demo_absent"), unit="s", width=12, height=4),
            text("Words with <script>document.title='owned'</script> in them."),
        ),
        events=(
            BoardAnnotation("Restarts", "demo_restart == 1", "restart of {{training_job}}", palette.WARN),
            BoardAnnotation("Drained", "ALERTS == 1", "while {{alertname}}", palette.SERIES[3]),
        ),
        since="now-1h",
    )  # fmt: skip


def now_and_then(title: str, style: str) -> PlacedPanel:
    """Return a panel of values that stand alone."""
    placed = timeseries(title, about(), [Query("demo_restart", "{{training_job}}")], unit="short")
    custom = placed.panel.settings["fieldConfig"]["defaults"]["custom"]
    custom |= {"drawStyle": style, "fillOpacity": 80, "showPoints": "always" if style == "points" else "never"}
    return placed


def other() -> Board:
    return replace(every_type(), uid="other", title="Another", panels=[every_type().panels[2]], variables=(NODES,))


def large(panels: int = 40) -> Board:
    """Return a board with many panels over time."""
    several: list[PlacedPanel] = [
        timeseries(f"Panel {n}", about(), [Query("demo_seconds", "{{instance}}")], unit="s", width=6) for n in range(panels)
    ]
    return replace(every_type(), uid="large", title="Large", panels=several)


NODE_NAMES = ("node-1:9465", "node-2:9465", SCRIPT + AWAY)


def series(seconds: Callable[[float], np.ndarray]) -> Iterator[tuple[Mapping[str, str], np.ndarray]]:
    """Yield the series. seconds: from the start of the hour, at each sample, times what is given."""
    flat = seconds(0.0)
    for number, node in enumerate(NODE_NAMES):
        labels = {"instance": node, "training_job": "resnet"}
        yield {"__name__": "demo_up", **labels}, flat + (number != 1)
        yield {"__name__": "demo_celsius", **labels}, flat + 50.0 + 12.5 * number
        yield {"__name__": "demo_bytes", **labels}, flat + 1024.0 ** (number + 1) * 1.5
        yield {"__name__": "demo_seconds", **labels}, seconds(1 / HOUR) + number
    yield {"__name__": "demo_total"}, seconds(1500.0)
    for le, rate in (("0.1", 2.0), ("1", 5.0), ("+Inf", 6.0)):
        yield {"__name__": "demo_wait_bucket", "le": le}, seconds(rate)
    for state, share in (("compute", 0.5), ("data_wait", 0.3), ("unexplained", 0.2)):
        yield {"__name__": "demo_share", "state": state}, flat + share
    for rank in range(3):
        yield {"__name__": "demo_state", "rank": str(rank)}, np.minimum(seconds(1 / 1200.0) // 1, rank).clip(0, 2)
    middle = (seconds(1.0) >= 1500.0) & (seconds(1.0) <= 2100.0)
    yield {"__name__": "ALERTS", "alertname": "Planted", "alertstate": "firing", "severity": "page"}, np.where(middle, 1.0, np.nan)
    yield {"__name__": "demo_restart", "training_job": "resnet"}, np.where(seconds(1.0) == 900.0, 1.0, np.nan)


def hour_ago() -> float:
    """Return the full minute at which the series of the hour up to now begin."""
    return (time.time() - HOUR) // 60 * 60


@contextlib.contextmanager
def planted(folder: Path, since: float | None = None) -> Iterator[str]:
    """Run a Prometheus that has the series of the hour up to now, or of that since a full minute; yield its address."""
    port = free_port()
    (folder / "prometheus.yml").write_text("global: {}\n")
    command = [
        *("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", "--log.level=error"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"),
    ]
    server = subprocess.Popen(command)
    try:
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready").status == 200)
        begin, sender = hour_ago() if since is None else since, Sender(port)
        offsets = np.arange(0.0, HOUR + AHEAD, EVERY)
        for labels, values in series(lambda times: offsets * times):
            known = ~np.isnan(values)
            sender.add(labels, encoded(begin + offsets[known], values[known][None, :])[0])
        sender.flush()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
