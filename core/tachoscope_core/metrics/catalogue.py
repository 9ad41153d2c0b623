"""The one catalogue of names: ledger states and metrics.

Exporters, rules, dashboards and tests import it, so that a typing mistake is an error and not an empty panel. Metrics are in
base units (seconds, bytes, ratios 0 to 1); counters end in `_total`; no label is one that Prometheus owns, and none holds
a run id, attempt, pid or step number.
"""

from __future__ import annotations

from tachoscope_core.metrics.agent import AGENT_METRICS
from tachoscope_core.metrics.checkpoints import CHECKPOINT_METRICS
from tachoscope_core.metrics.gpu import GPU_METRICS
from tachoscope_core.metrics.host import HOST_METRICS
from tachoscope_core.metrics.nccl import NCCL_METRICS
from tachoscope_core.metrics.scheduler import SCHEDULER_METRICS
from tachoscope_core.metrics.serving import ENGINE_STATES as ENGINE_STATES
from tachoscope_core.metrics.serving import REQUEST_STATES as REQUEST_STATES
from tachoscope_core.metrics.serving import SERVING_METRICS
from tachoscope_core.metrics.training import TRAINING_METRICS
from tachoscope_core.metrics.training import TRAINING_STATES as TRAINING_STATES
from tachoscope_core.metrics.watch import WATCH_METRICS

UNEXPLAINED = "unexplained"

METRICS = tuple(
    metric.exported()
    for metric in (
        *TRAINING_METRICS,
        *CHECKPOINT_METRICS,
        *HOST_METRICS,
        *GPU_METRICS,
        *NCCL_METRICS,
        *SERVING_METRICS,
        *AGENT_METRICS,
        *WATCH_METRICS,
        *SCHEDULER_METRICS,
    )
)

BY_NAME = {metric.name: metric for metric in METRICS}
