"""What a path on the command line is: a store, a job in it, a saved report, a recording, dumps. Traces: `inputs.traces`.

It imports little, because every command that judges asks it first.
"""

from __future__ import annotations

import os
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.servers import recording as serving_recording


def is_job_folder(path: str) -> bool:
    """Return whether a path is a job's folder in a store."""
    return "://" not in path and job_folder(path) is not None


def is_store(path: str) -> bool:
    """Return whether a path is the root of a store."""
    return "://" in path or os.path.isdir(f"{path}/jobs")


def is_saved_report(paths: list[str]) -> bool:
    """Return whether there is one path, and it has the name of a saved report."""
    return len(paths) == 1 and paths[0].endswith(".json") and os.path.isfile(paths[0])


def recording(paths: list[str]) -> Path | None:
    """Return the path, if the one path is a recording of a server's metrics.

    Raises:
        TachoscopeError: one is, of several.
    """
    found = [Path(path) for path in paths if os.path.isfile(path) and serving_recording.is_recording(Path(path))]
    if found and len(paths) > 1:
        raise TachoscopeError(f"{found[0]} is a recording of a server, and cannot be judged together with other paths")
    return found[0] if found else None


def flight_recorder_dumps(paths: list[str]) -> list[Path]:
    """Return the dumps of a flight recorder that the paths name or hold; none where they are something else.

    Raises:
        TachoscopeError: some are, and others are not.
    """
    from tachoscope_analyzers.flight_recorder.read import dumps_in

    by_place = {path: [] if is_store(path) or is_job_folder(path) else dumps_in([path]) for path in paths}
    others = [path for path, dumps in by_place.items() if not dumps]
    if others and len(others) < len(by_place):
        raise TachoscopeError(
            f"flight recorder dumps cannot be combined with other input, and {others[0]} contains none", fix="leave it out"
        )
    return [dump for dumps in by_place.values() for dump in dumps]


def job_folder(path: str) -> Path | None:
    """Return the path if it is `<store>/jobs/<job>`; None: it is not."""
    folder = Path(path)
    return folder.resolve() if folder.parent.resolve().name == "jobs" and os.path.isdir(folder / "records") else None
