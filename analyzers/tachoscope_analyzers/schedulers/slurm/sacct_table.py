"""Reads the table of `sacct --parsable2`: fields divided by `|`, or by what `--delimiter` says, their names in the first line.

Times are those of the machine that ran `sacct`, without a zone, unless SLURM_TIME_FORMAT was set: `%s` (Unix seconds) and
`%Y-%m-%dT%H:%M:%S%z` leave no doubt and are read too (https://slurm.schedmd.com/sacct.html#OPT_SLURM_TIME_FORMAT).
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow, gpus, reason
from tachoscope_core.errors import TachoscopeError

FIELDS = (
    "JobID", "Submit", "Eligible", "Start", "End", "State", "ExitCode", "NodeList", "AllocTRES", "ReqTRES", "Restarts", "Reason",
    "FailedNode", "Partition", "Account", "User", "JobIDRaw",
)  # fmt: skip
"""What `sacct --format` is asked for; `JobID`, `Submit`, `Start`, `End` and `State` have to be there."""
FIELDS_OF_ALL_VERSIONS = tuple(name for name in FIELDS if name not in {"Restarts", "FailedNode"})

_NEEDED = {"jobid", "submit", "start", "end", "state"}
_NONE = {"", "Unknown", "None", "N/A", "INVALID"}
_JOB = re.compile(r"(?P<job>\d+(?:_(?:\d+|\[[^\]]*\]))?)(?:\+(?P<component>\d+))?")
_DELIMITER = re.compile(r"\w+([^\w\n]+)\w")
_RESOURCE = re.compile(r"([^=,]+)=(\d+)(?:[^,]*)")


def is_table(content: str) -> bool:
    """Return whether the first line names columns of `sacct`."""
    header, delimiter = _header(content)
    return "jobid" in {name.strip().lower() for name in header.split(delimiter)}


def _header(content: str) -> tuple[str, str]:
    """Return the first line and what divides its names; columns of fixed width, which cut names off, are not divided."""
    header = content.lstrip("\ufeff").partition("\n")[0].strip("\r")
    found = _DELIMITER.match(header)
    return header, found[1] if found is not None and found[1].strip(" ") else "|"


def rows(content: str, where: str, *, zone: tzinfo | None = None) -> list[SacctRow]:
    """Return the job records; job steps (`123.batch`) are left out.

    Args:
        content: of the file. where: its name, for errors.
        zone: of times without one; None: that of this machine.

    Raises:
        TachoscopeError: a column is missing, a line has more fields than the first, or a time cannot be read.
    """
    header, delimiter = _header(content)
    names = [name.strip().lower() for name in header.split(delimiter)]
    if missing := sorted(_NEEDED - set(names)):
        raise TachoscopeError(f"{where}: no column {', '.join(missing)}", fix=f"sacct --parsable2 --format={','.join(FIELDS)}")
    found = []
    for number, line in enumerate(content.lstrip("\ufeff").splitlines()[1:], start=2):
        if not line.strip():
            continue
        cells = line.split(delimiter)
        if len(cells) != len(names):
            raise TachoscopeError(
                f"{where}:{number}: {len(cells)} fields where the first line names {len(names)}",
                fix=f"leave out fields that can contain a {delimiter!r}, such as JobName, or use --parsable2 without --delimiter",
            )
        fields = dict(zip(names, cells, strict=True))
        if "." not in fields["jobid"]:
            found.append(_row(fields, f"{where}:{number}", zone))
    return found


def _row(fields: dict[str, str], where: str, zone: tzinfo | None) -> SacctRow:
    job = _JOB.fullmatch(fields["jobid"].strip())
    if not job:
        raise TachoscopeError(f"{where}: job id {fields['jobid']!r} cannot be read", fix="use --parsable2, which cuts nothing off")
    accelerators, device = gpus(resources(fields.get("alloctres", "")))
    if not accelerators:
        accelerators, device = gpus(resources(fields.get("reqtres", "")))
    words = fields["state"].split()
    restarts = fields.get("restarts", "")
    return SacctRow(
        job=job["job"],
        component=int(job["component"]) if job["component"] else None,
        submitted=_time(fields, "submit", where, zone),
        eligible=_time(fields, "eligible", where, zone),
        started=_time(fields, "start", where, zone),
        ended=_time(fields, "end", where, zone),
        states=(words[0].rstrip("+").upper(),) if words else ("UNKNOWN",),
        reason=_reason(fields),
        node_list=fields.get("nodelist"),
        accelerators=accelerators,
        device=device,
        restarts=int(restarts) if restarts.isdecimal() else 0,
        partition=fields.get("partition", "").strip(),
        account=fields.get("account", "").strip(),
        user=fields.get("user", "").strip(),
        job_id=fields.get("jobidraw", "").strip() or job["job"],
    )


def _time(fields: dict[str, str], name: str, where: str, zone: tzinfo | None) -> float | None:
    value = fields.get(name, "").strip()
    if value in _NONE:
        return None
    if value.isdecimal():
        return float(value) or None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise TachoscopeError(
            f"{where}: {name} is {value!r}, not a time like 2026-05-04T13:00:00", fix="run sacct with SLURM_TIME_FORMAT=%s"
        ) from None
    return (time.replace(tzinfo=zone) if zone and time.tzinfo is None else time).timestamp()


def resources(listed: str) -> dict[str, int]:
    """Return trackable resources by name, such as of `cpu=2,gres/gpu=4`."""
    return {name: int(count) for name, count in _RESOURCE.findall(listed)}


def _reason(fields: dict[str, str]) -> str:
    code, _, signal = fields.get("exitcode", "").partition(":")
    why, node = fields.get("reason", ""), fields.get("failednode", "")
    return reason(
        fields["state"],
        waited_for="" if why in _NONE else why,
        failed_node="" if node in _NONE else node,
        exit_code=int(code) if code.isdecimal() else 0,
        signal=int(signal) if signal.isdecimal() else 0,
    )
