"""`tachoscope slo`: check objectives and alerts, build what Prometheus and Alertmanager read of them, and report budgets."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tachoscope_cli.common import answers
from tachoscope_cli.common.options import (
    TEXT,
    TEXT_OF_THREE,
    CheckOption,
    FormatOption,
    JsonOption,
    StoreOption,
    needs_analysis,
    print_notice,
)
from tachoscope_cli.common.output import draw, end_with_problems, write, write_json
from tachoscope_cli.common.verdict import OutputOption
from tachoscope_cli.slo import backtest as slo_backtest
from tachoscope_cli.slo import export as slo_export
from tachoscope_cli.slo import shared as slo_around
from tachoscope_cli.slo.shared import (
    PATHS,
    ForOption,
    PrometheusOption,
    SlosOption,
    days_of,
    default,
    default_slos,
    samples,
)
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_show.text import runbook_pages
from tachoscope_show.text.units import counted, seconds_of

if TYPE_CHECKING:
    from tachoscope_alerts.compile.event_alerts import EventAlert
    from tachoscope_alerts.compile.recordings import Recording
    from tachoscope_alerts.compile.shipped import ShippedObjectives
    from tachoscope_alerts.lint.lint import Problem
    from tachoscope_alerts.spec.burn_rate_windows import Timing
    from tachoscope_alerts.spec.policy import Policy
    from tachoscope_alerts.spec.slo import Slo

slo_app = typer.Typer(no_args_is_help=True)

slo_app.command("backtest", epilog=slo_backtest.EPILOG)(slo_backtest.slo_backtest)
slo_app.command("export", epilog=slo_export.EPILOG)(slo_export.slo_export)

_LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
EventsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Folder of other alerts. Default: alerts/events, found as specs are, if the default specs are used.",
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Owners and their notification channels. Default: alerts/policy.yaml, found as specs are."),
]
CatalogueOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="Metrics of your own that specs may use, see docs/guides/slos.md. Can be given several times."
    ),
]


@slo_app.command(
    "check",
    epilog="Examples: `tachoscope slo check`, `tachoscope slo check my-slos/ --retention 60d`, "
    "`tachoscope slo check chat.yaml --catalogue chat-metrics.yaml`, `tachoscope slo check --prometheus http://127.0.0.1:9090`, "
    "`tachoscope slo check --page http://127.0.0.1:8000/metrics`, `tachoscope slo check --format json`",
)
def slo_check(
    paths: Annotated[list[Path] | None, typer.Argument(help=PATHS)] = None,
    events: EventsOption = None,
    policy: PolicyOption = None,
    runbooks: Annotated[Path | None, typer.Option(metavar="PATH", help="Folder of runbooks. Default: found as specs are.")] = None,
    generated: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Folder of built rules to check too. Default: alerts/generated here, if any."),
    ] = None,
    catalogue: CatalogueOption = None,
    retention: Annotated[str, typer.Option(metavar="TIME", help="How long your Prometheus keeps samples.")] = "35d",
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also check that this Prometheus has the series, and the buckets of the thresholds."),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Also check the buckets of a metrics page, such as an inference server's: a URL or file."),
    ] = None,
    format_: JsonOption = TEXT,
) -> None:
    """Check objectives and alerts: whether they can fire, whether their metrics and labels exist, whether they have an owner.

    Exits with 1 if there is an error. Notes may stay.
    """
    needs_analysis()
    from tachoscope_alerts.compile import shipped as shipped_module
    from tachoscope_alerts.lint import catalogue as catalogue_module
    from tachoscope_alerts.lint import lint

    slos, broken = _readable(paths)
    shipped = shipped_module.load()
    alone = bool(paths) and not shipped_module.is_whole(slos, shipped)
    alerts, recordings = _events(events, alone=alone), _recordings(alone=alone)
    known = catalogue_module.catalogue([*slos, *shipped.slos], catalogue or ())
    around = lint.Surroundings(known, _owners(policy), runbooks or runbook_pages.of_project(), seconds_of(retention), shipped)
    problems = lint.check(slos, alerts, around) + lint.check_recordings(recordings, known, alerts)
    folder = generated or Path("alerts/generated")
    if generated or (folder.is_dir() and not paths):
        problems += lint.check_rules(folder, known)
    problems += _missing_series(slos, prometheus, page)

    def answer(errors: int, notes: int) -> answers.SloChecked:
        rows = [answers.SloProblem(path=path, severity="error", what=what) for path, what in broken.items()]
        rows += [msgspec.convert(one, answers.SloProblem, from_attributes=True) for one in problems]
        return answers.SloChecked(objectives=len(slos), other_alerts=len(alerts), errors=errors, notes=notes, problems=rows)

    checked = f"{counted(len(slos), 'objective')} and {counted(len(alerts), 'other alert')}"
    end_with_problems(problems, broken, answer, checked, as_json=format_.value == "json")


def _missing_series(slos: list[Slo], prometheus: str | None, page: str | None) -> list[Problem]:
    from tachoscope_alerts.lint import series_there
    from tachoscope_alerts.spec.slo import AtMost, MoreThan
    from tachoscope_cli.inputs import slo_page

    problems: list[Problem] = []
    if prometheus:
        problems += series_there.check(slos, series_there.of_prometheus(prometheus, time.time()), "the Prometheus")
    if page:
        names = {slo.indicator.histogram.metric for slo in slos if isinstance(slo.indicator, AtMost | MoreThan)}
        problems += series_there.check(slos, series_there.of_buckets(slo_page.buckets(page, names)), "the page")
    return problems


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
    interval: Annotated[str, typer.Option(metavar="TIME", help="Interval between two evaluations of the rules.")] = "30s",
    scrape_interval: Annotated[str, typer.Option(metavar="TIME", help="Interval between two scrapes of your Prometheus.")] = "15s",
    scale: Annotated[
        float,
        typer.Option(min=1e-4, max=1.0, help="Factor for all windows, for a fire drill: 0.01 makes an hour 36 s."),
    ] = 1.0,
    runbooks: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Folder to write skeletons of missing runbooks to. Default: only list them."),
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Write PrometheusRule resources too, for Prometheus' operator.")
    ] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Label of the PrometheusRule resources, such as release=kube-prometheus-stack. Can be given several times.",
        ),
    ] = None,
    check: CheckOption = False,
) -> None:
    """Write rules, their tests and Alertmanager's configuration, made of objectives, alerts and policy.

    PrometheusRule resources come with --kubernetes or --label; those that are in the folder already are kept current.

    Exits with 1, and writes nothing, if `tachoscope slo check` would name an error; runbooks may be missing here.
    """
    needs_analysis()
    from tachoscope_alerts import build
    from tachoscope_alerts.compile import shipped as shipped_module
    from tachoscope_alerts.spec import policy as policy_module
    from tachoscope_alerts.spec import slo_files

    timing, labels = _timing(interval, scrape_interval, scale), _labels(label or [])
    objectives = slo_files.load(slos or default_slos())
    shipped = shipped_module.load()
    alone = bool(slos) and not shipped_module.is_whole(objectives, shipped)
    given, recordings = _events(events, alone=alone), _recordings(alone=alone)
    shipped_module.refuse_orphans(objectives, given, shipped)
    alerts = shipped_module.with_needed(given, objectives, shipped)
    rules = policy_module.load(policy or default("policy.yaml"))
    _end_on_errors(objectives, alerts, recordings, rules, shipped, catalogue or [])
    slo_around.say_left_out(shipped_module.left_out(objectives, alerts, shipped), events)
    manifests = kubernetes or bool(label) or build.has_manifests(out)
    made = build.contents(objectives, alerts, rules, timing, recordings, labels, manifests=manifests)
    if check:
        stale = build.stale(made, out)
        for name in stale:
            typer.echo(f"{name}: not current")
        raise typer.Exit(ExitCode.from_success(not stale))
    written = build.write(made, out)
    found = f"{counted(len(objectives), 'objective')} and {counted(len(alerts), 'other alert')}"
    print_notice(f"{found}: {counted(len(written), 'file')} in {out}")
    slo_around.begin_runbooks(objectives, alerts, rules, runbooks)


def _timing(interval: str, scrape_interval: str, scale: float) -> Timing:
    from tachoscope_alerts.spec.burn_rate_windows import Timing

    try:
        return Timing.of_servers(seconds_of(interval), seconds_of(scrape_interval), scale)
    except ValueError as error:
        raise TachoscopeError(f"--{error}", fix="give the interval of your Prometheus, if it is within these limits") from None


@slo_app.command(
    "report",
    epilog="Examples: `tachoscope slo report`, `tachoscope slo report --prometheus http://127.0.0.1:9090`, "
    "`tachoscope slo report --for 7d --format html --output budgets.html`",
)
def slo_report(
    slos: SlosOption = None,
    store: StoreOption = None,
    prometheus: PrometheusOption = None,
    for_: ForOption = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
) -> None:
    """Report objectives: what was attained, what is left of each error budget, its burn rate, and what spends it.

    What has no samples is not measured, and not met.
    """
    needs_analysis()
    from tachoscope_alerts.report import report
    from tachoscope_alerts.spec import slo_files

    objectives, days = slo_files.load(slos or default_slos()), days_of(for_) if for_ else None
    with samples(store, prometheus) as source:
        found = report.report(objectives, source, time.time(), period_days=days)
    if format_.value == "json":
        write_json(found, output)
    elif format_.value == "html":
        from tachoscope_show.slo import html as slo_html

        write(slo_html.page(found, _runbook_base()), output)
    else:
        from tachoscope_show.slo import text as slo_text

        draw(lambda out: slo_text.text(found, out), output)


# --- where things are ---------------------------------------------------------------------------------------------------------


def _readable(paths: list[Path] | None) -> tuple[list[Slo], dict[str, str]]:
    """Return the readable objectives, and the errors of the others by path."""
    from tachoscope_alerts.spec import slo_files

    slos: list[Slo] = []
    broken: dict[str, str] = {}
    for path in slo_files.files(paths or default_slos()):
        try:
            slos += slo_files.read(path)
        except TachoscopeError as error:
            broken[str(path)] = str(error)
    return slos, broken


def _events(path: Path | None, *, alone: bool) -> list[EventAlert]:
    """Return the other alerts; the shipped ones belong to the shipped objectives only."""
    from tachoscope_alerts.compile import event_alerts as events

    if path is None and alone:
        return []
    return events.load(path or default("events"))


def _recordings(*, alone: bool) -> list[Recording]:
    """Return the recordings of jobs and the fleet; own specs are built beside them, without repeating them."""
    from tachoscope_alerts.compile import recordings

    return [] if alone else recordings.load(default("recordings.yaml"))


def _end_on_errors(
    slos: list[Slo],
    alerts: list[EventAlert],
    recordings: list[Recording],
    rules: Policy,
    shipped: ShippedObjectives,
    catalogues: list[Path],
) -> None:
    from tachoscope_alerts.lint import catalogue, lint

    known = catalogue.catalogue(slos, catalogues)
    problems = lint.check(slos, alerts, lint.Surroundings(known, rules.owners, None, float("inf"), shipped))
    problems += lint.check_recordings(recordings, known, alerts)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        for problem in errors:
            typer.echo(str(problem))
        print_notice(f"{counted(len(errors), 'error')}: nothing was written")
        raise typer.Exit(ExitCode.NOT_WELL)


def _labels(given: list[str]) -> dict[str, str]:
    found = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not (equals and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)):
            raise TachoscopeError(
                f"--label {one!r} is not a label of a Kubernetes resource", fix="write --label release=prometheus"
            )
        found[key] = value
    return found


def _owners(path: Path | None) -> list[str]:
    from tachoscope_alerts.spec import policy

    return list(policy.load(path or default("policy.yaml")).owners)


def _runbook_base() -> str:
    """Return the base of runbook links: the policy's URL, or the folder beside the page for the example policy."""
    from urllib.parse import urlsplit

    from tachoscope_alerts.spec import policy

    base = policy.load(default("policy.yaml")).runbook_base
    host = urlsplit(base).hostname or ""
    return "runbooks" if f".{host}".endswith(".example.com") else base
