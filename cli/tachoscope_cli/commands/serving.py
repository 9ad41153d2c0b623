"""`tachoscope serving`: where requests of an inference server wait."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption
from tachoscope_cli.common.verdict import FailOnOption, OutputOption
from tachoscope_cli.inputs.places import places_of
from tachoscope_cli.inputs.serving_options import ServingOptions
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_core.report.report import Report


def serving(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="URL|FILE|SELECTOR",
            help="The metrics page of a live server, such as http://HOST:8000/metrics; or a recording that --save made; or, with "
            "--prometheus, the series to read, such as 'job=\"vllm\"'. Default: the records of --job.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            help="Name of a service with records in the store. With a URL, file or selector: name of the server in the report."
        ),
    ] = None,
    store: StoreOption = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="How long to observe a live server. Default: 60s. With a Prometheus or records: how far back. Default: 1h.",
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two samples. Default: 1s, less for a short observation.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Read the server's metrics from this Prometheus instead.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the samples to this file, to analyze them again or with `tachoscope capacity`."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Accelerator of the server, such as 'NVIDIA H100', for its memory bandwidth."),
    ] = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnOption = None,
) -> None:
    """Show where the requests of an inference server wait, and what to do about it.

    A live vLLM, SGLang, TGI or Triton is measured from outside; nothing is installed on it.
    """
    verdict.prepare_process()
    _check(target, job, prometheus)
    looking = ServingOptions(target or "", for_, every, prometheus, save, device or "", job or "")
    if target is None:
        report = _of_records(looking, job, store)
    elif prometheus is None and os.path.isfile(target):
        report = _of_recording(target, looking)
    else:
        from tachoscope_cli.inputs import live_server

        report = live_server.analyze(looking, Console(stderr=True))
    verdict.end(report, format_.value, output, fail_on)


def _check(target: str | None, job: str | None, prometheus: str | None) -> None:
    """Refuse a target that is not an address, before it is polled for a minute."""
    if job is not None and not job.strip():
        raise TachoscopeError("--job is empty", fix="tachoscope store ls")
    if target is None or prometheus is not None or "://" in target or os.path.exists(target):
        return
    if set(target) & set('={}"'):
        raise TachoscopeError(f"{target} selects series of a Prometheus", fix="add --prometheus URL")
    if not target.strip() or target.endswith(".gz") or target.startswith(("/", ".")):
        raise TachoscopeError(f"{target!r} does not exist", fix="name a recording that --save made, or http://HOST:PORT/metrics")


def _of_records(looking: ServingOptions, job: str | None, store: str | None) -> Report:
    from tachoscope_analyzers.records.load import serving_job
    from tachoscope_cli.inputs import live_server, records

    if job is None:
        raise TachoscopeError(
            "name a server, a recording, or the --job of a service", fix="tachoscope serving http://HOST:PORT/metrics"
        )
    found = records.records_of(places_of(None, store), job)
    if not serving_job(found):
        raise TachoscopeError(f"job {job!r} is a training, not an inference service", fix=f"tachoscope analyze --job {job}")
    return live_server.analyze_service(found, looking)


def _of_recording(path: str, looking: ServingOptions) -> Report:
    from tachoscope_cli.inputs import live_server, paths

    recording = paths.recording([path])
    if recording is None:
        raise TachoscopeError(f"{path} is not a recording of an inference server", fix=f"tachoscope analyze {path}")
    if looking.for_ or looking.every or looking.save is not None:
        raise TachoscopeError("--for, --every and --save apply to live servers, not to recordings")
    return live_server.analyze_recording(recording, looking.name, looking.device)
