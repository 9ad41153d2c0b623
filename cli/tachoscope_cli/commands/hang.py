"""`tachoscope hang`: which rank keeps the others, by what was collected at the hang or dumps of PyTorch's flight recorder."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption, StoreOption
from tachoscope_cli.common.verdict import FailOnOption, OutputOption
from tachoscope_cli.inputs.places import Kind, kind_of, must_be_there
from tachoscope_core.errors import TachoscopeError


def _means_job(name: str, store: str | None, attempt: int | None) -> bool:
    """Return whether a name means a job, also where a file or folder here has the same name."""
    if store is not None or attempt is not None or not os.path.lexists(name):
        return True
    from tachoscope_cli.common.options import store_url
    from tachoscope_core.storage.store import Store

    try:
        return name in Store(store_url(None)).jobs()
    except TachoscopeError:  # dumps need no store
        return False


def hang(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB|PATH...",
            help="A job of the store; or dumps, or folders of them: one per rank. `./NAME` is always a folder.",
        ),
    ],
    job: Annotated[
        str | None, typer.Option(help="What the report on dumps calls the job. Default: the name of the folder.")
    ] = None,
    store: StoreOption = None,
    attempt: Annotated[int | None, typer.Option(help="The job's attempt. Default: that of its last hang.")] = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnOption = None,
) -> None:
    """Show why a job hangs: where its processes stand, and which rank the others wait for.

    Of a job: what was collected by itself when it hung. Of dumps of PyTorch's flight recorder (NCCL, gloo): which rank did not join
    a collective, or joined another one. Nothing in them is executed.
    """
    verdict.prepare_process()
    from tachoscope_core.records.records import is_job_name

    if len(paths) == 1 and is_job_name(paths[0]) and _means_job(paths[0], store, attempt):
        from tachoscope_cli.inputs.hang_evidence import hang_of_job

        verdict.end(hang_of_job(paths[0], store, attempt), format_.value, output, fail_on)
        return
    if store is not None or attempt is not None:
        raise TachoscopeError("--store and --attempt are about a job of a store, not about dumps", fix="leave them out")
    must_be_there(paths, "a folder of dumps, one per rank")
    from tachoscope_cli.inputs import judged

    if kind_of(paths) is not Kind.DUMPS:
        raise TachoscopeError(
            f"{paths[0]} contains no flight recorder dumps",
            fix="dumps are files such as nccl_trace_rank_0: see docs/guides/hangs.md; of a job of the store give its name",
        )
    verdict.end(judged.hang_report(paths, job), format_.value, output, fail_on)
