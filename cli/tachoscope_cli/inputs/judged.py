"""The report on what lies in some places: the last attempt of a job, a service, a server's recording, a saved report, dumps."""

from __future__ import annotations

import msgspec

from tachoscope_analyzers.flight_recorder.read import read_sound
from tachoscope_analyzers.flight_recorder.report import report as of_dumps
from tachoscope_analyzers.hang_evidence.report import with_evidence
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import serving_job
from tachoscope_cli.inputs import paths, records
from tachoscope_cli.inputs.job_life import other_attempts
from tachoscope_cli.inputs.places import Kind, kind_of
from tachoscope_cli.inputs.serving_options import ServingOptions
from tachoscope_cli.inputs.time_window import TimeWindow
from tachoscope_core.report.report import Report


def report_on(
    places: list[str],
    job: str | None,
    store: str | None = None,
    *,
    kind: Kind | None = None,
    window: TimeWindow | None = None,
) -> tuple[Report, list[str]]:
    """Return the report on a job's last attempt, or on what else the places hold but traces, and lines to follow it.

    Args:
        store: as the user named it, for the lines. kind: of the places; None: look. window: the part of a
            training that is judged.

    Raises:
        TachoscopeError: nothing is there.
    """
    kind = kind or kind_of(places)
    if kind is Kind.REPORT and (saved := records.saved_report(places)) is not None:
        return saved, []
    if kind is Kind.DUMPS:
        return hang_report(places, job), []
    if kind is Kind.RECORDING and (recording := paths.recording(places)) is not None:
        from tachoscope_cli.inputs.live_server import analyze_recording

        return analyze_recording(recording, job or "", ""), []
    found = records.records_of(places, job, window or TimeWindow())
    if serving_job(found):
        from tachoscope_cli.inputs.live_server import analyze_service

        report = analyze_service(found, ServingOptions(""))
        return msgspec.structs.replace(report, quality=[*report.quality, *([found.left_out] if found.left_out else [])]), []
    report = analyze(found)
    if (place := records.stored_job(places, found.job)) is not None:
        report = with_evidence(report, place[0])
    return report, other_attempts(found, store)


def hang_report(places: list[str], job: str | None) -> Report:
    """Return why a job stands still, by the dumps of PyTorch's flight recorder in some places, which hold at least one.

    Raises:
        TachoscopeError: no dump is sound, or some places hold something else.
    """
    dumps = paths.flight_recorder_dumps(places)
    sound, damaged = read_sound(dumps)
    return of_dumps(sound, dumps, job or records.name_of(places), damaged)
