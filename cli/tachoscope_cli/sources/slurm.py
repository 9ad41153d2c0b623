"""Asks Slurm's accounting for a job by its own client, `sacct`: https://slurm.schedmd.com/sacct.html."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from tachoscope_analyzers import schedulers
from tachoscope_analyzers.schedulers.common.allocation import Allocation
from tachoscope_analyzers.schedulers.slurm import sacct_json, sacct_table
from tachoscope_core.errors import TachoscopeError

TIMEOUT_SECONDS = 60.0

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
    program = shutil.which("sacct")
    if not program:
        raise TachoscopeError("sacct is not installed on this machine", fix="run it on a Slurm host and give its output as a file")
    said = ""
    for form in _FORMS:
        command = [program, "--jobs", job, "--duplicates", "--allocations", *form]
        code, output, said = _run(command)
        fault = sacct_json.error(output)
        said = fault or said
        if code == 0 and output.strip() and not fault:
            found = schedulers.read_texts([(f"sacct --jobs {job}", output)])
            if not found:
                raise TachoscopeError(f"sacct has no job {job}", fix="is it of another cluster, or purged from the accounting?")
            return found
    raise TachoscopeError(f"sacct failed: {said or 'it wrote nothing'}")


def _run(command: list[str]) -> tuple[int, str, str]:
    """Return exit code, output, and the first line of what went wrong."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}  # Unix seconds: the table's times have no zone otherwise
    if "--json" in command:
        # Its times are Unix seconds anyway, and Slurm 22.05 cannot parse its own default of --endtime in this format.
        del environment["SLURM_TIME_FORMAT"]
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TachoscopeError(f"sacct does not answer: {error}") from None
    return ended.returncode, ended.stdout, ended.stderr.strip().partition("\n")[0]
