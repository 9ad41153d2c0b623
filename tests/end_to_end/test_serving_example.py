"""examples/serve.py under its load, in real processes: who leaves, who is refused, who is cut, and each fault in the records."""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import pytest
from serving_load import Answer, drive

from helpers import environment
from serving_example import Server, caused, load_command, records_of_service, serving, verdict
from tachoscope_core.records import records

Kind = TypeVar("Kind", bound=records.Record)


def of_kind(found: list[records.AnyRecord], kind: type[Kind], *, side: str = "") -> list[Kind]:
    return [record for record in found if isinstance(record, kind) and (not side or getattr(record, "side", "") == side)]


def post(server: Server, body: bytes) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{server.url}/v1/completions", data=body, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def at_once(server: Server, count: int, tokens: int) -> list[Answer]:
    return asyncio.run(drive(server.url, "tiny", [(0.0, (16, tokens))] * count, grace=300.0))


def test_what_cannot_be_served_is_refused_with_what_is_wrong_and_recorded_as_the_clients_error(tmp_path: Path) -> None:
    bodies = {
        b"{bad": "not JSON",
        b"[1]": "not a JSON object",
        b"{}": "`prompt`",
        b'{"prompt": [1, 4096]}': "below 2048",
        b'{"prompt": "Hi", "max_tokens": 0}': "`max_tokens`",
        b'{"prompt": "Hi", "max_tokens": 17000}': "the KV cache holds 16384",
    }
    with serving(tmp_path) as server:
        answers = [post(server, body) for body in bodies]
        status, answer = post(server, b'{"prompt": "Hi", "max_tokens": 3}')
    done = of_kind(records_of_service(tmp_path), records.RequestDone)

    assert [code for code, _ in answers] == [400] * len(bodies)
    for said, (_, content) in zip(bodies.values(), answers, strict=True):
        assert said in content["error"]["message"]
    assert (status, answer["usage"]) == (200, {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5})
    assert Counter(record.outcome for record in done) == {"client_error": len(bodies), "ok": 1}


def test_eighty_requests_at_once_all_end_and_each_is_recorded_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--kv-tokens", "240") as server:  # of 36 tokens each: some lose their place
        answers = at_once(server, 80, 20)
    done = of_kind(records_of_service(tmp_path), records.RequestDone)

    assert Counter(answer.outcome for answer in answers) == {"ok": 80}
    assert {(answer.tokens, len(answer.gaps)) for answer in answers} == {(20, 19)}
    assert len({record.request for record in done}) == len(done) == 80
    assert {(record.outcome, record.tokens_in, record.tokens_out) for record in done} == {("ok", 16, 20)}
    for record in done:
        assert sum(record.phase_seconds.values()) <= record.wall_seconds + 1e-6
    assert sum(record.preemptions for record in done) > 0
    assert sum(window.preemptions for window in of_kind(records_of_service(tmp_path), records.EngineWindow)) == sum(
        record.preemptions for record in done
    )


@pytest.mark.bar
def test_beyond_the_queue_limit_requests_are_shed_and_client_and_server_agree_on_how_many(tmp_path: Path) -> None:
    with serving(tmp_path, "--queue-limit", "8", "--max-batch", "2") as server:
        answers = at_once(server, 60, 48)
    seen = Counter(answer.outcome for answer in answers)

    assert set(seen) == {"ok", "shed"}
    assert seen["ok"] >= 8
    assert Counter(record.outcome for record in of_kind(records_of_service(tmp_path), records.RequestDone)) == seen


@pytest.mark.bar  # planted in tests/probe/serving/test_serving_request.py
def test_a_client_that_leaves_makes_room_for_others(tmp_path: Path) -> None:
    body = json.dumps({"prompt": [1], "max_tokens": 8000, "ignore_eos": True, "stream": True}).encode()
    with serving(tmp_path, "--max-batch", "1") as server:
        with urllib.request.urlopen(f"{server.url}/v1/completions", data=body, timeout=60) as response:
            first = response.readline()
        status, _ = post(server, b'{"prompt": "Hi", "max_tokens": 3}')
    left, served = of_kind(records_of_service(tmp_path), records.RequestDone)

    assert first.startswith(b"data: ")
    assert (left.outcome, served.outcome, status) == ("client_error", "ok", 200)
    assert left.tokens_out < 8000  # else the other one waited for all of it
    windows = of_kind(records_of_service(tmp_path), records.EngineWindow)
    assert sum(window.generation_tokens for window in windows) < 8000


