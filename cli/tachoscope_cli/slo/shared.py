"""What commands of `tachoscope slo` share: where objectives are, and what is said and written around their rules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli.common.options import print_notice, store_url
from tachoscope_cli.common.output import progress
from tachoscope_core.errors import TachoscopeError
from tachoscope_show.text import runbook_pages
from tachoscope_show.text.units import counted, seconds_of

if TYPE_CHECKING:
    from tachoscope_alerts.compile.event_alerts import EventAlert
    from tachoscope_alerts.compile.shipped import ShippedObjectives
    from tachoscope_alerts.measure.from_prometheus import PrometheusSource
    from tachoscope_alerts.measure.from_samples import SamplesSource
    from tachoscope_alerts.spec.policy import Policy
    from tachoscope_alerts.spec.slo import Slo
PATHS = "Files of OpenSLO, Sloth or Pyrra, or folders of them. Default: alerts/slos here, else those that came with tachoscope."

SlosOption = Annotated[list[Path] | None, typer.Option("--slos", metavar="PATH", help=f"{PATHS} Can be given several times.")]
PrometheusOption = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="URL", help="Ask this Prometheus. Default: the samples that agents keep in the store."),
]
ForOption = Annotated[
    str | None,
    typer.Option("--for", metavar="TIME", help="Length of the period up to now. Default: the objective's own period."),
]


def default(name: str) -> Path:
    """Return where a folder or file of alerts is: here, or what came with tachoscope."""
    from tachoscope_alerts.spec import files

    return files.path_of(name)


def default_slos() -> list[Path]:
    """Return where objectives are if none are named."""
    return [default("slos")]


def days_of(text: str) -> float:
    """Return the days of `--for`.

    Raises:
        TachoscopeError: it is not a duration.
    """
    try:
        return seconds_of(text) / 86400
    except TachoscopeError as error:
        raise TachoscopeError(f"--for {text!r} is not a duration above 0", fix="write 90m, 12h or 7d") from error


@contextlib.contextmanager
def samples(store: str | None, prometheus: str | None) -> Iterator[PrometheusSource | SamplesSource]:
    """Give the source of samples: a Prometheus if one is named, else the store, with a progress bar while it is read.

    Raises:
        TachoscopeError: the named store does not exist.
    """
    from tachoscope_alerts.measure import from_samples, parquet_cache
    from tachoscope_alerts.measure.from_prometheus import PrometheusSource

    if prometheus:
        yield PrometheusSource(prometheus)
        return
    if store and "://" not in store and not Path(store).is_dir():
        raise TachoscopeError(f"store {store} does not exist", fix="name the directory that agents write to, or --prometheus URL")
    with progress() as bar:
        task = bar.add_task("reading samples", total=1.0)
        cache = parquet_cache.folder()
        yield from_samples.of_store(store_url(store), cache=cache, on_progress=lambda part: bar.update(task, completed=part))


def begin_runbooks(slos: list[Slo], alerts: list[EventAlert], rules: Policy, folder: Path | None) -> None:
    """Print alerts without a runbook, or write skeletons for them to a folder."""
    from tachoscope_alerts.compile import runbooks as runbook_skeleton

    folders = [folder or runbook_pages.of_project(), runbook_pages.folder()]
    subjects = runbook_skeleton.subjects(slos, alerts)
    missing = [alert for alert in subjects if not any((place / f"{alert}.md").is_file() for place in folders)]
    if missing and folder is None:
        print_notice(f"without a runbook: {', '.join(missing)}; --runbooks {folders[0]} writes skeletons")
    elif folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for alert in missing:
            (folder / f"{alert}.md").write_text(runbook_skeleton.skeleton(subjects[alert], rules))
            print_notice(f"{folder / alert}.md is a skeleton: fill in each TODO")


def say_left_out(others: ShippedObjectives, events: Path | None) -> None:
    """Print what ships and is not built: a missing alert goes unnoticed."""
    from tachoscope_alerts.spec import files

    names = [("objective", [slo.name for slo in others.slos]), ("other alert", [event.alert for event in others.events])]
    parts = [
        f"{counted(len(found), noun)} ({', '.join(found[:2])}{', ...' if found[2:] else ''})" for noun, found in names if found
    ]
    if not parts:
        return
    ways = [f"--slos {files.path_of('slos')}"] if others.slos else []
    if events is not None and others.events:
        ways.append(f"copy of {files.path_of('events')} what {events} lacks")
    print_notice(f"not built from the shipped alerts: {' and '.join(parts)}; to build them too: {', and '.join(ways)}")
