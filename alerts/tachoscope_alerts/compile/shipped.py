"""What comes with tachoscope, beside objectives of one's own: names that are taken, and alerts that belong to what is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tachoscope_alerts.compile import event_alerts as events
from tachoscope_alerts.compile.alertmanager import WATCHDOG
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.sli_expressions import of_parts
from tachoscope_alerts.spec import files, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.errors import TachoscopeError

NOT_MEASURED = "ObjectiveNotMeasured"
NO_LONGER_MEASURED = "ObjectiveNoLongerMeasured"


@dataclass(frozen=True, slots=True)
class ShippedObjectives:
    """Objectives, and the alerts beside them."""

    slos: Sequence[Slo] = ()
    events: Sequence[EventAlert] = ()

    def paths(self) -> set[Path]:
        """Return the files that they stand in."""
        return {Path(path).resolve() for path in {*(slo.path for slo in self.slos), *(event.path for event in self.events)}}


NOTHING_SHIPPED = ShippedObjectives()


def load() -> ShippedObjectives:
    """Return what lies in `alerts/` here, or came with the package; what is not there or cannot be read is left out.

    Whoever checks those very files is told what is wrong with them; beside files of one's own they only say which names are taken.
    """
    slos: list[Slo] = []
    found: list[EventAlert] = []
    try:
        for path in slo_files.files([files.path_of("slos")]):
            slos += _readable(path)
        found = events.load(files.path_of("events"))
    except TachoscopeError:
        pass
    return ShippedObjectives(slos, found)


def is_whole(slos: Sequence[Slo], shipped: ShippedObjectives) -> bool:
    """Return whether all shipped objectives are among these, as they are or changed: then the shipped alerts belong to them too."""
    return bool(shipped.slos) and {slo.name for slo in shipped.slos} <= {slo.name for slo in slos}


def with_needed(given: Sequence[EventAlert], slos: Sequence[Slo], shipped: ShippedObjectives) -> list[EventAlert]:
    """Return the given alerts and those that every build has: Watchdog, ObjectiveNoLongerMeasured if there is an objective, and
    ObjectiveNotMeasured if an objective needs it.

    An added alert gets a file of its own. In the file of its shipped group it would replace the whole group where both builds are
    put into one folder.
    """
    needed = {
        WATCHDOG: True,
        NO_LONGER_MEASURED: bool(slos),
        NOT_MEASURED: any(of_parts(slo, Timing()).unmeasured for slo in slos),
    }
    missing = [name for name, is_needed in needed.items() if is_needed and all(event.alert != name for event in given)]
    return [*given, *(replace(event, group=event.alert.lower()) for event in shipped.events if event.alert in missing)]


def left_out(slos: Sequence[Slo], given: Sequence[EventAlert], shipped: ShippedObjectives) -> ShippedObjectives:
    """Return what ships and is not among the given objectives and alerts."""
    objectives, alerts = {slo.name for slo in slos}, {event.alert for event in given}
    return ShippedObjectives(
        [slo for slo in shipped.slos if slo.name not in objectives],
        [event for event in shipped.events if event.alert not in alerts],
    )


def refuse_orphans(slos: Sequence[Slo], given: Sequence[EventAlert], shipped: ShippedObjectives) -> None:
    """Refuse alerts of shipped objectives that are not given: without their series they would never stop firing.

    Raises:
        TachoscopeError: there is one.
    """
    missing = {slo.name: slo for slo in shipped.slos} | {slo.name: None for slo in slos}
    for event in given:
        other = missing.get(event.slo)
        if other is not None:
            raise TachoscopeError(
                f"{event.path}:{event.line}: {event.alert} belongs to the objective {other.name}, which is not given",
                fix=f"add --slos {Path(other.path).parent}, or leave --events out",
            )


def _readable(path: Path) -> list[Slo]:
    try:
        return slo_files.read(path)
    except TachoscopeError:
        return []
