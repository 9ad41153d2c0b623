"""Options of `tachoscope analyze` that are commands of their own since 2026-11-27. They work for one release, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TextJsonOrHtml, print_notice
from tachoscope_cli.common.verdict import Level
from tachoscope_cli.inputs import baselines
from tachoscope_cli.inputs.places import places_of
from tachoscope_cli.inputs.serving_options import ServingOptions, refuse_looks
from tachoscope_core.errors import TachoscopeError


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerOptions:
    """What was given of them; see the commands `goodput`, `trace` and `serving`."""

    goodput: str | None = None
    prices: Path | None = None
    maintenance: Path | None = None
    scheduler: tuple[str, ...] = ()
    tables: Path | None = None
    perfetto: Path | None = None
    executor: str = "local"
    replay: bool = True
    serving: str | None = None
    for_: str | None = None
    every: str | None = None
    prometheus: str | None = None
    save: Path | None = None
    device: str | None = None

    @property
    def is_of_another_command(self) -> bool:
        """It is about a whole life, or about a live server."""
        return self.goodput is not None or self.serving is not None

    @property
    def of_life(self) -> str:
        """The first option that is about a whole life; empty: none."""
        return _first({"--prices": self.prices, "--maintenance": self.maintenance, "--scheduler": self.scheduler})

    @property
    def of_traces(self) -> str:
        """The first option that is about profiler traces; empty: none."""
        return _first({"--tables": self.tables, "--perfetto": self.perfetto, "--executor": self.executor != "local"})

    def looking(self, job: str | None) -> ServingOptions:
        return ServingOptions(self.serving or "", self.for_, self.every, self.prometheus, self.save, self.device or "", job or "")


def _first(options: dict[str, object]) -> str:
    return next((name for name, value in options.items() if value), "")


def check(
    former: FormerOptions, paths: Sequence[str] | None, job: str | None, store: str | None, against: str, *, gate: bool
) -> None:
    """Refuse options that do not go together, also with the ones that remain.

    Args:
        against: the option that names a baseline; empty: none. gate: whether a regression shall end the command with an exit code.

    Raises:
        TachoscopeError: they do not.
    """
    if store and paths:
        raise TachoscopeError("give either PATH or --store, not both")
    goodput = former.goodput
    if goodput is not None and not goodput.strip():
        raise TachoscopeError("--goodput requires a job name", fix="tachoscope store ls")
    if former.of_life and not goodput:
        raise TachoscopeError(f"{former.of_life} is an option of `tachoscope goodput`", fix="tachoscope goodput JOB")
    if goodput and job not in {None, goodput}:
        raise TachoscopeError(f"--goodput {goodput} and --job {job} name two jobs", fix=f"tachoscope goodput {goodput}")
    if former.of_traces and not (paths or goodput):
        raise TachoscopeError(
            f"{former.of_traces} works on profiler traces, and none is named", fix="tachoscope trace trace.json.gz"
        )
    if goodput and former.of_traces:
        raise TachoscopeError(f"{former.of_traces} works on profiler traces, and --goodput on the records of a job")
    baselines.check(against, "--goodput" if goodput else "--serving" if former.serving is not None else "", gate=gate)
    if former.serving is not None and (paths or store or goodput or former.of_traces):
        raise TachoscopeError("--serving cannot be combined with PATH, --store, --goodput or trace options")
    if former.serving is None:
        refuse_looks(_first({"--prometheus": former.prometheus, "--save": former.save, "--every": former.every}))
        if goodput:
            refuse_looks(former.looking(job).option_given)


def print_new_commands(former: FormerOptions, job: str | None) -> None:
    """Print the new commands of options that `analyze` still accepts."""
    of_traces = former.of_traces or ("" if former.replay else "--no-replay")
    for option, command in ((of_traces, "trace"), (former.looking(job).option_given, "serving")):
        if option:
            print_notice(f"{option} is an option of `tachoscope {command}` now; `analyze` takes it in this release")


def run(
    former: FormerOptions,
    paths: Sequence[str] | None,
    job: str | None,
    store: str | None,
    format_: TextJsonOrHtml,
    output: Path | None,
    fail_on: Level | None,
) -> None:
    """Do what is another command's today.

    Raises:
        TachoscopeError: as that command.
    """
    if former.serving is not None:
        from tachoscope_cli.inputs import live_server

        print_notice("`tachoscope analyze --serving` is `tachoscope serving` now; the old form works in this release")
        report = live_server.analyze(former.looking(job), Console(stderr=True))
    else:
        from tachoscope_cli.inputs import job_life

        print_notice("`tachoscope analyze --goodput` is `tachoscope goodput` now; the old form works in this release")
        options = job_life.Options(former.prices, former.maintenance, former.scheduler)
        report = job_life.analyze(places_of(paths, store), str(former.goodput), options)
    verdict.end(report, format_.value, output, fail_on)
