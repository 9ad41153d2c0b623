"""Asks Slurm's accounting for a job by its own client, `sacct`: https://slurm.schedmd.com/sacct.html."""

from __future__ import annotations

import re

from tachoscope_analyzers import schedulers
from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.schedulers.slurm import sacct_json, sacct_table
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
