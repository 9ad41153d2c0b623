"""`tachoscope profile`: asks the agents of a running job for a profiler trace of all its ranks, and tells what comes of it."""

from __future__ import annotations

import difflib
import getpass
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import TimeRemainingColumn

from tachoscope_cli.common.options import needs_analysis, print_notice, store_url
from tachoscope_cli.common.output import progress, show
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage import traces as stored_traces
from tachoscope_core.storage.profile_requests import RankState, Request, RequestAnswers
from tachoscope_core.storage.profile_status import stage
from tachoscope_core.storage.store import Store

_LOOK_SECONDS = 0.5


def profile(job: str, steps: int, *, store: str | None, wait: bool) -> None:
    """Ask for traces of so many steps of a job; `wait` for them, and print what they show.

    Raises:
        TachoscopeError: nobody took the request, it was refused, there is no trace, or the store cannot be used.
    """
    if wait:
        needs_analysis()
    opened = Store(store_url(store))
    request = profile_requests.new_request(job, steps, now=time.time(), asked_by=_user())
    _hint_at_the_name(opened, job)
    profile_requests.write_request(opened, request)
    given = f" --store {opened.url}" if store else ""
    if not wait:
        print_notice(f"asked for profile {request.id} of job {job}; next: tachoscope store traces{given} {job}")
        return
    try:
        answers = waited(opened, request, Console(stderr=True))
    except TachoscopeError:
        said = profile_requests.read_answers(opened, job, request.id)
        if said.plan is None and not said.hosts:
            profile_requests.withdraw(opened, request)
        raise
    kept = _outcome(request, answers)
    print_notice(f"{len(kept)} traces are recording {request.id} of job {job} in {opened.url}; next: tachoscope explore{given}")
    _report(opened, request, kept)


def _hint_at_the_name(store: Store, job: str) -> None:
    """Print that the store does not know the job, which is mistyped or not under the probe."""
    known = store.jobs()
    if known and job not in known:
        like = difflib.get_close_matches(job, known, n=1)
        meant = f"; did you mean {like[0]}?" if like else ""
        print_notice(f"store {store.url} has no records of job {job}{meant} (an agent may still know it)")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return "a user"


# --- waiting ------------------------------------------------------------------------------------------------------------------


def waited(store: Store, request: Request, console: Console, *, clock: Callable[[], float] = time.time) -> RequestAnswers:
    """Wait until nothing more comes of a request, with a progress bar on a terminal and a line for each stage elsewhere.

    Raises:
        TachoscopeError: nobody took the request, it was refused, or the store cannot be read.
    """
    with progress(TimeRemainingColumn(), on=console) as bar:
        task = bar.add_task("asking", total=None)
        before = ""
        for answers, now in _looks(store, request, clock):
            at = stage(request, answers, now)
            bar.update(task, description=at.text, completed=at.done, total=at.total)
            kind = at.text.partition(" in ")[0]
            if kind != before and not console.is_terminal:
                print_notice(f"{request.id}: {at.text}")
            before = kind
            if at.over:
                return answers
    raise AssertionError("looks never end")


def _looks(store: Store, request: Request, clock: Callable[[], float]) -> Iterator[tuple[RequestAnswers, float]]:
    while True:
        yield profile_requests.read_answers(store, request.job, request.id), clock()
        time.sleep(_LOOK_SECONDS)


# --- what came of it ----------------------------------------------------------------------------------------------------------


def _outcome(request: Request, answers: RequestAnswers) -> list[RankState]:
    """Return the ranks with stored traces, and print what is wrong with the others; raise if there are none."""
    kept = [rank for rank in answers.ranks if rank.state == "stored"]
    reasons = [
        f"rank {rank.rank}: {rank.reason or 'its agent said nothing more'}" for rank in answers.ranks if rank.state != "stored"
    ]
    world = max((rank.world_size for rank in answers.ranks), default=0)
    absent = world - len(answers.ranks)
    if absent > 0:
        reasons.append(f"{absent} more of its {world} ranks are not served by an agent that uses this store")
    if not kept:
        raise TachoscopeError(f"no trace of job {request.job} was recorded: {'; '.join(reasons[:3]) or 'no agent gave a reason'}")
    for reason in reasons:
        print_notice(reason)
    fewest = min(rank.steps for rank in kept)
    if not fewest:
        print_notice("the traces do not mark steps: no torch optimizer ran while they were recorded")
    elif fewest < request.steps:
        print_notice(
            f"the traces have {fewest} whole steps, {request.steps} were requested: profiles.most_seconds of the agent limits them"
        )
    return kept


def _report(store: Store, request: Request, kept: list[RankState]) -> None:
    from tachoscope_cli.inputs.trace_report import Options, analyze

    files = {rank.file for rank in kept}
    found = [one for one in stored_traces.traces(store, request.job) if one.recording == request.id and one.file in files]
    paths = [str(stored_traces.local(store, one)) for one in found]
    show(analyze(paths, Options(name=request.job), Console(stderr=True)).report)
