"""What all records have in common: bounded types, the envelope, names of jobs, the phases of a step."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tachoscope_core.errors import TachoscopeError

MAX_LINE_BYTES = 1 << 20
"""Longest line that a reader takes: a spool is foreign input."""

MAX_COUNT = 1 << 53
MAX_SECONDS = 1e10
"""As Unix seconds in the year 2286."""
MAX_STEP_SECONDS = 7 * 86400.0
MAX_TEXT = 4096
"""Characters: the longest path of Linux."""

# Every number and text of a record is bounded, so that no reader has to expect what cannot be: a spool is foreign input.
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Place = Annotated[int, Meta(ge=-1, le=MAX_COUNT)]
"""A step or the like; -1: none."""
World = Annotated[int, Meta(ge=0, le=1 << 20)]
Rank = Annotated[int, Meta(ge=-1, le=1 << 20)]
"""-1: none."""
ExitCode = Annotated[int, Meta(ge=-1024, le=(1 << 32) - 1)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
UnixSeconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Nanoseconds = Annotated[int, Meta(ge=0, le=1 << 62)]
Amount = Annotated[float, Meta(ge=-1e18, le=1e18)]
"""Of any unit."""
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]

MAX_JOB_NAME = 128
_JOB_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_JOB_NAME - 1}}}")

LAUNCHER_RANK = -1
"""Rank in records of the launcher (`tachoscope run`) and of the node agent, which are not a rank of the job."""
INTERRUPTED = "interrupted"
"""How the reason of a launcher's end begins where the user pressed Ctrl-C, whatever exit code the command made of that."""

Phase = Literal[
    "data_wait",
    "host_to_device",
    "forward",
    "backward",
    "optimizer",
    "collective",
    "checkpoint",
    "evaluation",
    "gc",
    "other",
    "preparation",
    "loss",
    "compile",
]
PHASES: tuple[Phase, ...] = Phase.__args__  # type: ignore[attr-defined]
"""Where the training thread is, exclusively: the seconds by phase of a step sum to its wall seconds.

`forward` is the time in the outermost calls of models that compute with gradients, and of loss modules. `preparation` is from the
batch to the model; in a loop without a loader, from the last step to the model. `loss` is between model, backward and optimizer.
`other` is what is left, between the optimizer and the next batch. Where no model is called as a `torch.nn.Module`, `forward` is all
time from the batch to the optimizer that is not measured otherwise, and there is neither `preparation` nor `loss`.
`compile` is the time in which torch.compile compiles, wherever the thread was before: it goes on there afterwards.
"""


COMPUTING_PHASES: frozenset[Phase] = frozenset({"forward", "loss", "backward", "optimizer"})
"""Phases in which a step computes; without torch nothing is in them but what the job marks."""


SHARED_PHASES: tuple[Phase, ...] = ("loss", "preparation", "other")
"""Phases of which the clock alone does not tell what their time belongs to: samples do, see `Heartbeat.activity`."""


def is_job_name(name: str) -> bool:
    """Return whether a name is safe as a folder name and a label value."""
    return _JOB_NAME.fullmatch(name) is not None


def check_job_name(name: str) -> str:
    """Return `name` if it is safe as a folder name and a label value.

    Raises:
        TachoscopeError: the name has other characters than letters, digits, `.`, `_`, `-`, or is too long.
    """
    if not is_job_name(name):
        raise TachoscopeError(
            f"job name {name!r} is not usable",
            fix=f"use 1 to {MAX_JOB_NAME} letters, digits, '.', '_' or '-', beginning with a letter or digit",
        )
    return name


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The envelope of every record.

    Attributes:
        job: stable name that the attempts of a job share.
        attempt: 0 for the first start of the job, counted up by restarts.
        writer: UUID made when the process started; (`writer`, `seq`) identifies a record.
        seq: number of the record within its writer, from 0 without gaps unless records were dropped.
        rank: global rank, or `LAUNCHER_RANK`.
        time: Unix seconds. monotonic_ns: nanoseconds of the host's monotonic clock, comparable on one host.
    """

    job: Name
    attempt: Count
    writer: Name
    seq: Count
    rank: Rank
    local_rank: Rank
    host: Name
    time: UnixSeconds
    monotonic_ns: Nanoseconds
