"""How each job meets the objectives, by its agents' samples: the evaluator of the page Objectives, with one budget a job.

Samples are measured some hours at a time, the newest first, and what was counted is kept until an agent adds to that day.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import streamlit as st

from tachoscope_alerts.measure import from_samples, parquet_cache
from tachoscope_alerts.measure.events import Ask, EventSums, Window
from tachoscope_alerts.measure.from_samples import CHUNK_SECONDS
from tachoscope_alerts.report.report import offender_labels
from tachoscope_alerts.spec.burn_rate_windows import DAY, Timing
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store
from tachoscope_explorer.sources.slos import objectives
from tachoscope_show.text.units import counted, percent

PERIOD_DAYS = 28
"""Days of samples, up to the newest: the period of the shipped objectives."""
MOST_HOSTS = 16
"""Six hours of so many hosts take about 3 s to decode, once; more are for a Prometheus."""
PATIENCE_SECONDS = 2.0
"""After so long no further hours are measured at this look."""
FRESH_SECONDS = 300.0
HELP = (
    "The job's events in the samples of its agents against the objectives: the share that was good, and the target. Below the "
    f"target it spends the budget that all jobs share faster than that allows. Of the last {PERIOD_DAYS} days with samples, by the "
    "same evaluation as the page Objectives, which has what is left of the budgets. A run without an agent has no samples."
)
_JOB_LABELS = ("training_job", "service")
"""Labels whose value is the name of a job in the store."""


@dataclass(frozen=True, slots=True)
class Attainment:
    """How one objective is met by a job: ratios of good events, 0 to 1."""

    name: str
    attained: float
    target: float

    @property
    def is_met(self) -> bool:
        """Whether the job spends no more of the budget than it allows."""
        return self.attained >= self.target


@dataclass(frozen=True, slots=True)
class JobSlos:
    """Attainments of all jobs.

    Attributes:
        by_job: those with events, the worst first. since: Unix seconds from which on samples were measured.
        complete: nothing of the period is left. why: the reason for which nothing can be measured; empty if something can.
    """

    by_job: Mapping[str, Sequence[Attainment]] = field(default_factory=dict)
    since: float = 0.0
    complete: bool = True
    why: str = ""

    def describe(self, job: str, written: float) -> str:
        """Return how a job meets the objectives, or why that is not known.

        Args:
            written: Unix seconds at which something of the job was last written.
        """
        found = self.by_job.get(job, ())
        below = [one for one in found if not one.is_met]
        if below:
            told = ", ".join(f"{one.name} {percent(one.attained)} of {percent(one.target)}" for one in below)
            return f"below {len(below)} of {len(found)}: {told}"
        if found:
            return f"meets {len(found)} of {len(found)}"
        return f"not measured: {self.why or self._why_not(written)}"

    def _why_not(self, written: float) -> str:
        if written >= self.since:
            return "no events of it in the samples of agents"
        return f"it ended before the {PERIOD_DAYS} days of samples" if self.complete else "older samples are not read yet"


def job_slos(url: str, *, seconds: float = PATIENCE_SECONDS) -> JobSlos:
    """Return how jobs meet the objectives.

    Args:
        seconds: after so long no further hours are measured; the next look continues.
    """
    try:
        spans = _spans(url)
        slos = [slo for slo in objectives().values() if _job_label(slo)]
        began, measured = time.monotonic(), list[_Sums]()
        for begin, objects in spans.items():
            if measured and time.monotonic() - began > seconds:
                break
            measured.append(_counted(url, begin, objects))
    except TachoscopeError as error:
        return JobSlos(why=str(error))
    if not measured:
        return JobSlos(why="the store has no samples of agents")
    return JobSlos(_attainments(slos, measured), list(spans)[len(measured) - 1], len(measured) == len(spans))


_Sums = Mapping[tuple[str, str], EventSums]
"""Events by name of the objective and of the job."""


def _attainments(slos: Sequence[Slo], measured: Sequence[_Sums]) -> dict[str, list[Attainment]]:
    sums: defaultdict[tuple[str, str], EventSums] = defaultdict(EventSums)
    for one in measured:
        for of, events in one.items():
            sums[of] += events
    targets, found = {slo.name: slo.target for slo in slos}, defaultdict[str, list[Attainment]](list)
    for (name, job), events in sums.items():
        if events.error_ratio is not None:
            found[job].append(Attainment(name, 1.0 - events.error_ratio, targets[name]))
    return {job: sorted(some, key=lambda one: (one.is_met, one.attained - one.target)) for job, some in found.items()}


@st.cache_data(ttl=FRESH_SECONDS, max_entries=4, show_spinner=False)
def _spans(url: str) -> dict[float, str]:
    """Return the begins of the spans of six hours with samples, the newest first, each with a digest of its day's objects.

    Raises:
        TachoscopeError: the store cannot be read, or has too many hosts.
    """
    store, found = Store(url), dict[float, str]()
    every = store.sample_days()
    for day in (day for day in reversed(every) if day > every[-1] - PERIOD_DAYS * DAY):
        hosts = store.sample_hosts(start=day, end=day + DAY - 1)
        if len(hosts) > MOST_HOSTS:
            raise TachoscopeError(f"samples of {counted(len(hosts), 'host')}, more than {MOST_HOSTS}: ask a Prometheus")
        objects = [one.path for host in hosts for one in store.samples(host, start=day, end=day + DAY - 1)]
        digest = hashlib.sha256("\n".join(objects).encode()).hexdigest()
        begins = (day + DAY - number * CHUNK_SECONDS for number in range(1, round(DAY / CHUNK_SECONDS) + 1))
        found |= {begin: digest for begin in begins if begin < time.time()}
    return found


@st.cache_resource(max_entries=1000, show_spinner=False)
def _counted(url: str, begin: float, objects: str) -> _Sums:  # noqa: ARG001  # `objects` makes what is kept outdated
    labels = {name: (slo, label) for name, slo in objectives().items() if (label := _job_label(slo))}
    window = Window(begin, min(begin + CHUNK_SECONDS, time.time()))
    source = from_samples.of_store(url, cache=parquet_cache.folder())
    answers = source.measure([Ask(replace(slo, by=(label,)), (window,)) for slo, label in labels.values()], Timing())
    rows = zip(labels, answers, strict=True)
    return {(name, group[0]): sums[0] for name, measured in rows for group, sums in measured.items()}


def _job_label(slo: Slo) -> str | None:
    """Return the label that tells the jobs of an objective apart; None if its metrics do not tell them."""
    return next((label for label in _JOB_LABELS if label in (*slo.by, *offender_labels(slo))), None)
