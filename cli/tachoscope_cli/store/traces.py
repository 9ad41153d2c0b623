"""`tachoscope store add-traces` and `traces`: profiler traces beside the records of the job that they are of."""

from __future__ import annotations

import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import DownloadColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.table import Table

from tachoscope_cli.common.options import StoreOption, needs_analysis, print_notice, store_url
from tachoscope_cli.common.output import console, progress
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_core.storage.store import Store
    from tachoscope_core.storage.traces import StoredTrace

ADD_EXAMPLES = (
    "Examples: `tachoscope store add-traces resnet traces/`, "
    "`tachoscope store add-traces resnet 'runs/*.json.gz' --recording after-the-fix`"
)
TRACES_EXAMPLE = "Example: `tachoscope store traces resnet`"

_MOST_READ = 8
"""Traces of a recording: more would take longer than somebody waits, and an explorer reads those that are looked at."""

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]


def add_traces(
    job: JobArgument,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Traces that were recorded together: files, directories, patterns.")
    ],
    recording: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the recording. Default: the current time.")] = None,
    store: StoreOption = None,
) -> None:
    """Put profiler traces of a job into the store, where `tachoscope explore` shows them on the job's page Trace.

    One recording is one call: a file for each rank. Files of the same name in a recording of the same name are replaced.
    """
    needs_analysis()
    from tachoscope_cli.inputs.traces import are_traces
    from tachoscope_core.storage.store import Store
    from tachoscope_core.storage.traces import recording_name

    opened = Store(store_url(store))
    if not are_traces(paths):
        raise TachoscopeError(f"{paths[0]} is not a profiler trace", fix="records get into the store by themselves: tachoscope run")
    name = recording or recording_name(time.time())
    written = store_traces(opened, job, name, paths, Console(stderr=True))
    size = sum(one.bytes for one in written)
    print_notice(f"{len(written)} traces ({size / 2**20:,.1f} MiB) are recording {name} of job {job} in {opened.url}")
    given = f" --store {opened.url}" if store else ""
    print_notice(f"next: tachoscope explore{given}, page /trace?{urllib.parse.urlencode({'job': job, 'trace': name})}")


def store_traces(store: Store, job: str, recording: str, paths: list[str], progress_on: Console) -> list[StoredTrace]:
    """Put traces into a store, with a progress bar on a terminal; all of them are looked at before the first is written.

    For a store on this machine a few are read whole: what is read is kept, and then they open at once.

    Raises:
        TachoscopeError: one is not a trace, or cannot be read or written.
    """
    from tachoscope_analyzers.trace.reading.read import check, read
    from tachoscope_analyzers.trace.reading.trace_files import labels, trace_files
    from tachoscope_core.storage import traces as stored_traces

    files, _ = trace_files(paths)
    whole = _MOST_READ if store.local else 0
    with progress(MofNCompleteColumn(), on=progress_on) as bar:
        for number, file in enumerate(bar.track(files, description="reading traces")):
            (read if number < whole else check)(file)
    names = {file: _name(file, label) for file, label in labels(files).items()}
    with progress(DownloadColumn(), TimeRemainingColumn(), on=progress_on) as bar:
        task = bar.add_task("writing traces", total=sum(file.stat().st_size for file in files))
        written, before = [], 0
        for file in files:
            found = stored_traces.write(
                store,
                job,
                recording,
                file,
                name=names[file],
                progress=lambda done, _, before=before: bar.update(task, completed=before + done),  # type: ignore[misc]
            )
            before += found.bytes
            written.append(found)
    return written


def _name(file: Path, label: str) -> str:
    """Return a file's own name, or one made of its path where another file of the recording has that name too."""
    if "/" not in label:
        return file.name
    return label.replace("/", "_")


def list_traces(job: JobArgument, store: StoreOption = None) -> None:
    """List the profiler traces of a job, the newest recording first."""
    from tachoscope_core.storage import traces as stored_traces
    from tachoscope_core.storage.store import Store

    opened = Store(store_url(store))
    found = stored_traces.traces(opened, job)
    if not found:
        raise TachoscopeError(f"store {opened.url} has no traces of job {job}", fix=f"tachoscope store add-traces {job} traces/")
    table = Table("recording", "file", "MiB", "written", box=None, padding=(0, 2, 0, 0))
    for one in found:
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.written))
        table.add_row(one.recording, one.file, f"{one.bytes / 2**20:,.1f}", at)
    console().print(table)
