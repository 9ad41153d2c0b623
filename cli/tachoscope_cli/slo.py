"""`tachoscope slo`: check objectives and alerts, build what Prometheus and Alertmanager read of them, and report budgets."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from tachoscope_cli.options import StoreOption, needs_analysis, notice, store_url
from tachoscope_cli.show import console, write
from tachoscope_cli.units import seconds_of
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_alerts.events import EventAlert
    from tachoscope_alerts.slo import Slo
    from tachoscope_alerts.slo_report import SloReport

slo_app = typer.Typer(
    no_args_is_help=True, help="Objectives and their alerts: check them, build their rules, report their budgets."
)

Format = StrEnum("Format", ["text", "json", "html"])
_PATHS = "OpenSLO files, or folders of them. Default: alerts/slos here, else those that came with tachoscope."

SlosOption = Annotated[list[Path] | None, typer.Option("--slos", metavar="PATH", help=f"{_PATHS} Can be given several times.")]
EventsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Folder of alerts beside the objectives. Default: alerts/events, as for specs; none for specs of your own.",
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Who owns what, and how they are told. Default: alerts/policy.yaml, as for specs."),
]
CatalogueOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Metrics of your own that specs may use, see docs/slos.md. Can be given several times."),
]


@slo_app.command(
    "check",
    epilog="Examples: `tachoscope slo check`, `tachoscope slo check my-slos/ --retention 60d`, "
    "`tachoscope slo check chat.yaml --catalogue chat-metrics.yaml`",
)
def slo_check(
    paths: Annotated[list[Path] | None, typer.Argument(help=_PATHS)] = None,
    events: EventsOption = None,
    policy: PolicyOption = None,
    runbooks: Annotated[Path | None, typer.Option(metavar="PATH", help="Folder of runbooks. Default: as for specs.")] = None,
    generated: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Folder of built rules to check too. Default: alerts/generated here, if any."),
    ] = None,
    catalogue: CatalogueOption = None,
    retention: Annotated[str, typer.Option(metavar="TIME", help="How long your Prometheus keeps samples.")] = "35d",
) -> None:
    """Say what is wrong with objectives and alerts: those that can never fire, names that do not exist, nobody to tell.

    Exits with 1 if anything is an error. A note may stay.
    """
    needs_analysis()
    from tachoscope_alerts import catalogue as catalogue_module
    from tachoscope_alerts import lint

    slos, broken = _readable(paths)
    known = catalogue_module.catalogue(slos, catalogue or ())
    alerts = _events(events, alone=bool(paths))
    around = lint.Surroundings(known, _owners(policy), runbooks or _runbooks(), seconds_of(retention))
    problems = lint.check(slos, alerts, around)
    folder = generated or Path("alerts/generated")
    if generated or (folder.is_dir() and not paths):
        problems += lint.check_rules(folder, known)
    for line in (*broken, *map(str, problems)):
        typer.echo(line)
    errors = len(broken) + sum(problem.severity == "error" for problem in problems)
    notes = len(broken) + len(problems) - errors
    found = f"{_count(errors, 'error')}, {_count(notes, 'note')}"
    notice(f"{_count(len(slos), 'objective')} and {_count(len(alerts), 'other alert')}: {found}")
    raise typer.Exit(int(errors > 0))


@slo_app.command(
    "build",
    epilog="Examples: `tachoscope slo build`, `tachoscope slo build --check`, `tachoscope slo build --slos my-slos/ --out rules/`",
)
def slo_build(
    slos: SlosOption = None,
    events: EventsOption = None,
    policy: PolicyOption = None,
    catalogue: CatalogueOption = None,
    out: Annotated[Path, typer.Option(metavar="PATH", help="Folder to write to.")] = Path("alerts/generated"),
    interval: Annotated[str, typer.Option(metavar="TIME", help="Between two evaluations of the rules.")] = "30s",
    scrape_interval: Annotated[str, typer.Option(metavar="TIME", help="Between two scrapes of your Prometheus.")] = "15s",
    scale: Annotated[
        float, typer.Option(min=1e-4, max=1.0, help="Make all windows shorter, for a fire drill: 0.01 of an hour is 36 s.")
    ] = 1.0,
    check: Annotated[  # noqa: FBT002
        bool, typer.Option("--check", help="Write nothing: say which files are not current, and exit with 1 if any.")
    ] = False,
) -> None:
    """Write rules, PrometheusRule manifests, their tests and Alertmanager's configuration, made of objectives, alerts and policy.

    Exits with 1, and writes nothing, if `tachoscope slo check` would name an error; runbooks may be missing here.
    """
    needs_analysis()
    from tachoscope_alerts import build, lint, openslo
    from tachoscope_alerts import catalogue as catalogue_module
    from tachoscope_alerts import policy as policy_module
    from tachoscope_alerts.windows import Timing

    objectives = openslo.load(slos or _default_slos())
    alerts = _events(events, alone=bool(slos))
    rules = policy_module.load(policy or _default("policy.yaml"))
    known = catalogue_module.catalogue(objectives, catalogue or ())
    problems = lint.check(objectives, alerts, lint.Surroundings(known, rules.owners, None, float("inf")))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        for problem in errors:
            typer.echo(str(problem))
        notice(f"{_count(len(errors), 'error')}: nothing was written")
        raise typer.Exit(1)
    timing = Timing(interval=seconds_of(interval), scrape=seconds_of(scrape_interval), scale=scale)
    if check:
        stale = build.check(objectives, alerts, rules, timing, out)
        for name in stale:
            typer.echo(f"{name}: not current")
        raise typer.Exit(int(bool(stale)))
    written = build.build(objectives, alerts, rules, timing, out)
    notice(
        f"{_count(len(objectives), 'objective')} and {_count(len(alerts), 'other alert')}: {_count(len(written), 'file')} in {out}"
    )


@slo_app.command(
    "report",
    epilog="Examples: `tachoscope slo report`, `tachoscope slo report --prometheus http://127.0.0.1:9090`, "
    "`tachoscope slo report --for 7d --format html --output budgets.html`",
)
def slo_report(
    slos: SlosOption = None,
    store: StoreOption = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask this Prometheus. Default: the samples that agents keep in the store.")
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Report on so much time up to now. Default: each objective's own period."),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="text for people, json for programs, html to pass on.")] = Format[
        "text"
    ],
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
) -> None:
    """Say how objectives stand: what was attained, what is left of each budget, how fast it burns, and who burns it.

    What has no samples is not measured, and not met.
    """
    needs_analysis()
    from tachoscope_alerts import openslo

    objectives = openslo.load(slos or _default_slos())
    if store and prometheus is None and "://" not in store and not Path(store).is_dir():
        raise TachoscopeError(f"there is no store {store}", fix="name the directory that agents write to, or --prometheus URL")
    found = _report(objectives, store_url(store), prometheus, seconds_of(for_) / 86400 if for_ else None)
    if format_.value == "json":
        write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n", output)
    elif format_.value == "html":
        from tachoscope_cli import slo_html

        write(slo_html.page(found), output)
    else:
        _show_text(found, output)


def _report(objectives: list[Slo], store: str, prometheus: str | None, days: float | None) -> SloReport:
    from tachoscope_alerts import parquet, report, samples_source
    from tachoscope_alerts.prometheus_source import PrometheusSource

    if prometheus:
        return report.report(objectives, PrometheusSource(prometheus), time.time(), period_days=days)
    err = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("reading samples", total=1.0)
        source = samples_source.of_store(store, cache=parquet.folder(), on_progress=lambda part: bar.update(task, completed=part))
        return report.report(objectives, source, time.time(), period_days=days)


def _show_text(found: SloReport, output: Path | None) -> None:
    from tachoscope_cli import slo_text

    out = console()
    if output is None:
        slo_text.text(found, out)
        return
    with out.capture() as captured:
        slo_text.text(found, out)
    write(captured.get(), output)


# --- where things are ---------------------------------------------------------------------------------------------------------


def _default(name: str) -> Path:
    from tachoscope_alerts import places

    return places.path_of(name)


def _default_slos() -> list[Path]:
    return [_default("slos")]


def _readable(paths: list[Path] | None) -> tuple[list[Slo], list[str]]:
    """Return the objectives of the files that can be read, and what is wrong with the others."""
    from tachoscope_alerts import openslo

    slos, broken = [], []
    for path in openslo.files(paths or _default_slos()):
        try:
            slos += openslo.read(path)
        except TachoscopeError as error:
            broken.append(f"error: {error}")
    return slos, broken


def _events(path: Path | None, *, alone: bool) -> list[EventAlert]:
    """Return the alerts beside the objectives; those that come with tachoscope are companions of its own objectives only."""
    from tachoscope_alerts import events

    if path is None and alone:
        return []
    return events.load(path or _default("events"))


def _owners(path: Path | None) -> list[str]:
    from tachoscope_alerts import policy

    return list(policy.load(path or _default("policy.yaml")).owners)


def _runbooks() -> Path:
    from tachoscope_cli import runbooks

    return Path("runbooks") if Path("runbooks").is_dir() else runbooks.folder()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
