"""The fire drills there are, and what each needs running: Prometheus, Alertmanager, a receiver, an agent and a workload."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from tachoscope_alerts import alertmanager, build, events, openslo, places, policy
from tachoscope_alerts.events import EventAlert
from tachoscope_alerts.policy import Policy
from tachoscope_alerts.slo import Slo
from tachoscope_alerts.windows import Timing
from tachoscope_cli import drill_course, drill_servers, drill_workloads
from tachoscope_cli.drill_agent import HANG_SECONDS, Agent, agent
from tachoscope_cli.drill_checks import Check
from tachoscope_cli.drill_course import AGENT_JOB, Course
from tachoscope_cli.drill_processes import program
from tachoscope_cli.drill_receiver import Receiver
from tachoscope_cli.drill_workloads import Fault


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill.

    Attributes:
        fault: what is broken, in words. alert: what has to fire. workload: what is broken. scale: of windows and waits.
        history: seconds without a fault before it. seen: the most seconds that it takes until a metric says what happens.
        holds: of an event, the seconds, not scaled, after which its expression sees the fault.
    """

    fault: str
    alert: str
    workload: Callable[[Path, Agent], AbstractContextManager[Fault]]
    scale: float
    history: float
    seen: float
    holds: float = 0.0

    @property
    def timing(self) -> Timing:
        """How fast its servers are."""
        return Timing(interval=0.5, scrape=1.0, scale=self.scale)

    @property
    def telling(self) -> Timing:
        """How fast its Alertmanager is: the half hour that a ticket waits for what changed is 3 s, or less."""
        return replace(self.timing, scale=min(self.scale, 1 / 600))


DRILLS = {
    "input_workers": Drill(
        fault="a training waits half a second for each batch",
        alert="TrainingInputWaitBurn",
        workload=drill_workloads.training,
        scale=1 / 7200,
        history=13.0,
        seen=5.0,  # a step is counted when it ends; those that wait are a quarter as many a second as those before
    ),
    "hang": Drill(
        fault="the process of a training is stopped",
        alert="CollectiveHang",
        workload=drill_workloads.hanging,
        scale=1 / 100,
        history=10.0,
        seen=HANG_SECONDS + 2.0,  # who watches looks once a second, and the agent reads what it says
        holds=300.0,  # no step within 5 minutes
    ),
    "queue_saturation": Drill(
        fault="an inference server is slow and refuses most requests",
        alert="InferenceAvailabilityBurn",
        workload=drill_workloads.serving,
        scale=1 / 400,
        history=10.0,
        seen=0.5,
    ),
    "agent_down": Drill(
        fault="a node's agent is killed",
        alert="AgentDown",
        workload=drill_workloads.no_workload,
        scale=1 / 100,
        history=10.0,
        seen=0.0,
        holds=300.0,  # it was away for more than half of 10 minutes
    ),
}


@dataclass(frozen=True, slots=True)
class Specs:
    """What alerts are made of."""

    slos: list[Slo]
    events: list[EventAlert]
    policy: Policy

    def source_of(self, alert: str) -> Slo | EventAlert:
        """Return the objective or event that an alert is of."""
        sources: list[Slo | EventAlert] = [*self.slos, *self.events]
        return next(one for one in sources if one.alert == alert)

    def write_rules(self, folder: Path, timing: Timing) -> list[Path]:
        """Write the rules of all of it below a folder; return the files that Prometheus reads."""
        written = build.build(self.slos, self.events, self.policy, timing, folder)
        return [path for path in written if path.name.endswith(".rules.yaml")]


def shipped() -> Specs:
    """Return the alerts that come with tachoscope.

    Raises:
        TachoscopeError: one cannot be used, or they are not installed.
    """
    slos = openslo.load([places.path_of("slos")])
    return Specs(slos, events.load(places.path_of("events")), policy.load(places.path_of("policy.yaml")))


def hold(drill: Drill, folder: Path, say: Callable[[str], None]) -> tuple[list[Check], list[str]]:
    """Hold a drill; all that it started has ended when it returns or raises.

    Args:
        folder: an empty one, for configurations, data and logs. say: is told what is waited for.

    Returns:
        What was found, and the names of other alerts that came.

    Raises:
        TachoscopeError: a program is missing or did not start, or the workload was not well before the fault.
    """
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name, name)
    specs, timing = shipped(), drill.timing
    written = specs.write_rules(folder / "rules", timing)
    say("starting Prometheus, Alertmanager, a receiver and an agent")
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        configuration = alertmanager.configuration(specs.policy, specs.slos, webhook=receiver.url, timing=drill.telling)
        alertmanager_url = stack.enter_context(drill_servers.alertmanager(folder, configuration))
        watcher = stack.enter_context(agent(folder))
        scraped = {AGENT_JOB: watcher.target}
        prometheus_url = stack.enter_context(
            drill_servers.prometheus(folder, rules=written, targets=scraped, alertmanager_url=alertmanager_url, timing=timing)
        )
        fault = stack.enter_context(drill.workload(folder, watcher))
        course = Course(
            alert=drill.alert,
            source=specs.source_of(drill.alert),
            fault=drill.fault,
            history=drill.history,
            seen=drill.seen,
            holds=drill.holds,
            timing=timing,
            telling=drill.telling,
            policy=specs.policy,
            receiver=receiver,
            prometheus_url=prometheus_url,
            say=say,
            logs={name: folder / f"{name}.log" for name in ("agent", "prometheus", "workload")},
        )
        return drill_course.run(course, fault), drill_course.others(course)
