"""Reads `sacct --json`: the job records of Slurm's data_parser, versions 0.0.37 (Slurm 21.08) to 0.0.46.

Through the versions numbers became `{"set", "infinite", "number"}` and states became lists of a state and flags
(https://slurm.schedmd.com/data_parser.html); the fields that are read here kept their names.
"""

from __future__ import annotations

import json
from typing import Any

from tachoscope_analyzers.schedulers.common.untyped import at, items, text
from tachoscope_analyzers.schedulers.slurm.allocations import SacctRow, gpus, reason
from tachoscope_core.errors import TachoscopeError

_NOTHING_FOUND = 9003


def rows(document: dict[str, Any], where: str) -> list[SacctRow]:
    """Return the job records of a document.

    Raises:
        TachoscopeError: its jobs are not those of `sacct`.
    """
    return [_row(job, f"{where}: jobs[{index}]") for index, job in enumerate(items(document, "jobs"))]


def _row(job: object, where: str) -> SacctRow:
    times = at(job, "time")
    number = as_integer(at(job, "job_id"))
    missing = "job_id" if number is None else "time.submission" if not isinstance(times, dict) or "submission" not in times else ""
    if missing or number is None or not isinstance(times, dict):
        raise TachoscopeError(
            f"{where} has no {missing}: it is not a job record of sacct", fix="write it by `sacct --jobs JOBID --duplicates --json`"
        )
    states = _strings(at(job, "state", "current")) or ("UNKNOWN",)
    accelerators, device = gpus(_resources(job, "allocated"))
    if not accelerators:
        accelerators, device = gpus(_resources(job, "requested"))
    name, component = _name(job, number)
    return SacctRow(
        job=name,
        component=component,
        submitted=_time(times, "submission"),
        eligible=_time(times, "eligible"),
        started=_time(times, "start"),
        ended=_time(times, "end"),
        states=states,
        reason=_reason(job, states),
        node_list=text(at(job, "nodes")) if "nodes" in job else None,  # type: ignore[operator]
        accelerators=accelerators,
        device=device,
        restarts=as_integer(at(job, "restart_cnt")) or 0,
        partition=text(at(job, "partition")),
        account=text(at(job, "account")),
        user=text(at(job, "user")) or text(at(job, "association", "user")),
        job_id=str(number),
    )


def error(content: str) -> str:
    """Return what Slurm says went wrong in a document without jobs, for which `sacct --json` exits with 0 too; else nothing.

    An unknown job (9003, "Nothing found") is not an error.
    """
    try:
        document = json.loads(content)
    except (json.JSONDecodeError, RecursionError):
        return ""
    if not isinstance(document, dict) or items(document, "jobs"):
        return ""
    return "; ".join(
        f"{text(at(one, 'source'))}: {text(at(one, 'description')) or text(at(one, 'error'))}"
        for one in items(document, "errors")
        if as_integer(at(one, "error_number")) != _NOTHING_FOUND
    )


def as_integer(value: object) -> int | None:
    """Return a number in either form: plain, or with `set` and `infinite`, or None where it is not set."""
    if isinstance(value, dict):
        unset = value.get("infinite") or not value.get("set", True)
        value = None if unset else value.get("number")
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _time(times: dict[str, Any], name: str) -> float | None:
    # 0 and the largest numbers (NO_VAL, INFINITE) mean that it has not happened.
    value = as_integer(times.get(name))
    return float(value) if value and 0 < value < 0xFFFFFFF0 else None


def _strings(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    return tuple(str(word).upper() for word in words if word)


def _name(job: object, number: int) -> tuple[str, int | None]:
    """Return the job id as `sacct` writes it (`123_4` of an array) and the component of a heterogeneous job."""
    leader, array = as_integer(at(job, "het", "job_id")), as_integer(at(job, "array", "job_id"))
    if leader:
        return str(leader), as_integer(at(job, "het", "job_offset")) or 0
    if array:
        task = as_integer(at(job, "array", "task_id"))
        return f"{array}_{task if task is not None else '[' + text(at(job, 'array', 'task')) + ']'}", None
    return str(number), None


def _resources(job: object, which: str) -> dict[str, int]:
    resources = [one for one in items(at(job, "tres"), which) if isinstance(one, dict)]
    return {
        "/".join(part for part in (text(one.get("type")), text(one.get("name"))) if part): as_integer(one.get("count")) or 0
        for one in resources
    }


def _reason(job: object, states: tuple[str, ...]) -> str:
    """Return what Slurm says about the end or the wait, such as `NODE_FAIL; failed node gpu-3`."""
    why = text(at(job, "state", "reason"))
    signal = as_integer(at(job, "exit_code", "signal", "id")) or as_integer(at(job, "exit_code", "signal", "signal_id"))
    user = text(at(job, "kill_request_user"))
    return reason(
        ",".join(states) + (f" by {user}" if user and "CANCELLED" in states else ""),
        waited_for=why if why != "None" else "",
        failed_node=text(at(job, "failed_node")),
        exit_code=as_integer(at(job, "exit_code", "return_code")) or 0,
        signal=signal or 0,
    )
