"""What the operations of a recorded step are: computing, transfers between workers, and the rest.

The names are those of https://github.com/ByteDance-Seed/StragglerAnalysis, which recorded a Megatron-like trainer.
"""

from __future__ import annotations

FORWARD = "forward-compute"
BACKWARD = "backward-compute"
COMPUTE = (FORWARD, BACKWARD)
PAUSE = "gc"

SENDS = {"forward-send": FORWARD, "backward-send": BACKWARD}
RECEIVES = {"forward-recv": FORWARD, "backward-recv": BACKWARD}
POINT_TO_POINT = SENDS | RECEIVES
"""Transfers between stages, and the computing that they carry the outcome of, or the input for."""

GATHER = "params-all-gather"
SCATTER = "grads-reduce-scatter"
OF_REPLICAS = (GATHER, SCATTER, "separate-grads-all-reduce")
"""Collectives of the workers of one stage in all replicas."""
OF_ENDS = ("embedding-grads-all-reduce",)
"""Collectives of the first and the last stage of one replica, which share the embedding."""
OF_ALL = ("optimizer-clip-main-grad",)
"""Collectives of all workers: the norm of the whole gradient."""

COLLECTIVES = (*OF_REPLICAS, *OF_ENDS, *OF_ALL)
COMMUNICATION = (*POINT_TO_POINT, *COLLECTIVES)
OWN_WORK = ("optimizer", "layernorm-grads-all-reduce")
"""What a worker does by itself beside computing. The second is a collective of tensor parallelism, within one worker here."""
KNOWN = (*COMPUTE, PAUSE, *COMMUNICATION, *OWN_WORK)
