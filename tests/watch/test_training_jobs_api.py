"""Training jobs over the watch's API: what is stored, what is refused and to whom, and that each answer is as the document says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs import submission
from tachoscope_core.jobs.submitted_jobs import TrainingJobs
from tachoscope_core.storage.store import Store
from tachoscope_watch.service import Settings, Watch
from test_profiles import Told
from watched_jobs import slow_input, well

TOKEN = "a-token-of-the-test-for-"
NAMES = ("ci", "alice", "bob", "ops", "stranger")
SPECIFICATION = """
name: slow
command: [python, train.py]
working_directory: /code
"""


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """A watch that accepts jobs from those who have the token, and has looked once at a store with one live job."""
    config = tmp_path / "web.yaml"
    config.write_text(f"bearer_token_files: [{', '.join(str(tmp_path / name) for name in NAMES)}]\n")
    for name in NAMES:
        (tmp_path / name).write_text(TOKEN + name)
        (tmp_path / name).chmod(0o600)
    roles = {"submitter": ["ci", "alice"], "reader": ["bob"], "operator": ["ops"]}
    lines = [f"{role}: [{', '.join(f'token:{tmp_path / name}' for name in names)}]\n" for role, names in roles.items()]
    (tmp_path / "roles.yaml").write_text("".join(lines))
    well(tmp_path / "store", "slow", phases=slow_input(1))
    made = Watch(Settings(str(tmp_path / "store"), port=0, web_config=config, job_roles=tmp_path / "roles.yaml"), Told())  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        made.run_cycle(pool)
    yield made
    made.web.stop()


def ask(watch: Watch, method: str, path: str, body: str | None = None, *, client: str = "ci") -> tuple[int, Any]:
    data = None if body is None else body.encode()
    request = urllib.request.Request(f"{watch.url}{path}", data, {"Authorization": f"Bearer {TOKEN}{client}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if error.headers["Content-Type"] == "application/json" else text


def test_a_job_submitted_twice_with_one_key_at_the_same_time_is_one_job_of_the_store(watch: Watch, tmp_path: Path) -> None:
    other = Store(str(tmp_path / "store"))
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: ask(watch, "POST", "/v1/training-jobs?key=k", SPECIFICATION), range(8)))

    assert {status for status, _ in answers} == {201}
    assert len({told["submitted_at"] for _, told in answers}) == 1
    stored = TrainingJobs(other).status("slow")
    assert (stored.submitted.key, stored.state, stored.attempts) == ("k", "pending", ())
    assert submission.submit(other, stored.submitted.job, key="k") == stored, "the command submits the same job"
    with pytest.raises(TachoscopeError, match="was submitted before"):
        submission.submit(other, stored.submitted.job, key="another")
    assert ask(watch, "POST", "/v1/training-jobs?key=another", SPECIFICATION)[0] == 409
    assert ask(watch, "POST", "/v1/training-jobs?key=k", SPECIFICATION.replace("train.py", "other.py"))[0] == 409


def test_a_job_is_shown_with_what_the_watch_knows_and_the_document_says_so(watch: Watch) -> None:
    document = json.loads(urllib.request.urlopen(_authorised(f"{watch.url}/v1/openapi.json"), timeout=60).read())
    ask(watch, "POST", "/v1/training-jobs", SPECIFICATION)

    status, told = ask(watch, "GET", "/v1/training-jobs/slow")

    assert (status, told["state"], len(told["workers"])) == (200, "pending", 4)
    assert told["findings"][0]["class"] == "input_straggler"
    assert told["judged_at"] is not None
    schemas = document["components"]["schemas"]
    assert set(told) == set(schemas["TrainingJobDetail"]["properties"])
    (line,) = ask(watch, "GET", "/v1/training-jobs")[1]["training_jobs"]
    assert set(line) == set(schemas["TrainingJobView"]["properties"])
    assert {path for path in document["paths"] if "training" in path} == {
        "/v1/training-jobs",
        "/v1/training-jobs/{name}",
        "/v1/training-jobs/{name}/cancel",
    }
    watch.round = type(watch.round)()  # the job is not live any more: its stored report remains
    later = ask(watch, "GET", "/v1/training-jobs/slow")[1]
    assert (later["workers"], later["findings"][0]["class"]) == ([], "input_straggler")


def test_a_job_is_cancelled_once_and_another_answer_says_that_it_has_ended(watch: Watch, tmp_path: Path) -> None:
    ask(watch, "POST", "/v1/training-jobs", SPECIFICATION)

    status, told = ask(watch, "POST", "/v1/training-jobs/slow/cancel")

    assert (status, told["state"], told["cancelled_by"]) == (202, "cancelled", f"token:{tmp_path}/ci, over the watch's API")
    assert TrainingJobs(Store(str(tmp_path / "store"))).status("slow").state == "cancelled"
    assert ask(watch, "POST", "/v1/training-jobs/slow/cancel")[0] == 409
    assert ask(watch, "POST", "/v1/training-jobs", SPECIFICATION)[0] == 409
    assert ask(watch, "POST", "/v1/training-jobs?again=true", SPECIFICATION)[1]["state"] == "pending"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("", "name: x\nnmae: y\n", 422, "the specification:2: nmae is an unknown key"),
        ("", "name: x\ncommand: [train]\n", 422, "lacks working_directory"),
        ("", "{", 422, "not valid YAML"),
        ("", "", 422, "0 documents"),
        ("?ky=1", SPECIFICATION, 422, "known, once each: again, key"),
        ("?key=", SPECIFICATION, 422, "not usable as a key"),
        ("/..%2F..%2Fetc/cancel", None, 403, "may not cancel '../../etc'"),
        ("", "#" * (64 << 10) + "\n", 413, ""),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(watch: Watch, path: str, body: str | None, status: int, said: str) -> None:
    got, told = ask(watch, "POST", f"/v1/training-jobs{path}", body)

    assert got == status
    assert not said or said in told["error"]
    assert ask(watch, "GET", "/v1/training-jobs") == (200, {"training_jobs": []})


def test_each_client_may_what_its_role_says_and_a_refusal_names_the_missing_one(watch: Watch, tmp_path: Path) -> None:
    def said(client: str, method: str, path: str = "", body: str | None = None) -> tuple[int, str]:
        status, told = ask(watch, method, f"/v1/training-jobs{path}", body, client=client)
        return status, told.get("error", "").rpartition("role ")[2].partition(" ")[0].rstrip(";:.,")

    submissions = {name: said(name, "POST", "", SPECIFICATION) for name in ("bob", "ops", "stranger")}
    assert set(submissions.values()) == {(403, "submitter")}
    assert said("ci", "POST", "", SPECIFICATION)[0] == 201
    assert TrainingJobs(Store(str(tmp_path / "store"))).status("slow").submitted.submitted_by == f"token:{tmp_path}/ci"

    reads = {name: said(name, "GET", "/slow") for name in NAMES}
    assert {name for name, (status, _) in reads.items() if status == 200} == {"ci", "bob", "ops"}
    assert {reads["alice"], reads["stranger"]} == {(403, "reader")}
    absent = {name: {said(name, "GET", "/absent")[0], said(name, "POST", "/absent/cancel")[0]} for name in NAMES}
    unseen = {403}
    assert absent == {"ci": unseen, "alice": unseen, "bob": {404, 403}, "ops": {404}, "stranger": unseen}, "no name can be guessed"
    listed = {name: len(ask(watch, "GET", "/v1/training-jobs", client=name)[1]["training_jobs"]) for name in NAMES}
    assert listed == {"ci": 1, "alice": 0, "bob": 1, "ops": 1, "stranger": 0}

    assert said("alice", "POST", "", SPECIFICATION)[0] == 409, "the same specification of another client is not its own job"
    cancels = {name: said(name, "POST", "/slow/cancel") for name in ("alice", "bob", "stranger")}
    assert set(cancels.values()) == {(403, "operator")}
    assert said("ops", "POST", "/slow/cancel")[0] == 202
    assert said("alice", "POST", "?again=true", SPECIFICATION)[0] == 409
    job = TrainingJobs(Store(str(tmp_path / "store"))).status("slow").submitted.job
    again = submission.submit(Store(str(tmp_path / "store")), job, again=True)
    assert again.submitted.submitted_by == f"token:{tmp_path}/ci", "the command continues it for its owner"

    (tmp_path / "roles.yaml").write_text("{}")
    watch.reload()
    assert said("ci", "GET", "/slow") == (403, "reader"), "without a role nothing is allowed"


def test_nobody_unknown_submits_and_without_the_option_nobody_does(watch: Watch, tmp_path: Path) -> None:
    assert ask(watch, "POST", "/v1/training-jobs", SPECIFICATION, client="wrong")[0] == 401
    settings = Settings(str(tmp_path / "store"), port=0, web_config=tmp_path / "web.yaml")
    closed = Watch(settings, Told())  # type: ignore[arg-type]
    try:
        status, told = ask(closed, "POST", "/v1/training-jobs", SPECIFICATION)
        assert (status, "--accept-jobs" in told["error"]) == (403, True)
        assert ask(closed, "POST", "/v1/training-jobs/slow/cancel")[0] == 403
        assert ask(closed, "GET", "/v1/training-jobs/slow", client="stranger")[0] == 404
    finally:
        closed.web.stop()
    roles = tmp_path / "roles.yaml"
    with pytest.raises(TachoscopeError, match="only from known clients"):
        Watch(replace(settings, web_config=None, job_roles=roles), Told())  # type: ignore[arg-type]
    for text, error in {"submitter: [user:nobody]": "roles.yaml:1: .*not a client", "submiter: []": "unknown key"}.items():
        roles.write_text(text)
        with pytest.raises(TachoscopeError, match=error):
            Watch(replace(settings, job_roles=roles), Told())  # type: ignore[arg-type]


def _authorised(url: str) -> urllib.request.Request:
    return urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}ci"})
