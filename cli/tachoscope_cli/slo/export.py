"""`tachoscope slo export`: objectives written for other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tachoscope_cli.common.options import needs_analysis, print_notice
from tachoscope_cli.common.output import write
from tachoscope_cli.common.verdict import OutputOption
from tachoscope_cli.slo.shared import PATHS, default_slos
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode

EPILOG = "Examples: `tachoscope slo export`, `tachoscope slo export my-slos/chat.yaml --format pyrra --output chat.yaml`"


class Format(StrEnum):
    """What an objective is written for."""

    openslo = "openslo"
    pyrra = "pyrra"


def slo_export(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", help=PATHS)] = None,
    format_: Annotated[
        Format, typer.Option("--format", help="openslo: version 1, with queries. pyrra: a resource.")
    ] = Format.openslo,
    output: OutputOption = None,
) -> None:
    """Write objectives for other tools, as one YAML file.

    Exits with 1 if the format cannot say what one of them counts; the others are written.
    """
    needs_analysis()
    from tachoscope_alerts.compile import other_formats
    from tachoscope_alerts.compile.yaml_writer import to_yaml
    from tachoscope_alerts.spec import slo_files

    make = other_formats.pyrra if format_ is Format.pyrra else other_formats.openslo
    made, refused = [], []
    for slo in slo_files.load(paths or default_slos()):
        try:
            made.append(to_yaml(make(slo)))
        except TachoscopeError as error:
            refused.append(str(error))
    write("---\n".join(made), output)
    for reason in refused:
        print_notice(f"not written: {reason}")
    raise typer.Exit(ExitCode.from_success(not refused))
