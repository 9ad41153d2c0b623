"""`tachoscope profile`: asks the agents of a running job for a profiler trace of all its ranks, and tells what comes of it."""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tachoscope_cli.options import StoreOption, needs_analysis, notice, store_url
from tachoscope_cli.show import show
from tachoscope_core import profile_requests, stored_traces
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.profile_requests import EXPIRY_SECONDS, Answers, RankState, Request
from tachoscope_core.store import Store

EXAMPLES = (
    "Examples: `tachoscope profile --job resnet`, `tachoscope profile --job resnet --steps 20 --store s3://bucket/tachoscope`"
)
_LOOK_SECONDS = 0.5
_LATE_SECONDS = 240.0
"""After the last moment that is recorded nobody is waited for longer: writing, collecting and storing have their own limits."""
_HOW = (
    "is an agent running on its nodes, with this store? is the job one of PyTorch, under the probe or with KINETO_USE_DAEMON=1? "
    "the agent's log, and its page /v1/profiles, name the jobs that can be profiled"
)


def profile(
    job: Annotated[
        str, typer.Option(help="Name of the running job. The agent's log, and its page /v1/profiles, name those it sees.")
    ],
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Whole steps that each trace should hold.")] = 5,
    store: StoreOption = None,
    wait: Annotated[  # noqa: FBT002
        bool, typer.Option("--wait/--no-wait", help="Wait for the traces, and say what they show.")
    ] = True,
) -> None:
    """Record a profiler trace of all ranks of a running job at once, and say where their time goes. The job is not restarted.

    The job runs under the probe, or has KINETO_USE_DAEMON=1 in its environment and nothing else; its nodes need a running agent.
    The ranks begin at one time, 16 s ahead (36 s with an object store); where nothing tells how long a step takes, a first short
    look does.
    """
    if wait:
        needs_analysis()
    opened = Store(store_url(store))
    request = profile_requests.new_request(job, steps, now=time.time(), asked_by=_user())
    profile_requests.ask(opened, request)
    given = f" --store {opened.url}" if store else ""
    if not wait:
        notice(f"asked for profile {request.id} of job {job}; next: tachoscope store traces{given} {job}")
        return
    answers = waited(opened, request, Console(stderr=True))
    kept = _outcome(request, answers)
    notice(f"{len(kept)} traces are recording {request.id} of job {job} in {opened.url}; next: tachoscope explore{given}")
    _report(opened, request, kept)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return "a user"


# --- waiting ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a profile is. `done`, `total`: of what the bar shows, seconds or ranks. `over`: nothing more will come."""

    text: str
    done: float = 0.0
    total: float | None = None
    over: bool = False


def stage(request: Request, answers: Answers, now: float) -> Stage:
    """Say where a profile is; `now` in Unix seconds.

    Raises:
        TachoscopeError: nobody took the request, or it was refused.
    """
    plan, ranks = answers.plan, answers.ranks
    if plan is None:
        if now > request.asked_at + EXPIRY_SECONDS:
            if ranks:
                raise TachoscopeError(f"no agent has rank 0 of job {request.job}, so nobody said when to record", fix=_HOW)
            raise TachoscopeError(f"no agent took the request to profile job {request.job}", fix=_HOW)
        return Stage("waiting for an agent")
    if plan.refused:
        raise TachoscopeError(f"the agent does not profile job {request.job}: {plan.refused}")
    due = plan.passes[-1]
    what = "a first short look" if not plan.step_seconds else f"{request.steps} steps"
    if now < due.start:
        lead = due.start - (plan.passes[-2].start + plan.passes[-2].seconds if len(plan.passes) > 1 else request.asked_at)
        return Stage(f"all ranks begin in {due.start - now:.0f} s: {what}", max(lead - (due.start - now), 0.0), max(lead, 1.0))
    if now < due.start + due.seconds:
        return Stage(f"recording {what}", now - due.start, due.seconds)
    done = sum(rank.state in {"stored", "failed"} for rank in ranks)
    world = max((rank.world_size for rank in ranks), default=0)
    late = now > due.start + due.seconds + _LATE_SECONDS
    settled = (
        plan.final and bool(ranks) and done == len(ranks) and (done >= world or now > due.start + due.seconds + EXPIRY_SECONDS)
    )
    return Stage("collecting the traces", done, world or None, over=settled or late)


def waited(store: Store, request: Request, console: Console, *, clock: Callable[[], float] = time.time) -> Answers:
    """Wait until nothing more comes of a request, with a progress bar on a terminal and a line for each stage elsewhere.

    Raises:
        TachoscopeError: nobody took the request, it was refused, or the store cannot be read.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("asking", total=None)
        before = ""
        for answers, now in _looks(store, request, clock):
            at = stage(request, answers, now)
            bar.update(task, description=at.text, completed=at.done, total=at.total)
            kind = at.text.partition(" in ")[0]
            if kind != before and not console.is_terminal:
                notice(f"{request.id}: {at.text}")
            before = kind
            if at.over:
                return answers
    raise AssertionError("looks never end")


def _looks(store: Store, request: Request, clock: Callable[[], float]) -> Iterator[tuple[Answers, float]]:
    while True:
        yield profile_requests.read_answers(store, request.job, request.id), clock()
        time.sleep(_LOOK_SECONDS)


# --- what came of it ----------------------------------------------------------------------------------------------------------


def _outcome(request: Request, answers: Answers) -> list[RankState]:
    """Return the ranks whose traces are in the store, and say what is wrong with the others.

    Raises:
        TachoscopeError: there are none.
    """
    kept = [rank for rank in answers.ranks if rank.state == "stored"]
    reasons = [
        f"rank {rank.rank}: {rank.reason or 'its agent said nothing more'}" for rank in answers.ranks if rank.state != "stored"
    ]
    world = max((rank.world_size for rank in answers.ranks), default=0)
    absent = world - len(answers.ranks)
    if absent > 0:
        reasons.append(f"{absent} more of its {world} ranks asked no agent that uses this store")
    if not kept:
        raise TachoscopeError(f"there is no trace of job {request.job}: {'; '.join(reasons[:3]) or 'no agent said why'}")
    for reason in reasons:
        notice(reason)
    fewest = min(rank.steps for rank in kept)
    if not fewest:
        notice("steps cannot be told apart in the traces: no optimizer of torch marked them")
    elif fewest < request.steps:
        notice(
            f"the traces hold {fewest} whole steps, {request.steps} were asked for: profiles.most_seconds of the agent limits them"
        )
    return kept


def _report(store: Store, request: Request, kept: list[RankState]) -> None:
    from tachoscope_cli.traces import Options, analyze

    files = {rank.file for rank in kept}
    found = [one for one in stored_traces.traces(store, request.job) if one.recording == request.id and one.file in files]
    paths = [str(stored_traces.local(store, one)) for one in found]
    show(analyze(paths, Options(name=request.job), Console(stderr=True)).report)
