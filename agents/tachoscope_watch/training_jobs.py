"""Training jobs over the watch's API: they are stored, shown and cancelled here; supervisors act on what is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote

import msgspec
from msgspec import Meta

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs import submission
from tachoscope_core.jobs.submission import InvalidSubmissionError
from tachoscope_core.jobs.submitted_jobs import NoTrainingJobError, TrainingJobConflictError, TrainingJobs
from tachoscope_core.jobs.training_job import TrainingJob
from tachoscope_core.jobs.training_job_file import parse_training_job
from tachoscope_core.jobs.training_job_view import TrainingJobView, view_of
from tachoscope_core.records.base import is_job_name
from tachoscope_core.report.report import Finding, Report, parse
from tachoscope_core.storage.store import Store, written_time
from tachoscope_service.http.server import Request, Response, SlowHandler
from tachoscope_watch.job_roles import JobRoles, RoleMissingError
from tachoscope_watch.view import Checkpoint, JobView, Worker

PATH = "/v1/training-jobs"
MOST_BODY_BYTES = 64 << 10


class TrainingJobDetail(TrainingJobView, frozen=True, kw_only=True):
    """A training job with what is known of its run."""

    workers: Annotated[list[Worker], Meta(description="While it is live: the processes of its newest attempt.")]
    checkpoints: Annotated[list[Checkpoint], Meta(description="While it is live: those of its last minutes.")]
    findings: Annotated[list[Finding], Meta(description="Of the newest report.")]
    lineage: Annotated[dict[str, str], Meta(description="Code, image, data and settings, by the newest report.")]
    judged_at: Annotated[float | None, Meta(description="When that report was made, Unix seconds; null: there is none.")]


class TrainingJobPages:
    """The pages of a store's training jobs.

    Args:
        live: returns what the watch knows of a live job. roles: returns who may what; None: nothing may be submitted or cancelled,
            and who may see the watch's pages may see the jobs.
    """

    def __init__(self, store: Store, live: Callable[[str], JobView | None], roles: Callable[[], JobRoles | None]) -> None:
        self._store = store
        self._live = live
        self._roles = roles

    def gets(self) -> Mapping[str, SlowHandler]:
        return {PATH: SlowHandler(self._all), f"{PATH}/*": SlowHandler(self._one)}

    def posts(self) -> Mapping[str, SlowHandler]:
        return {PATH: SlowHandler(self._submit, MOST_BODY_BYTES), f"{PATH}/*/cancel": SlowHandler(self._cancel)}

    def _all(self, request: Request) -> Response:
        def listed() -> Response:
            jobs, roles = TrainingJobs(self._store), self._roles()
            found = [jobs.status(name) for name in jobs.names()]
            seen = [one for one in found if roles is None or roles.may_read(request.client, one.submitted.submitted_by)]
            return json_answer(200, {"training_jobs": [view_of(one) for one in seen]})

        return _answered(listed)

    def _one(self, request: Request) -> Response:
        return _answered(lambda: json_answer(200, self._detail(unquote(request.path.rpartition("/")[2]), request.client)))

    def _detail(self, name: str, client: str) -> TrainingJobDetail:
        if (roles := self._roles()) is not None:
            roles.check_read(client, self._owner(name), name)
        status = TrainingJobs(self._store).status(_check_name(name))
        live = self._live(name)
        step = max((worker.step for worker in live.workers), default=0) if live is not None else 0
        report, judged = (live.report, live.judged) if live is not None and live.report else self._stored_report(name)
        findings = report.findings if report is not None else []
        if live is not None and live.hang is not None and live.report is None:
            findings = [live.hang, *findings]
        return TrainingJobDetail(
            **msgspec.structs.asdict(view_of(status, step or None)),
            workers=live.workers if live is not None else [],
            checkpoints=live.checkpoints if live is not None else [],
            findings=findings,
            lineage=report.lineage if report is not None else {},
            judged_at=judged or None,
        )

    def _stored_report(self, name: str) -> tuple[Report | None, float]:
        """Return the newest report of a job in the store that can be read, and when it was written; None: there is none."""
        times = {path: written_time(entry) for path, entry in self._store.find(f"jobs/{name}/reports").items()}
        documents = dict(self._store.reports(name)) if times else {}
        for path in sorted(documents, key=lambda path: times.get(path, 0.0), reverse=True):
            with contextlib.suppress(TachoscopeError):  # of a newer version
                return parse(documents[path], path), times.get(path, 0.0)
        return None, 0.0

    def _submit(self, request: Request) -> Response:
        def submitted() -> Response:
            self._accepting().check_submit(request.client)
            asked = _query(request, {"key", "again"})
            if asked.get("again", "false") not in {"true", "false"}:
                raise InvalidSubmissionError(f"again is {asked['again'][:40]!r}", fix="write again=true")
            job = _specified(request.body)
            again, client = asked.get("again") == "true", request.client
            status = submission.submit(self._store, job, key=asked.get("key"), again=again, client=client)
            return json_answer(201, view_of(status))

        return _answered(submitted)

    def _cancel(self, request: Request) -> Response:
        def cancelled() -> Response:
            roles = self._accepting()
            _query(request, set())
            name = unquote(request.path.split("/")[-2])
            roles.check_cancel(request.client, self._owner(name), name)
            return json_answer(
                202, view_of(submission.cancel(self._store, _check_name(name), f"{request.client}, over the watch's API"))
            )

        return _answered(cancelled)

    def _owner(self, name: str) -> str:
        """Return the client that submitted a job; empty: the command did, or there is none.

        Both get the same refusal: only who may see all jobs learns which names exist.
        """
        try:
            return TrainingJobs(self._store).status(_check_name(name)).submitted.submitted_by
        except NoTrainingJobError:
            return ""

    def _accepting(self) -> JobRoles:
        roles = self._roles()
        if roles is None:
            raise RoleMissingError("this watch does not accept training jobs", fix="start it with --accept-jobs FILE")
        return roles


def _check_name(name: str) -> str:
    if not is_job_name(name):
        raise NoTrainingJobError(f"no training job is called {name[:100]!r}")
    return name


def _query(request: Request, known: set[str]) -> dict[str, str]:
    try:
        asked = parse_qs(request.query, keep_blank_values=True, max_num_fields=8)
    except ValueError:
        raise InvalidSubmissionError("the query has too many fields", fix="see /v1/openapi.json") from None
    for name, values in asked.items():
        if name not in known or len(values) != 1:
            fix = f"known, once each: {', '.join(sorted(known)) or 'none'}"
            raise InvalidSubmissionError(f"the query has {name[:40]!r}", fix=fix)
    return {name: values[0] for name, values in asked.items()}


def _specified(body: bytes) -> TrainingJob:
    try:
        return parse_training_job(body, "the specification")
    except TachoscopeError as error:
        raise InvalidSubmissionError(str(error)) from None


def _answered(answer: Callable[[], Response]) -> Response:
    """Return an answer, or the error that keeps it away."""
    try:
        return answer()
    except NoTrainingJobError as error:
        return error_answer(404, str(error))
    except RoleMissingError as error:
        return error_answer(403, str(error))
    except TrainingJobConflictError as error:
        return error_answer(409, str(error))
    except InvalidSubmissionError as error:
        return error_answer(422, str(error))
    except TachoscopeError as error:  # of the store
        return error_answer(503, str(error))


def json_answer(status: int, document: Any) -> Response:
    """Return a document."""
    return Response(status, "application/json", msgspec.json.encode(document))


def error_answer(status: int, text: str) -> Response:
    """Return what keeps an answer away."""
    return json_answer(status, {"error": text})
