"""The part of a report that is about why attempts failed: of each the first failure, its root, and what followed from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Cause = Literal["out_of_memory", "exception", "killed", "exited", "hang", "host_lost"]
Policy = Literal["restart", "stop"]


class SaidAfter(msgspec.Struct, frozen=True, kw_only=True):
    """What another rank then failed with.

    Attributes:
        seconds_after: after the root's failure; before 0.0: a rank that waited for the root gave up before the root ended.
    """

    rank: int
    seconds_after: float
    message: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The first failure of an attempt, the root: all others of the attempt followed from it.

    Attributes:
        time: Unix seconds of it. step: the step of the whole job in which its rank was; None: before its first step.
        rank: None: not known. host: empty: not known.
        cause: `out_of_memory`: an allocation failed, or the kernel killed it when memory ran out. `exception`: an uncaught one.
            `killed`: by a signal. `exited`: it ended by itself while others needed it, or with a code that is not 0. `hang`: it
            made no progress. `host_lost`: its host sent no more records.
        signal: name of the one that killed its process, such as SIGTERM; empty: none did, or which is not known.
        exception: its type; empty: there is none. message: what it said, secrets hidden.
        location: `file:line` of the innermost frame of the user's code; empty: not known. function: its name.
        cascade: ranks that failed because of it, in order of time. same_error: ranks that failed with the same error by themselves.
        said_after: what the ranks of the cascade said, in order of time.
        repeats_attempt: an earlier attempt that failed at the same root without progress since; None: there is none.
        policy: `stop`: another attempt will most likely fail at the same; else `restart`.
    """

    attempt: int
    time: float
    step: int | None = None
    rank: int | None
    host: str = ""
    cause: Cause
    signal: str = ""
    exception: str = ""
    location: str = ""
    function: str = ""
    message: str = ""
    cascade: list[int] = []
    same_error: list[int] = []
    said_after: list[SaidAfter] = []
    repeats_attempt: int | None = None
    policy: Policy = "restart"


_OF_HOST = frozenset({"hang", "killed", "host_lost"})
"""Causes behind which a host may stand, as none of the job's code is known to."""
_TOLD_TO_GO = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})
"""People and schedulers send these; a host that fails does not."""


def suspect_host(failure: Failure | None, *, by_engine: bool, names: Mapping[str, str] | None = None) -> str:
    """Return the host behind a failure that neither the engine nor a line of the job's code explains; empty: none.

    names: the engine's names of the job's hosts, where these differ from their own.
    """
    if failure is None or by_engine or failure.location or failure.cause not in _OF_HOST or failure.signal in _TOLD_TO_GO:
        return ""
    return (names or {}).get(failure.host, failure.host)
