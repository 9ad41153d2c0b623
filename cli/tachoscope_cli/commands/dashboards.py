"""`tachoscope dashboards`: build the Grafana boards, check them, and push them to a Grafana."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from tachoscope_cli.common import answers
from tachoscope_cli.common.options import TEXT, CheckOption, JsonOption, needs_dashboards, print_notice
from tachoscope_cli.common.output import end_with_problems, progress
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_show.text import runbook_pages
from tachoscope_show.text.units import counted, moment_of

if TYPE_CHECKING:
    from tachoscope_dashboards.check import Surroundings
    from tachoscope_dashboards.lint.board_json import Dashboard
    from tachoscope_dashboards.lint.lint import Problem

dashboards_app = typer.Typer(no_args_is_help=True)
MOMENTS = "2026-03-01T14:30 in this machine's time zone, 2026-03-01T14:30Z, or Unix seconds"
SlosOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--slos",
        metavar="PATH",
        help="OpenSLO files, or folders of them, with the objectives and thresholds that the boards show. "
        "Default: alerts/slos here, else those that came with tachoscope. Can be given several times.",
    ),
]
_SHIPPED = "Default: alerts/policy.yaml here, else the one that came with tachoscope."
PolicyOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"Policy file with the addresses of runbooks and explorer, which panels link to. {_SHIPPED}"),
]


@dashboards_app.command(
    "build",
    epilog="Examples: `tachoscope dashboards build`, `tachoscope dashboards build --check`, "
    "`tachoscope dashboards build --policy our-policy.yaml --out boards/ --configmaps`",
)
def dashboards_build(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("dashboards/generated"),
    policy: PolicyOption = None,
    slos: SlosOption = None,
    configmaps: Annotated[
        bool, typer.Option("--configmaps", help="Write a ConfigMap for each board too, for the sidecar of Grafana's chart.")
    ] = False,
    v2: Annotated[
        bool, typer.Option("--v2", help="Write a resource in schema V2 for each board too, for Git Sync and the API of Grafana 13.")
    ] = False,
    check: CheckOption = False,
) -> None:
    """Write each board as JSON that Grafana 11 to 13 load. ConfigMaps and resources that are in the folder are kept current.

    The same input gives the same bytes.
    """
    needs_dashboards("grafanalib")
    from tachoscope_dashboards import build

    made = _boards(policy, slos)
    if check:
        stale = build.check(made, out, configmaps=configmaps, v2=v2)
        for path in stale:
            typer.echo(f"{path}: not current")
        raise typer.Exit(ExitCode.from_success(not stale))
    written = build.build(made, out, configmaps=configmaps, v2=v2)
    print_notice(f"{counted(len(made), 'board')}: {counted(len(written), 'file')} in {out}")


@dashboards_app.command(
    "check",
    epilog="Examples: `tachoscope dashboards check`, `tachoscope dashboards check --prometheus http://127.0.0.1:9090`, "
    "`tachoscope dashboards check our-boards/ --catalogue our-metrics.yaml --exceptions our-exceptions.yaml`, "
    "`tachoscope dashboards check --format json`",
)
def dashboards_check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="Dashboards as JSON, or folders of them. Default: those of the suite."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Run all expressions on this Prometheus, and list those without a result."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help=f"Time at which --prometheus is queried: {MOMENTS}. Default: now."),
    ] = None,
    policy: PolicyOption = None,
    slos: SlosOption = None,
    catalogue: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Metrics of your own that boards may use, see docs/guides/slos.md. Can be given several times."
        ),
    ] = None,
    exceptions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of exceptions from the rules, with reasons. Default: those of the suite."),
    ] = None,
    runbooks: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of runbooks. Default: runbooks here, else those that came with tachoscope."),
    ] = None,
    format_: JsonOption = TEXT,
) -> None:
    """Check boards: expressions, names of metrics and labels, rules of Grafana's linter, links.

    Exits with 1 if there is an error. Notes may stay.
    """
    needs_dashboards("grafanalib")
    from tachoscope_dashboards import check
    from tachoscope_dashboards.lint import lint as linter

    if at and not prometheus:
        raise TachoscopeError("--at requires --prometheus", fix="--prometheus URL")
    excepted_at = exceptions or linter.EXCEPTIONS
    around = _surroundings(policy, slos, catalogue or (), runbooks or runbook_pages.of_project(), excepted_at)
    boards, broken = _readable(paths) if paths else (list(around.ours), {})
    problems = check.check(boards, around, exceptions_at="" if paths else str(excepted_at))
    if prometheus:
        problems = sorted([*problems, *_answers(boards, prometheus, moment_of(at) if at else None)])
    _end_check(boards, broken, problems, as_json=format_.value == "json")


def _end_check(boards: list[Dashboard], broken: dict[str, str], problems: list[Problem], *, as_json: bool) -> NoReturn:
    from tachoscope_dashboards.lint.expressions import board_expressions

    expressions = sum(1 for board in boards for _ in board_expressions(board))

    def answer(errors: int, notes: int) -> answers.BoardsChecked:
        rows = [answers.BoardProblem(board=path, severity="error", what=what) for path, what in broken.items()]
        rows += [msgspec.convert(one, answers.BoardProblem, from_attributes=True) for one in problems]
        return answers.BoardsChecked(boards=len(boards), expressions=expressions, errors=errors, notes=notes, problems=rows)

    checked = f"{counted(len(boards), 'board')} with {counted(expressions, 'expression')}"
    end_with_problems(problems, broken, answer, checked, as_json=as_json)


@dashboards_app.command(
    "push",
    epilog="Examples: `tachoscope dashboards push --url https://grafana.example.com --token-file token --dry-run`, "
    "`tachoscope dashboards push --url http://127.0.0.1:3000 --token-env GRAFANA_TOKEN --folder Training`",
)
def dashboards_push(
    url: Annotated[str, typer.Option(metavar="URL", help="Address of the Grafana, such as https://grafana.example.com.")],
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token of a service account that has the role Editor.")
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the token, instead of a file.")
    ] = None,
    folder: Annotated[str, typer.Option(metavar="NAME", help="Folder in Grafana; created if it does not exist.")] = "tachoscope",
    policy: PolicyOption = None,
    slos: SlosOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Also overwrite boards that were created or changed in Grafana.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing: print what would be done.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Send the token over plain http:// to another machine.")] = False,
) -> None:
    """Write the boards to a Grafana. Current boards, and boards that were changed there, are left as they are.

    Uses schema V2 if the Grafana has the API for it, else the classic schema.

    Exits with 1 if a board was refused.
    """
    needs_dashboards("grafanalib")
    from tachoscope_dashboards import push
    from tachoscope_dashboards.grafana_api import Grafana

    grafana, boards = Grafana(url, _token(token_file, token_env), insecure=insecure), _boards(policy, slos)
    would = "would be " if dry_run else ""
    refused = 0
    for done in push.push(grafana, boards, folder, overwrite=overwrite, dry_run=dry_run):
        refused += done.what == "refused"
        word = done.what if done.what == "unchanged" else would + done.what
        typer.echo(f"{done.uid}: {word}" + (f": {done.why}" if done.why else f" ({grafana.url}/d/{done.uid})"))
    for uid in push.superseded(grafana, boards):
        what = "left by an earlier version, which used such uids; delete it once nothing links to it"
        typer.echo(f"{uid}: {what} ({grafana.url}/d/{uid})")
    raise typer.Exit(ExitCode.from_success(not refused))


# --- what the commands need ---------------------------------------------------------------------------------------------------


def _boards(path: Path | None, slos: list[Path] | None) -> list[dict[str, Any]]:
    """Return the boards of the suite, with a policy's links and the thresholds of objectives, which are printed."""
    from tachoscope_alerts.spec import files, policy
    from tachoscope_dashboards.boards.all import boards
    from tachoscope_dashboards.parts import slo_objectives
    from tachoscope_dashboards.parts.grafana_json import to_json

    with slo_objectives.specs_of(slos or ()):
        print_notice(f"{counted(len(slo_objectives.every()), 'objective')} of {', '.join(map(str, slo_objectives.specs()))}")
        return [to_json(board) for board in boards(policy.load(path or files.path_of("policy.yaml")))]


