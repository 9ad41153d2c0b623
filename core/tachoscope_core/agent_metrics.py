"""Metrics of the node agent about itself."""

from __future__ import annotations

from tachoscope_core.metric import Metric

COLLECTOR_SUCCESS = Metric(
    "tachoscope_collector_success",
    "gauge",
    "",
    "1 if the collector's last run gave data or found that there is none to give, 0 if it failed.",
    ("collector",),
)
COLLECTOR_STATUS = Metric(
    "tachoscope_collector_status",
    "gauge",
    "",
    "1 for the outcome of the collector's last run: ok, no_data (none now), not_supported (this machine cannot), failed.",
    ("collector", "status"),
)
COLLECTOR_DURATION = Metric(
    "tachoscope_collector_duration_seconds", "gauge", "seconds", "How long the collector's last run took.", ("collector",)
)
OTLP_EXPORTS = Metric(
    "tachoscope_agent_otlp_exports_total", "counter", "", "Pushes of metrics by OTLP: ok, partial, failed.", ("outcome",)
)
HTTP_REFUSED = Metric(
    "tachoscope_agent_http_refused_total",
    "counter",
    "",
    "HTTP requests and connections that were refused: unauthorised, malformed, too_slow, too_many.",
    ("reason",),
)

AGENT_METRICS = (COLLECTOR_SUCCESS, COLLECTOR_STATUS, COLLECTOR_DURATION, OTLP_EXPORTS, HTTP_REFUSED)
