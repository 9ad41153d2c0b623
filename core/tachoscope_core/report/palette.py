"""One colour for each state of a ledger: the same in reports, on boards and in the explorer, told apart with any colour vision."""

from __future__ import annotations

STATE_COLORS = {
    # Okabe and Ito's palette, told apart with any colour vision: https://jfly.uni-koeln.de/color/
    "compute": "#009E73",
    "communication": "#0072B2",
    "straggler_wait": "#CC79A7",
    "pipeline_bubble": "#332288",
    "data_wait": "#E69F00",
    "host_to_device": "#56B4E9",
    "host_wait": "#D55E00",
    "checkpoint": "#F0E442",
    "evaluation": "#7F7FBF",
    "compile": "#AA4499",
    # Those of a whole life, from Paul Tol's muted scheme: https://personal.sron.nl/~pault/
    "initialisation": "#999933",
    "restore": "#8C564B",
    "lost_work": "#882255",
    "queued": "#DDCC77",
    "hung": "#CC0000",
    "unexplained": "#999999",
    # Those of requests and engines; what is named alike looks alike.
    "prefill": "#56B4E9",
    "decode": "#009E73",
    "preempted": "#D55E00",
    "cold_start": "#882255",
    "busy": "#009E73",
    "idle": "#E5E5E5",
    "starved": "#CC0000",
    # Of accelerators that somebody has, and no ledger tells what for.
    "elsewhere": "#BBBBBB",
}
OK, WARN, BAD, UNKNOWN = "#009E73", "#E69F00", "#CC0000", "#999999"
"""Of verdicts: within bounds, near them, beyond them, not measured."""
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#999933")
"""Of series that are no states, in this order."""
