"""Which snapshots of data a training job may read, by its project and purpose: a file that `$TACHOSCOPE_DATA_POLICY` names.

    snapshots:
      - {snapshot: "web-2026-*", projects: [language], purposes: [pretraining, evaluation]}

Without `projects` or `purposes` an entry allows all. With a policy, a job that names no snapshot is refused too.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.training_job import TrainingJob

if TYPE_CHECKING:
    from tachoscope_core.located_yaml import Section, Value

VARIABLE = "TACHOSCOPE_DATA_POLICY"


@dataclass(frozen=True, slots=True)
class AllowedData:
    """Snapshots that a shell's pattern matches, and the projects and purposes that may read them; None: all."""

    snapshot: str
    projects: tuple[str, ...] | None
    purposes: tuple[str, ...] | None

    def refusal(self, job: TrainingJob) -> str:
        """Return why a job may not read these snapshots; empty: it may."""
        for what, value, allowed in (("project", job.project, self.projects), ("purpose", job.purpose, self.purposes)):
            if allowed is not None and value not in allowed:
                said = f"{what} {value!r}" if value else f"no {what}"
                return f"the job has {said}, and {self.snapshot!r} is for {', '.join(allowed)}"
        return ""


def refusal(job: TrainingJob, environ: Mapping[str, str] = os.environ) -> str:
    """Return why the policy refuses the data of a job; empty: it allows it, or there is no policy.

    Raises:
        TachoscopeError: the policy cannot be read, or has a mistake: with file, line and key.
    """
    path = environ.get(VARIABLE, "")
    if not path:
        return ""
    if not job.snapshot:
        return f"it names no data snapshot, as {path} requires"
    matching = [one for one in read(Path(path)) if fnmatch.fnmatchcase(job.snapshot, one.snapshot)]
    if not matching:
        return f"no entry of {path} allows the data snapshot {job.snapshot!r}"
    reasons = [one.refusal(job) for one in matching]
    return "" if "" in reasons else f"{path} refuses the data snapshot {job.snapshot!r}: {'; '.join(reasons)}"


def read(path: Path) -> list[AllowedData]:
    """Read a policy. Raises as `refusal`."""
    from tachoscope_core.located_yaml import documents  # `status` needs no yaml

    found = documents(path)
    if len(found) != 1:
        raise TachoscopeError(f"{path} has {len(found)} documents", fix="write one, with snapshots: [...]")
    return [_entry(one) for one in found[0].section(("snapshots",)).required("snapshots", "add snapshots: [...]").items()]


def _entry(value: Value) -> AllowedData:
    section = value.section(("snapshot", "projects", "purposes"))
    pattern = section.required("snapshot", 'add snapshot: "web-2026-*"')
    return AllowedData(pattern.text(), _words(section, "projects"), _words(section, "purposes"))


def _words(section: Section, key: str) -> tuple[str, ...] | None:
    value = section.get(key)
    return None if value is None else value.strings()
