"""How users, or accounts, used the accelerators that they held, as `tachoscope efficiency --format json` writes it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class AllocationUse(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation in the period. Hours are accelerator-hours, and add up to `held_hours`."""

    scheduler_job: Annotated[str, Meta(description="Id of the scheduler's job.")]
    jobs: Annotated[list[str], Meta(description="Jobs of the store that ran in it.")]
    held_hours: Annotated[float, Meta(description="Accelerators times the hours in the period for which they were allocated.")]
    productive_hours: Annotated[float, Meta(description="In which steps were done for the first time.")]
    lost_hours: Annotated[dict[str, float], Meta(description="In which a recorded job did none, by ledger state.")]
    unrecorded_hours: Annotated[float, Meta(description="In which no job of the store ran: what was done is not known.")]


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A user or account in the period. Hours are those of the allocations together."""

    name: Annotated[str, Meta(description="The user, or the account; empty: the scheduler named none.")]
    held_hours: Annotated[float, Meta(description="Of its allocations together, as the other hours.")]
    productive_hours: Annotated[float, Meta(description="In which steps were done for the first time.")]
    lost_hours: Annotated[dict[str, float], Meta(description="In which a recorded job did none, by ledger state.")]
    unrecorded_hours: Annotated[float, Meta(description="In which no job of the store ran: what was done is not known.")]
    allocations: Annotated[list[AllocationUse], Meta(description="Those that lost most first.")]
