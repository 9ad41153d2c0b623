"""The command: boards as pages on this machine, drawn from a Prometheus; or pictures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli import app as tachoscope
from tachoscope_cli.commands.dashboards import MOMENTS, SlosOption
from tachoscope_cli.common.options import needs_dashboards, print_notice
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_show.text.units import moment_of, seconds_of

if TYPE_CHECKING:
    from grafana_preview.api import Preview

Theme = StrEnum("Theme", ["light", "dark"])
EPILOG = (
    "Examples: `python tools/grafana_preview --prometheus http://127.0.0.1:9090`, "
    "`python tools/grafana_preview --prometheus http://127.0.0.1:9090 fleet training --from 24h`, "
    "`python tools/grafana_preview --prometheus http://127.0.0.1:9090 dashboards/generated --shots pictures --theme dark`"
)


def preview(
    prometheus: Annotated[str, typer.Option(metavar="URL", help="The Prometheus whose series are drawn; it is only asked.")],
    boards: Annotated[
        list[str] | None,
        typer.Argument(metavar="BOARD|FILE|DIR", help="Boards by name, JSON files, or folders of them. Default: all."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the pages; 0: any free one.")] = 0,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of the pages. Whoever can reach it can see what the boards show.")
    ] = "127.0.0.1",
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Look back so far at first. Default: as each board says.")
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="TIME", help=f"What `now` means: {MOMENTS}. Default: now.")] = None,
    slos: SlosOption = None,
    shots: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a picture of each board there, and end.")] = None,
    theme: Annotated[Theme | None, typer.Option(help="Of the pictures; pages have a button. Default: light.")] = None,
    chromium: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The browser that makes the pictures. Default: the installed one.")
    ] = None,
) -> None:
    """Look at boards without a Grafana: draw their JSON from a Prometheus.

    Layout, queries, units, thresholds, colours and words are the board's; how it looks is close to Grafana, not the same. Runs
    until Ctrl-C. With --shots it exits with 1 if a panel could not be drawn.
    """
    needs_dashboards("grafanalib", "markdown_it")
    if shots is None and (theme or chromium):
        raise TachoscopeError("--theme and --chromium are for pictures", fix="--shots DIR")
    from grafana_preview.api import Preview
    from grafana_preview.loading import load
    from grafana_preview.server import plotly_folder
    from tachoscope_core.net import prometheus as prometheus_query
    from tachoscope_dashboards.parts import slo_objectives

    plotly_folder()
    prometheus_query.instant_query(prometheus, "vector(1)")  # what is wrong with the address is said now, not on each panel
    since = f"now-{_in_words(round(seconds_of(from_)))}" if from_ else ""
    with slo_objectives.specs_of(slos or ()):
        looked_at = Preview(load(boards or ()), prometheus, since)
    looked_at = replace(looked_at, at=moment_of(at)) if at else looked_at
    if shots is None:
        _serve(looked_at, host, port)
    else:
        raise typer.Exit(_shoot(looked_at, shots, "dark" if theme == "dark" else "light", chromium))


def _in_words(seconds: int) -> str:
    """Return a length of time as Grafana's pages write it; as they do, a day as 24 hours."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds % unit == 0 and seconds > unit * (name == "d"):
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


def _serve(looked_at: Preview, host: str, port: int) -> None:
    from grafana_preview.server import Server
    from tachoscope_alerts.compile.links import board_name

    with Server(looked_at, host, port) as server:
        typer.echo(f"{server.url}/")
        print_notice(f"boards {', '.join(map(board_name, looked_at.boards))}, from {looked_at.url}; Ctrl-C ends it")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_notice("ended")


def _shoot(looked_at: Preview, folder: Path, theme: str, chromium: Path | None) -> ExitCode:
    from grafana_preview.screenshots import shots

    failed = 0
    for shot in shots(looked_at, folder, "dark" if theme == "dark" else "light", chromium):
        typer.echo(f"{shot.path}: {shot.panels} panels, {shot.empty} of them empty, {len(shot.errors)} failed")
        for error in shot.errors:
            typer.echo(f"  {error}")
        failed += len(shot.errors)
    return ExitCode.from_success(not failed)


def call(words: Sequence[str]) -> int:
    """Run the command; return its exit code.

    Raises:
        TachoscopeError: it failed, or was interrupted.
    """
    app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="markdown", add_completion=False)
    app.command(epilog=EPILOG)(preview)
    return tachoscope.call(words, app, "grafana_preview")