def test_of_a_server_that_is_killed_streams_are_cut_and_later_requests_find_nobody(tmp_path: Path) -> None:
    async def kill_in_mid_stream(server: Server) -> list[Answer]:
        answers: list[Answer] = []
        plan = [(0.0, (16, 4000)), (0.0, (16, 4000))]
        under_way = asyncio.create_task(drive(server.url, "tiny", plan, answers=answers))
        while len(answers) < 2 or not all(answer.tokens > 2 for answer in answers):
            await asyncio.sleep(0.01)
        server.end(signal.SIGKILL)
        await under_way
        return answers + await drive(server.url, "tiny", plan[:1])

    with serving(tmp_path) as server:
        answers = asyncio.run(kill_in_mid_stream(server))

    assert [answer.outcome for answer in answers] == ["cut", "cut", "server_error"]
    assert [answer.status for answer in answers] == [200, 200, 0]


@pytest.mark.bar  # as the one above
def test_a_request_that_takes_longer_than_its_client_waits_timed_out(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        (answer,) = asyncio.run(drive(server.url, "tiny", [(0.0, (16, 8000))], grace=2.0))

    (record,) = of_kind(records_of_service(tmp_path), records.RequestDone)

    assert answer.outcome == "timeout"
    assert record.outcome == "client_error"  # all that the server can see is that its client left


async def beside_a_stream(server: Server, plan: list[tuple[float, tuple[int, int]]], *, grace: float = 60.0) -> None:
    """Send requests while the server streams to another client, which leaves when they have ended."""
    answers: list[Answer] = []
    stream = asyncio.create_task(drive(server.url, "tiny", [(0.0, (16, 8000))], answers=answers))
    while not answers or answers[0].tokens < 3:
        await asyncio.sleep(0.01)
    await drive(server.url, "tiny", plan, grace=grace)
    stream.cancel()


@pytest.mark.bar  # the batching is tested without a server
def test_a_request_whose_client_left_before_its_turn_has_waited_all_its_time(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-batch", "1") as server:
        asyncio.run(beside_a_stream(server, [(0.0, (17, 10))], grace=1.0))
    done = {record.tokens_in: record for record in of_kind(records_of_service(tmp_path), records.RequestDone)}

    assert done[17].outcome == "client_error"
    assert done[17].phase_seconds == {"queued": pytest.approx(done[17].wall_seconds)}


@pytest.mark.bar  # the load is a tool of the example
def test_an_interrupted_load_says_what_it_knows_by_then(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        command = load_command(server.url, "--rate", "20", "--output", "4", "--record", "clients")
        load = subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not any(b"RequestDone" in path.read_bytes() for path in tmp_path.glob("spool/*/*.jsonl")):
            time.sleep(0.05)
        load.send_signal(signal.SIGINT)
        printed, faults = load.communicate(timeout=60)

    assert load.returncode == 0, faults
    assert "requests in" in printed
    assert "first token" in printed
    assert "Traceback" not in faults


def states(found: list[records.AnyRecord]) -> Counter[str]:
    """Request-seconds by state, as the server saw them."""
    total: Counter[str] = Counter()
    for record in of_kind(found, records.RequestDone, side="server"):
        total.update(record.phase_seconds)
    return total


@pytest.mark.bar  # planted, and against a real server, in tests/analyzers/serving
@pytest.mark.alone
def test_without_a_fault_requests_are_worked_on_and_do_not_wait_as_server_and_clients_say(tmp_path: Path) -> None:
    found, answers = caused(tmp_path, "none", seconds=6, watched=True)
    seconds, clients = states(found), of_kind(found, records.RequestDone, side="client")
    served = of_kind(found, records.RequestDone, side="server")

    assert {answer["outcome"] for answer in answers} == {"ok"}
    assert seconds["decode"] + seconds["prefill"] > 4 * seconds["queued"]
    assert not seconds["preempted"]
    assert len(clients) == len(served) == len(answers)
    assert sum(record.tokens_out for record in clients) == sum(record.tokens_out for record in served)
    assert statistics.median(record.wall_seconds for record in clients) >= statistics.median(
        record.wall_seconds for record in served
    )
    assert verdict(tmp_path) == ""


@pytest.mark.bar
@pytest.mark.alone
def test_one_request_at_a_time_is_queue_saturation_most_of_the_time_is_waiting_and_the_cache_is_empty(tmp_path: Path) -> None:
    found, _ = caused(tmp_path, "queue_saturation", seconds=5)
    seconds, windows = states(found), of_kind(found, records.EngineWindow)

    assert seconds["queued"] > 0.6 * seconds.total()
    assert max(window.waiting_mean or 0.0 for window in windows) > 5
    assert max(window.kv_cache_usage_ratio or 0.0 for window in windows) < 0.2
    assert not seconds["preempted"]
    assert verdict(tmp_path) == "queue_saturation"


@pytest.mark.alone
@pytest.mark.bar  # planted, and against a real server, in tests/analyzers/serving
def test_a_small_cache_is_kv_pressure_it_is_full_and_requests_are_preempted(tmp_path: Path) -> None:
    found, _ = caused(tmp_path, "kv_pressure", seconds=5)
    windows = of_kind(found, records.EngineWindow)

    assert sum(window.preemptions for window in windows) > 0
    assert states(found)["preempted"] > 0
    assert max(window.kv_cache_usage_ratio or 0.0 for window in windows) > 0.9
    assert verdict(tmp_path) == "kv_pressure"


@pytest.mark.bar
@pytest.mark.alone
def test_long_prompts_in_one_pass_are_prefill_interference(tmp_path: Path) -> None:
    caused(tmp_path, "prefill_interference", seconds=16)

    assert verdict(tmp_path) == "prefill_interference"


@pytest.mark.parametrize("fault", ["prefill_interference", pytest.param("none", marks=pytest.mark.bar)])
@pytest.mark.bar  # the batching is tested without a server
def test_a_whole_long_prompt_is_computed_between_two_tokens_of_another_request_and_one_in_chunks_is_not(
    tmp_path: Path, fault: str
) -> None:
    with serving(tmp_path, "--fault", fault) as server:
        asyncio.run(beside_a_stream(server, [(0.0, (2000, 1))]))
    done = {record.tokens_in: record for record in of_kind(records_of_service(tmp_path), records.RequestDone)}
    held_up_seconds, prefill_seconds = done[16].inter_token_max_seconds, done[2000].phase_seconds["prefill"]

    # All of it, or one of 32 chunks: half is far from both, whatever else the machine does meanwhile.
    assert (held_up_seconds > 0.5 * prefill_seconds) == (fault == "prefill_interference")


@pytest.mark.alone
@pytest.mark.bar  # planted, and against a real server, in tests/analyzers/serving
def test_requests_that_come_before_the_model_is_there_have_a_cold_start_and_later_ones_none(tmp_path: Path) -> None:
    found, answers = caused(tmp_path, "cold_start", seconds=10)
    loading = sum(window.state_seconds.get("cold_start", 0.0) for window in of_kind(found, records.EngineWindow))
    cold = [record.phase_seconds.get("cold_start", 0.0) for record in of_kind(found, records.RequestDone, side="server")]

    assert {answer["outcome"] for answer in answers} == {"ok"}
    assert 0 < max(cold) <= loading
    assert 0 < sum(second > 0 for second in cold) < len(cold)
    assert states(found)["cold_start"] > states(found)["queued"]
    assert verdict(tmp_path) == "cold_start"
