"""The fire drills there are, and what each needs running: Prometheus, Alertmanager, a receiver, an agent and a workload."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tachoscope_alerts import build
from tachoscope_alerts.compile import alertmanager, recordings
from tachoscope_alerts.compile import event_alerts as events
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.recordings import Recording
from tachoscope_alerts.spec import files, policy, slo_files
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slo
from tachoscope_cli.drill import phases as drill_course
from tachoscope_cli.drill import prometheus_alertmanager as drill_servers
from tachoscope_cli.drill import runbooks as drill_runbooks
from tachoscope_cli.drill import workloads as drill_workloads
from tachoscope_cli.drill.agent import HANG_SECONDS, Agent, agent, watch
from tachoscope_cli.drill.checks import Check
from tachoscope_cli.drill.phases import AGENT_JOB, WATCH_JOB, DrillPhases
from tachoscope_cli.drill.processes import program
from tachoscope_cli.drill.walk import Expected, RunbookStep, Walk
from tachoscope_cli.drill.webhook_receiver import Receiver
from tachoscope_cli.drill.workloads import DrillFault


@dataclass(frozen=True, slots=True)
class Drill:
    """A drill.

    Attributes:
        fault: what is broken, in words. alert: what has to fire. workload: what is broken. scale: of windows and waits.
        history: seconds without a fault before it. seen: the most seconds that it takes until a metric says what happens.
        holds: of an event, the seconds, not scaled, after which its expression sees the fault. lasts: those for which it goes on
            to see one that has ended; None: as many.
        labels: of the alert, by which it is known among others of its name.
        numbers: of an event's expression, those that are seconds and to be scaled, as its windows are.
        watched: whether a `tachoscope watch` runs, too. scraped: whether Prometheus reads the agent's metrics.
        runbook: what the alert's runbook says of the fault.
    """

    fault: str
    alert: str
    workload: Callable[[Path, Agent], AbstractContextManager[DrillFault]]
    scale: float
    history: float
    seen: float
    holds: float = 0.0
    lasts: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    numbers: Sequence[int] = ()
    watched: bool = False
    scraped: bool = True
    runbook: Expected = field(default_factory=Expected)

    @property
    def timing(self) -> Timing:
        """How fast its servers are."""
        return Timing(interval=0.5, scrape=1.0, scale=self.scale)

    @property
    def alertmanager_timing(self) -> Timing:
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
        runbook=drill_runbooks.INPUT_WAIT,
    ),
    "hang": Drill(
        fault="the process of a training is stopped",
        alert="CollectiveHang",
        workload=drill_workloads.hanging,
        scale=1 / 100,
        history=10.0,
        seen=HANG_SECONDS + 2.0,  # who watches looks once a second, and the agent reads what it says
        holds=300.0,  # no step within 5 minutes
        runbook=drill_runbooks.COLLECTIVE_HANG,
    ),
    "unscraped_hang": Drill(
        fault="the process of a training is stopped on a node whose agent Prometheus does not scrape",
        alert="JobHung",
        workload=drill_workloads.hanging,
        scale=1 / 100,
        history=10.0,
        seen=HANG_SECONDS
        + 12.0,  # the agent looks and ships once a second, and a look of the watch takes seconds on a slow machine
        holds=300.0,  # found at two looks 5 minutes apart
        lasts=0.0,  # the next look finds none
        labels={"training_job": "drill"},
        watched=True,
        scraped=False,
        runbook=drill_runbooks.JOB_HUNG,
    ),
    "straggler": Drill(
        fault="rank 1 of a training computes for half a second more in each step",
        alert="TrainingBottleneck",
        workload=drill_workloads.straggling,
        scale=1 / 200,
        history=15.0,
        seen=45.0,  # until most of the forty steps that the watch looks at are such, and again until most are not
        holds=360.0,  # 6 minutes in which all is lost are a fifth of half an hour
        lasts=1800.0,
        labels={"class": "compute_straggler"},
        watched=True,
        runbook=drill_runbooks.BOTTLENECK,
    ),
    "recompilation": Drill(
        fault="a training compiles the same code again in each step",
        alert="TrainingRecompiling",
        workload=drill_workloads.recompiling,
        scale=1 / 100,
        history=10.0,
        seen=5.0,  # the first step that compiles ends
        holds=1800.0,  # compiles again now, and half an hour ago
        lasts=600.0,
        runbook=drill_runbooks.RECOMPILING,
    ),
    "failed_checkpoint": Drill(
        fault="checkpoints of a training cannot be written",
        alert="TrainingCheckpointTooOld",
        workload=drill_workloads.saving,
        scale=1 / 200,
        history=10.0,
        seen=25.0,  # until a checkpoint is saved, its checksum taken, and it is read back
        holds=7200.0,  # the last sound one is two hours old
        lasts=0.0,  # the next one is young
        numbers=(7200,),
        runbook=drill_runbooks.CHECKPOINT_TOO_OLD,
    ),
    "memory_leak": Drill(
        fault="a training keeps more and more memory, in a control group with a limit",
        alert="TrainingMemoryFull",
        workload=drill_workloads.leaking,
        scale=1 / 100,
        history=10.0,
        seen=40.0,  # in a container with a limit the probe looks every 30 s whose limit counts, and then may write every ten
        holds=100 * drill_workloads.LEAK_SECONDS / 2,  # half of the room is full
        lasts=0.0,  # memory that was freed is room
        numbers=(14400,),
        runbook=drill_runbooks.MEMORY_FULL,
    ),
    "queue_saturation": Drill(
        fault="an inference server is slow and refuses most requests",
        alert="InferenceAvailabilityBurn",
        workload=drill_workloads.serving,
        scale=1 / 400,
        history=10.0,
        seen=0.5,
        runbook=drill_runbooks.AVAILABILITY,
    ),
    "agent_down": Drill(
        fault="a node's agent is killed",
        alert="AgentDown",
        workload=drill_workloads.no_workload,
        scale=1 / 100,
        history=10.0,
        seen=0.0,
        holds=300.0,  # it was away for more than half of 10 minutes
        runbook=drill_runbooks.AGENT_DOWN,
    ),
}


@dataclass(frozen=True, slots=True)
class Specs:
    """What alerts are made of."""

    slos: list[Slo]
    events: list[EventAlert]
    policy: Policy
    recordings: list[Recording] = field(default_factory=list)

    def source_of(self, alert: str) -> Slo | EventAlert:
        """Return the objective or event that an alert is of."""
        sources: list[Slo | EventAlert] = [*self.slos, *self.events]
        return next(one for one in sources if one.alert == alert)

    def scaled_numbers(self, alert: str, numbers: Sequence[int], timing: Timing) -> Specs:
        """Return the same, with numbers of an event's expression scaled: only who wrote them knows that they are seconds."""

        def scaled(event: EventAlert) -> EventAlert:
            expr = event.expr
            for one in numbers if event.alert == alert else ():
                expr = re.sub(rf"\b{one}\b", f"{timing.scaled(one):g}", expr)
            return replace(event, expr=expr)

        return replace(self, events=[scaled(event) for event in self.events])

    def write_rules(self, folder: Path, timing: Timing) -> list[Path]:
        """Write the rules of all of it below a folder; return the files that Prometheus reads."""
        written = build.write(build.contents(self.slos, self.events, self.policy, timing, self.recordings), folder)
        return [path for path in written if path.name.endswith(".rules.yaml")]


