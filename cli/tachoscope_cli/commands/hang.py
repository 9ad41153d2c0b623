"""`tachoscope hang`: which rank keeps the others, from the dumps of PyTorch's flight recorder."""

from __future__ import annotations

from typing import Annotated

import typer

from tachoscope_cli.common import verdict
from tachoscope_cli.common.options import TEXT_OF_THREE, FormatOption
from tachoscope_cli.common.verdict import FailOnOption, OutputOption
from tachoscope_cli.inputs.places import Kind, kind_of, must_be_there
from tachoscope_core.errors import TachoscopeError


def hang(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Dumps, or folders of them: one per rank.")],
    job: Annotated[str | None, typer.Option(help="What the report calls the job. Default: the name of the folder.")] = None,
    format_: FormatOption = TEXT_OF_THREE,
    output: OutputOption = None,
    fail_on: FailOnOption = None,
) -> None:
    """Show why a job hangs: which rank did not join a collective, or joined another one.

    Reads dumps of PyTorch's flight recorder (NCCL, gloo). Nothing in them is executed.
    """
    verdict.prepare_process()
    must_be_there(paths, "a folder of dumps, one per rank")
    from tachoscope_cli.inputs import judged

    if kind_of(paths) is not Kind.DUMPS:
        raise TachoscopeError(
            f"{paths[0]} contains no flight recorder dumps",
            fix="dumps are files such as nccl_trace_rank_0: see docs/guides/hangs.md",
        )
    verdict.end(judged.hang_report(paths, job), format_.value, output, fail_on)
