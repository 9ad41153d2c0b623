"""What the traces of a recording come to."""

from __future__ import annotations

from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.finding_card import show_findings
from tachoscope_explorer.page.job_facts import not_measured
from tachoscope_explorer.screens.traces import job as trace_jobs
from tachoscope_explorer.sources.traces import Recording


def show(context: Context, recording: Recording, events: int) -> None:
    """Show the findings of a recording."""
    job = trace_jobs.compared(recording, events, SummaryOptions(what_if=False, collectives=1 << 12), "Look for the bottleneck")
    if job is not None:
        found = report(job, recording.job if not recording.job.startswith("(") else recording.name)
        show_findings(context, found)
        not_measured(found)
