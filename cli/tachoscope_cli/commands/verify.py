"""`tachoscope verify`: reads checkpoints back now and holds them against their manifests in the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from rich.filesize import decimal
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from tachoscope_cli.common.options import print_notice, store_url
from tachoscope_cli.common.output import console, progress
from tachoscope_cli.inputs import saved_checkpoints
from tachoscope_cli.inputs.saved_checkpoints import Candidate, is_trusted, newest_job, of_job, of_paths
from tachoscope_core.checkpoints.verification import ReadBack
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.storage.compacted import all_segments
from tachoscope_core.storage.store import Store
from tachoscope_show.text.safe_text import safe

_PIPE_WIDTH = 10_000
OnBytes = Callable[[int], None]


def verify_checkpoints(
    checkpoints: Sequence[str], *, job: str | None, store: str | None, last: bool, owner: int | None
) -> ExitCode:
    """Verify checkpoints, or those of a job, and print what came of it; `last`: only the path of the newest that is sound.

    Raises:
        TachoscopeError: there is nothing to verify.
    """
    opened = Store(store_url(store))
    if job is not None and not all_segments(opened, job):
        raise TachoscopeError(f"store {opened.url} has no records of job {job!r}", fix="tachoscope store ls")
    if checkpoints:
        paths = list(dict.fromkeys(map(os.path.realpath, checkpoints)))
        candidates = of_paths(opened, paths, job)
    else:
        candidates = of_job(opened, job or newest_job(opened, owner))
    if last:
        for candidate in candidates:
            if candidate.owner is not None and not is_trusted(candidate.owner, owner):
                whose = f"{candidate.path} was saved by a job of {candidate.owner}, not by yours"
                raise TachoscopeError(
                    whose, fix=f"--owner {candidate.owner.uid}, if that user may run code as you", exit_code=ExitCode.NOT_WELL
                )
    return _print_last(candidates, owner) if last else _print_all(candidates)


def _verified(
    candidates: Iterable[Candidate], total_bytes: int, trusted: int | None = None
) -> Iterator[tuple[Candidate, ReadBack]]:
    """Verify candidates in turn, with a progress bar on a terminal."""
    with progress(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("reading back", total=total_bytes or None)
        for candidate in candidates:
            yield candidate, saved_checkpoints.verdict(candidate, trusted, lambda size: bar.advance(task, size))


def _print_last(candidates: list[Candidate], trusted: int | None) -> ExitCode:
    """Print the newest valid checkpoint. The rejected newer ones are named on stderr."""
    for candidate, verdict in _verified(candidates, candidates[0].bytes, trusted):
        if verdict.result == "sound":
            _print_path(candidate.path)
            return ExitCode.OK
        print_notice(f"{candidate.path} is {verdict.result}: {verdict.fault}")
    sys.stderr.write("tachoscope: none is sound\n")
    return ExitCode.NOT_WELL


def _print_path(path: str) -> None:
    """Print a path verbatim to a program, and without control characters to a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(f"{safe(path)}\n")
    else:
        sys.stdout.buffer.write(os.fsencode(path) + b"\n")
    sys.stdout.flush()


def _print_all(candidates: list[Candidate]) -> ExitCode:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in ("step of attempt", "attempt", "saved", "size", "verdict"):
        table.add_column(header, no_wrap=header != "verdict", overflow="fold")
    table.add_column("checkpoint", overflow="fold")
    results = set()
    for candidate, verdict in _verified(candidates, sum(candidate.bytes for candidate in candidates)):
        results.add(verdict.result)
        table.add_row(*_row(candidate, verdict))
    out = console()
    if not out.is_terminal:  # a path that is broken into lines is none
        out.width = _PIPE_WIDTH
    out.print(table)
    if "corrupt" in results:
        return ExitCode.FOUND
    return ExitCode.from_success(results == {"sound"})


def _row(candidate: Candidate, verdict: ReadBack) -> list[str | Text]:
    checkpoint = candidate.checkpoint
    when = ["", "", ""]
    if checkpoint is not None:
        saved = datetime.fromtimestamp(checkpoint.saved_at).astimezone()
        when = [str(checkpoint.step), str(checkpoint.attempt), f"{saved:%Y-%m-%d %H:%M:%S}"]
    by = "" if candidate.has_manifest else " (by its CRC-32; no manifest)"
    words = {
        "sound": Text(f"sound{by}", style="green"),
        "corrupt": Text(f"CORRUPT: {_short(candidate, verdict)}", style="bold red"),
        "unreachable": Text(f"not read: {_short(candidate, verdict)}", style="yellow"),
        "unverifiable": Text(_short(candidate, verdict), style="yellow"),
    }
    size = decimal(candidate.bytes) if candidate.bytes else ""
    return [*when, size, words[verdict.result], candidate.path]


def _short(candidate: Candidate, verdict: ReadBack) -> str:
    """Return the fault without the path of the checkpoint, which is printed beside it."""
    return verdict.fault.removeprefix(f"{candidate.path}: ").removeprefix(f"{candidate.path}/")
