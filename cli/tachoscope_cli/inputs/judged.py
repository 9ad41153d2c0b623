"""The report on what lies in some places: the last attempt of a job, a service, a server's recording, a saved report, dumps."""

from __future__ import annotations

from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import serving_job
from tachoscope_cli.inputs import records
from tachoscope_cli.inputs.job_life import other_attempts
from tachoscope_cli.inputs.serving_options import Looking, refuse_looks
from tachoscope_core.report.report import Report


def report_on(
    places: list[str], job: str | None, store: str | None = None, looking: Looking | None = None
) -> tuple[Report, list[str]]:
    """Return the report on a job's last attempt, or on what else the places hold, and lines to follow it.

    Args:
        store: as the user named it, for the lines. looking: options about inference servers.

    Raises:
        TachoscopeError: nothing is there, or an option is about something else.
    """
    looking = looking or Looking("")
    saved = records.saved_report(places)
    if saved is not None:
        return saved, []
    if records.flight_recorder_dumps(places):
        from tachoscope_cli.inputs import stuck

        refuse_looks(looking.said)
        found = stuck.report_of(places, job)
        assert found is not None
        return found, []
    recording = records.recording(places)
    if recording is not None:
        from tachoscope_cli.inputs.live_server import analyze_recording

        refuse_looks("--for" if looking.for_ else "")
        return analyze_recording(recording, job or "", looking.device), []
    found_records = records.records_of(places, job)
    if serving_job(found_records):
        from tachoscope_cli.inputs.live_server import analyze_service

        return analyze_service(found_records, looking), []
    refuse_looks(looking.said)
    return analyze(found_records), other_attempts(found_records, store)
