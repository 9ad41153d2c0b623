"""Asks Slurm's accounting for jobs by its own client, `sacct`: https://slurm.schedmd.com/sacct.html."""

from __future__ import annotations

import math
import re
from pathlib import Path

from tachoscope_analyzers import schedulers
from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.schedulers.slurm import sacct_json, sacct_table
from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow
from tachoscope_core.errors import TachoscopeError
from tachoscope_service.common import slurm_client

_JOB = re.compile(r"\d+(_\d+|\+\d+)?")
# The first that this version of Slurm knows: --json since 21.08, Restarts and FailedNode are later fields of the table.
_FORMS = (
    ["--json"],
    ["--parsable2", f"--format={','.join(sacct_table.FIELDS)}"],
    ["--parsable2", f"--format={','.join(sacct_table.FIELDS_OF_ALL_VERSIONS)}"],
)


def allocations(job: str) -> list[Allocation]:
    """Return all allocations of a job, requeues included.

    Args:
        job: its id, with task (`123_4`) or component (`123+0`) where there are such.

    Raises:
        TachoscopeError: that is not a job id, there is no `sacct`, it fails, or it does not know the job.
    """
    if not _JOB.fullmatch(job):
        raise TachoscopeError(f"{job!r} is not a Slurm job id", fix="slurm:123, or slurm:123_4 for one task of an array")
    said = ""
    for form in _FORMS:
        answer = slurm_client.ask(["sacct", "--jobs", job, "--duplicates", "--allocations", *form])
        fault = sacct_json.error(answer.output)
        said = fault or answer.said
        if answer.code == 0 and answer.output.strip() and not fault:
            found = schedulers.read_texts([(f"sacct --jobs {job}", answer.output)])
            if not found:
                raise TachoscopeError(f"sacct has no job {job}", fix="is it of another cluster, or purged from the accounting?")
            return found
    raise TachoscopeError(f"sacct failed: {said or 'it wrote nothing'}")


def recent_rows(seconds: float) -> list[SacctRow]:
    """Return the job records of all users that were in the queue or ran in the last so many seconds.

    Raises:
        TachoscopeError: `sacct` is not installed, fails, or prints something that cannot be parsed.
    """
    since = f"--starttime=now-{math.ceil(seconds / 60)}minutes"
    said = ""
    for fields in (sacct_table.FIELDS, sacct_table.FIELDS_OF_ALL_VERSIONS):
        form = ["--parsable2", f"--format={','.join(fields)}"]
        answer = slurm_client.ask(["sacct", "--allusers", "--allocations", "--duplicates", since, *form])
        if answer.code == 0:
            return sacct_table.rows(answer.output, "sacct")
        said = answer.said
    raise TachoscopeError(f"sacct failed: {said or 'it wrote nothing'}")


def rows_of_file(path: Path) -> list[SacctRow]:
    """Return the job records in a table that `sacct --parsable2` wrote.

    Raises:
        TachoscopeError: the file cannot be read, or is not such a table.
    """
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TachoscopeError(f"could not read {path}: {error.strerror}") from None
    if not sacct_table.is_table(content):
        fields = ",".join(sacct_table.FIELDS)
        raise TachoscopeError(
            f"{path} is not a table of sacct",
            fix="SLURM_TIME_FORMAT=%s sacct --allusers --allocations --duplicates --starttime=now-7days --parsable2 "
            f"--format={fields}",
        )
    return sacct_table.rows(content, str(path))
