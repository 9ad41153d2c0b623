"""Metrics of the node agent about itself."""

from __future__ import annotations

from tachoscope_core.metrics.metric import Metric

COLLECTOR_SUCCESS = Metric(
    "tachoscope_collector_success",
    "1 if the collector's last run gave data or found that there is none to give, 0 if it failed.",
    ("collector",),
)
COLLECTOR_STATUS = Metric(
    "tachoscope_collector_status",
    "1 for the outcome of the collector's last run: ok, no_data (none now), not_supported (this machine cannot), failed.",
    ("collector", "status"),
)
COLLECTOR_FAILING = Metric(
    "tachoscope_collector_failing_seconds",
    "How long ago the first of the collector's failed runs was, if all since then failed too; absent otherwise.",
    ("collector",),
)
COLLECTOR_DURATION = Metric("tachoscope_collector_duration_seconds", "How long the collector's last run took.", ("collector",))
OTLP_EXPORTS = Metric("tachoscope_agent_otlp_exports_total", "Pushes of metrics by OTLP: ok, partial, failed.", ("outcome",))
HTTP_REFUSED = Metric(
    "tachoscope_agent_http_refused_total",
    "HTTP requests and connections that were refused: unauthorised, malformed, too_slow, too_many.",
    ("reason",),
)
CONFIG_RELOAD_SUCCESS = Metric(
    "tachoscope_agent_config_reload_success",
    "1 if the configuration was last read without a fault, 0 if a reload failed and the agent goes on with the one before.",
)

INFO = Metric("tachoscope_agent_info", "1, with the agent's version.", ("version",))
RECORDS = Metric("tachoscope_agent_records_total", "Records read from the spool.")
REJECTED = Metric(
    "tachoscope_agent_rejected_total",
    "Lines and files of the spool that were not counted or not followed, by reason; what is not garbage is shipped all the same.",
    ("reason",),
)
REJECTION_REASONS = (
    "malformed",  # no record
    "unknown_kind",  # of a newer probe
    "oversized",  # a line longer than a record may be: cut out, not shipped
    "cut",  # the last line of a process that was killed in it: lost
    "identity",  # names another job or writer than its file, or a rank that another live process has
    "implausible",  # numbers that cannot be
    "owner",  # a file that names another user's job: left where it is
    "fault",  # what the agent cannot handle, by a fault of its own
    "over_limit",  # more jobs or ranks than the limits allow
    "name",  # of a job, a run's directory or a file, that is not usable
    "directories",
    "segments",
    "no_file",  # a link or something else that is not a file
)
BACKLOG = Metric("tachoscope_agent_backlog_bytes", "Records read that the store does not have yet.")
LAG = Metric("tachoscope_agent_lag_seconds", "How long the oldest record that the store lacks has waited.")
SHIPPED_BYTES = Metric("tachoscope_agent_shipped_bytes_total", "Records shipped to the store, before compression.")
SHIPPED_OBJECTS = Metric("tachoscope_agent_shipped_objects_total", "Objects written to the store.")
ERRORS = Metric(
    "tachoscope_agent_errors_total",
    "What the agent could not do, and tries again: reach the store, write its journal or state, read the spool, keep samples, "
    "write the node's status.",
    ("part",),
)
ERROR_PARTS = ("store", "journal", "state", "spool", "samples", "node", "refused")
SEGMENTS = Metric("tachoscope_agent_segments", "Segment files of the spool that are followed.")
UNREADABLE = Metric("tachoscope_agent_unreadable_directories", "Directories of the spool that cannot be read.")
SPOOL_FREE = Metric("tachoscope_agent_spool_free_bytes", "Space left on the spool's file system.")
TICK_SECONDS = Metric("tachoscope_agent_tick_duration_seconds", "Duration of the last reading of the spool.")

AGENT_METRICS = (
    INFO,
    RECORDS,
    REJECTED,
    BACKLOG,
    LAG,
    SHIPPED_BYTES,
    SHIPPED_OBJECTS,
    ERRORS,
    SEGMENTS,
    UNREADABLE,
    SPOOL_FREE,
    TICK_SECONDS,
    COLLECTOR_SUCCESS,
    COLLECTOR_FAILING,
    COLLECTOR_STATUS,
    COLLECTOR_DURATION,
    OTLP_EXPORTS,
    HTTP_REFUSED,
    CONFIG_RELOAD_SUCCESS,
)
