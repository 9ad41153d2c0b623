"""Profiles asked for over the watch's API: what reaches the store, and what is told of what agents say there."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tachoscope_core.storage import profile_requests
from tachoscope_core.storage.profile_requests import HostState, Pass, Plan, RankState, Request
from tachoscope_core.storage.store import Store
from tachoscope_watch.service import Settings, Watch
from test_watch import get, jobs_of, watching
from watched_jobs import well
from web_clients import HASH, basic


class Told:
    """A log that only the last line is kept of."""

    def info(self, line: str) -> None:
        self.line = line

    def warning(self, _: str | None, line: str) -> None:
        self.line = line


def post(url: str, *headers: tuple[str, str]) -> tuple[int, Any]:
    request = urllib.request.Request(url, method="POST", headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if error.headers["Content-Type"] == "application/json" else text


def until(found: Callable[[], Any]) -> Any:
    for _ in range(2400):
        if (value := found()) is not None:
            return value
        time.sleep(0.05)
    raise AssertionError("it never came")


def test_a_request_reaches_the_agents_and_what_they_say_is_told_to_its_end_or_why_they_refuse_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    well(folder, "job")
    store = Store(str(folder))

    def read(known: str) -> Request:
        """Return a request as an agent finds it."""
        found: Request = until(lambda: profile_requests.read_request(store, "job", known))
        return found

    with watching(folder) as (_, url):
        jobs_of(url)
        page = f"{url}/v1/jobs/job/profile"
        assert json.loads(get(page)) == {"profiles": []}
        status, told = post(f"{page}?steps=7")
        assert (status, told["state"], told["steps"]) == (202, "asked", 7)
        request = read(told["id"])
        assert profile_requests.ids(store, "job", since=time.time() - 600) == [told["id"]]
        assert (request.steps, request.asked_by) == (7, "the watch's API")
        assert post(page) == (409, {"error": f"profile {told['id']} of job job is under way"})

        now = time.time()
        profile_requests.write_plan(store, request, Plan(passes=(Pass(now - 5.0, 2.0),), final=True, step_seconds=0.2))
        ranks = (
            RankState(rank=0, world_size=2, state="stored", steps=7),
            RankState(rank=1, world_size=2, state="failed", reason="gone"),
        )
        profile_requests.write_host(store, request, HostState(host="node-0", updated=now, ranks=ranks))
        done = until(lambda: next((one for one in json.loads(get(page))["profiles"] if one["state"] == "done"), None))
        assert done["detail"] == f"1 of 2 traces are recording {told['id']} of the store"
        assert [rank["reason"] for rank in done["ranks"]] == ["", "gone"]

        _, told = post(page)  # the one before is over
        profile_requests.write_plan(store, read(told["id"]), Plan(refused="one in 600 s", final=True))
        failed = until(lambda: next((one for one in json.loads(get(page))["profiles"] if one["state"] == "failed"), None))
        assert "one in 600 s" in failed["detail"]


def test_what_cannot_be_asked_for_is_said(tmp_path: Path) -> None:
    watch = looked_at(tmp_path, "127.0.0.1")
    wrong = "steps=0", "steps=10001", "steps=1e3", "steps=", "step=5", f"steps={'9' * 400}", "steps=%C2%B2", "steps=5&steps=6"
    try:
        for query in wrong:
            status, told = post(f"{watch.url}/v1/jobs/job/profile?{query}")
            assert (status, "steps= from 1 to 10000" in told["error"]) == (422, True), query
        assert post(f"{watch.url}/v1/jobs/nobody/profile")[0] == 404
        assert post(f"{watch.url}/v1/jobs")[0] == 405
        assert post(f"{watch.url}/v1/jobs/job/profile", ("Origin", "http://elsewhere"))[0] == 403
        assert not (tmp_path / "jobs" / "job" / "requests").exists()
    finally:
        watch.web.stop()


def test_a_profile_that_was_asked_for_elsewhere_is_told_too(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    request = profile_requests.new_request("job", 5, now=time.time(), asked_by="alice")
    profile_requests.write_request(store, request)
    watch = looked_at(tmp_path, "127.0.0.1")
    try:
        (told,) = json.loads(get(f"{watch.url}/v1/jobs/job/profile"))["profiles"]
        assert (told["id"], told["asked_by"], told["state"]) == (request.id, "alice", "asked")
        assert json.loads(get(f"{watch.url}/v1/jobs/job"))["profiles"] == [told]
    finally:
        watch.web.stop()


def test_each_route_of_the_openapi_document_answers_as_it_says(tmp_path: Path) -> None:
    watch = looked_at(tmp_path, "127.0.0.1")
    try:
        document = json.loads(get(f"{watch.url}/v1/openapi.json"))
        for path, methods in document["paths"].items():
            if path.startswith("/v1/training-jobs"):
                continue  # test_training_jobs_api.py
            for method, told in methods.items():
                for job, wanted in (("job", {200, 202}), ("nobody", {404} if "{job}" in path else {200})):
                    url = watch.url + path.replace("{job}", job)
                    status, content = answered(url, method.upper())
                    assert status in wanted
                    assert str(status) in told["responses"]
                    assert content in told["responses"][str(status)]["content"]
        status, content = answered(f"{watch.url}/v1/jobs/job/profile", "POST", ("Origin", "http://elsewhere"))
        assert (status, content.partition(";")[0]) == (403, "text/plain")
        assert "text/plain" in document["paths"]["/v1/jobs/{job}/profile"]["post"]["responses"]["403"]["content"]
    finally:
        watch.web.stop()
        watch._profiles.close()


def test_a_changed_web_configuration_is_read_on_demand_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "web.yaml"
    config.write_text("{}")
    watch = looked_at(tmp_path / "store", "0.0.0.0", web_config=config)
    page = f"http://127.0.0.1:{watch.web.port}/v1/jobs/job/profile"
    try:
        assert post(page)[0] == 403
        config.write_text(f"basic_auth_users: {{alice: '{HASH.decode()}'}}\n")
        watch.reload()
        assert post(page)[0] == 401
        assert post(page, ("Authorization", basic("alice", "secret").partition(": ")[2]))[0] == 202
        config.write_text("basic_auth_users: 5\n")
        watch.reload()
        assert post(page)[0] == 401
    finally:
        watch.web.stop()
        watch._profiles.close()


def answered(url: str, method: str, *headers: tuple[str, str]) -> tuple[int, str]:
    request = urllib.request.Request(url, method=method, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"]
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"]


def test_an_address_that_others_reach_takes_none_without_a_password(tmp_path: Path) -> None:
    watch = looked_at(tmp_path, "0.0.0.0")
    try:
        status, told = post(f"http://127.0.0.1:{watch.web.port}/v1/jobs/job/profile")
        assert status == 403
        assert "--web-config" in told["error"]
        assert json.loads(get(f"http://127.0.0.1:{watch.web.port}/v1/jobs/job/profile")) == {"profiles": []}
    finally:
        watch.web.stop()


def looked_at(folder: Path, address: str, **settings: Any) -> Watch:
    """Return a watch that serves and has looked once at a store with one job."""
    well(folder, "job")
    watch = Watch(Settings(str(folder), address, port=0, **settings), Told())  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        watch.run_cycle(pool)
    return watch