def _surroundings(
    path: Path | None, specs: list[Path] | None, catalogues: Iterable[Path], runbooks: Path, exceptions: Path
) -> Surroundings:
    from tachoscope_alerts.compile import event_alerts
    from tachoscope_alerts.lint import catalogue
    from tachoscope_alerts.spec import files, policy, slo_files
    from tachoscope_dashboards import check
    from tachoscope_dashboards.lint import board_json
    from tachoscope_dashboards.lint import lint as linter

    slos = slo_files.load(specs or [files.path_of("slos")])
    linked: dict[str, list[str]] = {}
    alerts = [(slo.dashboard, slo.alert) for slo in slos]
    alerts += [(event.dashboard, event.alert) for event in event_alerts.load(files.path_of("events"))]
    for board, alert in alerts:
        if board:
            linked.setdefault(board, []).append(alert)
    return check.Surroundings(
        known=catalogue.catalogue(slos, catalogues),
        policy=policy.load(path or files.path_of("policy.yaml")),
        runbooks=runbooks,
        ours=[board_json.dashboard(board, board["uid"]) for board in _boards(path, specs)],
        linked=linked,
        excepted=linter.exceptions(exceptions, check.rule_names()),
    )


def _readable(paths: list[Path]) -> tuple[list[Dashboard], dict[str, str]]:
    """Return the readable dashboards, and the errors of the others by path."""
    from tachoscope_dashboards.lint import board_json

    boards: list[Dashboard] = []
    broken: dict[str, str] = {}
    for path in board_json.files(paths):
        try:
            boards.append(board_json.read(path))
        except TachoscopeError as error:
            broken[str(path)] = str(error)
    return boards, broken


def _answers(boards: list[Dashboard], url: str, at: float | None) -> list[Problem]:
    from tachoscope_dashboards import check_answers as answers

    with progress() as bar:
        task = bar.add_task("asking expressions", total=1.0)
        on_progress: Callable[[float], None] = lambda part: bar.update(task, completed=part)  # noqa: E731
        return answers.check(boards, url, on_progress, at)


def _token(file: Path | None, variable: str | None) -> str:
    if (file is None) == (variable is None):
        raise TachoscopeError("no token given, or two", fix="give either --token-file or --token-env")
    if file is not None:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise TachoscopeError(f"{file} cannot be read: {reason}", fix="name a file that contains only the token") from None
    found = os.environ.get(variable or "", "").strip()
    if not found:
        raise TachoscopeError(f"the environment variable {variable} is not set", fix="name a variable that contains the token")
    return found
