"""Why a job stands still, by the dumps of PyTorch's flight recorder that paths name or hold."""

from __future__ import annotations

from tachoscope_analyzers.flight_recorder.read import read_sound
from tachoscope_analyzers.flight_recorder.report import report as judged
from tachoscope_cli.inputs import records
from tachoscope_core.report.report import Report


def report_of(places: list[str], job: str | None) -> Report | None:
    """Return the report; None where there is no dump.

    Raises:
        TachoscopeError: no dump is sound, or some places hold something else.
    """
    dumps = records.flight_recorder_dumps(places)
    if not dumps:
        return None
    sound, damaged = read_sound(dumps)
    return judged(sound, dumps, job or records.name_of(places), damaged)