def shipped() -> Specs:
    """Return the alerts that come with tachoscope.

    Raises:
        TachoscopeError: one cannot be used, or they are not installed.
    """
    slos = slo_files.load([files.path_of("slos")])
    recorded = recordings.load(files.path_of("recordings.yaml"))
    return Specs(slos, events.load(files.path_of("events")), policy.load(files.path_of("policy.yaml")), recorded)


@dataclass(frozen=True, slots=True)
class DrillOutcome:
    """What came of a drill. `others`: other alerts that came, with what they said. `steps`: of the runbook, if it was walked."""

    checks: list[Check]
    others: dict[str, str]
    steps: list[RunbookStep]


def run_drill(drill: Drill, folder: Path, say: Callable[[str], None], *, walk: bool = False) -> DrillOutcome:
    """Hold a drill; all that it started has ended when it returns or raises.

    Args:
        folder: an empty one, for configurations, data and logs. say: is told what is waited for.
        walk: whether to run the queries and commands of the alert's runbook while the fault is there, and after it.

    Raises:
        TachoscopeError: a program is missing or did not start, or the workload was not well before the fault.
    """
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name, name)
    timing = drill.timing
    specs = shipped().scaled_numbers(drill.alert, drill.numbers, timing)
    written = specs.write_rules(folder / "rules", timing)
    say("starting Prometheus, Alertmanager, a receiver and an agent")
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        configuration = alertmanager.configuration(specs.policy, specs.slos, webhook=receiver.url, timing=drill.alertmanager_timing)
        alertmanager_url = stack.enter_context(drill_servers.alertmanager(folder, configuration))
        watcher = stack.enter_context(agent(folder))
        scraped = {AGENT_JOB: watcher.target} if drill.scraped else {}
        if drill.watched:
            scraped[WATCH_JOB] = stack.enter_context(watch(watcher))
        prometheus_url = stack.enter_context(
            drill_servers.prometheus(folder, rules=written, targets=scraped, alertmanager_url=alertmanager_url, timing=timing)
        )
        fault = stack.enter_context(drill.workload(folder, watcher))
        about: dict[str, Any] = {
            "expected": drill.runbook,
            "timing": timing,
            "prometheus_url": prometheus_url,
            "agent": watcher,
            "known": fault.known,
            "say": say,
        }
        course = DrillPhases(
            alert=drill.alert,
            source=specs.source_of(drill.alert),
            fault=drill.fault,
            history=drill.history,
            seen=drill.seen,
            holds=drill.holds,
            lasts=drill.holds if drill.lasts is None else drill.lasts,
            labels=drill.labels,
            up=AGENT_JOB if drill.scraped else WATCH_JOB,
            timing=timing,
            telling=drill.alertmanager_timing,
            policy=specs.policy,
            receiver=receiver,
            prometheus_url=prometheus_url,
            say=say,
            logs={name: folder / f"{name}.log" for name in ("agent", "prometheus", "watch", "workload")},
            walk=partial(Walk, **about) if walk else None,
        )
        checks, steps = drill_course.run(course, fault)
        return DrillOutcome(checks, drill_course.others(course), steps)
