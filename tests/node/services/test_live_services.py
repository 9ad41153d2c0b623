"""What the agent knows of services: sums that add up, no training made of them, and a foreign spool that stays bounded."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processes import AgentProcess, wait_for
from serving_making import BEGIN, Server
from spooling import FakeClock, agent_of, pass_seconds, value
from tachoscope.spool.writer import SpoolWriter
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import of_rows
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_analyzers.serving.records.from_records import engine_states, traffic_of
from tachoscope_core.metrics.serving import OUTCOMES, REQUEST_STATES
from tachoscope_core.records import records
from tachoscope_core.storage import spool
from tachoscope_core.storage.store import Store
from tachoscope_node.config.settings import Limits
from tachoscope_node.jobs.metrics import trainings
from tachoscope_node.jobs.registry import JobRegistry
from tachoscope_node.services import metrics as live_service_families
from tachoscope_node.services.registry import MAX_VERSIONS, MAX_VERSIONS_OF_NODE
from trying import each


def told(*servers: Server, live: JobRegistry | None = None, now: float = 1000.0, directory: str = "run") -> JobRegistry:
    live = live or JobRegistry(Limits())
    for server in servers:
        live.apply(directory, server.writer, server.service, server.lines().splitlines(), now)
    return live


def series(live: JobRegistry) -> dict[tuple[str, ...], Any]:
    return {
        (family.metric.name.removeprefix("tachoscope_"), *labels): point
        for family in live_service_families.families(live.services.services.values())
        for labels, point in family.points
    }


def summed(shown: dict[tuple[str, ...], Any], name: str) -> float:
    return float(sum(point for labels, point in shown.items() if labels[0] == name))


def test_all_outcomes_and_states_are_there_at_zero_before_the_first_request() -> None:
    server = Server()
    server.start(5.0, began=2.0)
    shown = series(told(server))

    assert [shown["requests_total", "chat", "tiny", "1", outcome] for outcome in OUTCOMES] == [0.0] * 6
    assert [shown["request_time_seconds_total", "chat", "tiny", "1", state] for state in REQUEST_STATES] == [0.0] * 6
    assert shown["server_up", "chat"] == 1.0
    assert shown["server_start_time_seconds", "chat"] == BEGIN + 2.0


SECONDS = st.floats(0.0, 30.0)


@given(st.lists(st.tuples(SECONDS, SECONDS, st.lists(SECONDS, max_size=5), SECONDS, st.sampled_from(OUTCOMES)), max_size=30))
def test_states_add_up_to_the_wall_time_and_outcomes_to_the_requests(requests: list[Any]) -> None:
    server = Server()
    server.start()
    for queued, prefill, gaps, rest, outcome in requests:
        said = {"queued": queued, "prefill": prefill * 2, "decode": sum(gaps)}  # perhaps more than the wall time
        server.request(0.0, queued=queued, prefill=prefill, gaps=tuple(gaps), rest=rest, outcome=outcome, phase_seconds=said)
    shown = series(told(server))
    rows = [row for row in server.rows if isinstance(row, records.RequestDone)]

    assert summed(shown, "requests_total") == len(rows)
    assert summed(shown, "request_time_seconds_total") == pytest.approx(sum(row.wall_seconds for row in rows))
    ok = [row.wall_seconds for row in rows if row.outcome == "ok"]
    assert sum(shown["request_seconds", "chat", "tiny", "1"].counts) == len(ok)
    assert shown["request_seconds", "chat", "tiny", "1"].sum == pytest.approx(sum(ok))
    assert sum(shown["request_inter_token_seconds", "chat", "tiny", "1"].counts) == sum(row.inter_token_count for row in rows)
    assert sum(shown["request_first_token_seconds", "chat", "tiny", "1"].counts) == len(rows)
    assert shown["request_tokens_total", "chat", "tiny", "1", "out"] == sum(row.tokens_out for row in rows)


def killed_and_started_anew() -> list[Server]:
    first, second = Server(0), Server(1)
    first.start(4.0, began=0.0)
    for number in range(5, 11):
        first.engine(float(number), state_seconds={"busy": 0.25}, iterations=3, running_mean=1.5, kv_cache_usage_ratio=0.5)
        first.request(number - 1.0, prefill=0.5)
    first.beat(10.0, 5)
    first.request(9.5, prefill=1.0)
    second.start(16.0, began=14.0)
    for number in range(17, 20):
        second.engine(float(number), state_seconds={"busy": 0.5}, running_mean=2.0, waiting_mean=1.0, kv_cache_usage_ratio=0.25)
        second.request(number - 1.0, prefill=0.5)
    return [first, second]


def test_a_killed_process_cuts_what_it_had_and_the_service_is_down_until_the_next_one() -> None:
    first, second = killed_and_started_anew()
    live = told(first)
    live.writer_gone("chat", first.writer, 12.0)
    shown = series(live)
    assert shown["requests_total", "chat", "tiny", "1", "cut"] == 4
    assert shown["server_up", "chat"] == 0.0
    assert ("requests_running", "chat", "tiny") not in shown
    assert ("server_start_time_seconds", "chat") not in shown

    shown = series(told(second, live=live))
    assert shown["requests_total", "chat", "tiny", "1", "cut"] == 4
    assert shown["server_up", "chat"] == 1.0
    assert shown["server_start_time_seconds", "chat"] == BEGIN + 14.0
    assert shown["requests_running", "chat", "tiny"] == 2.0
    assert shown["requests_waiting", "chat", "tiny"] == 1.0
    assert shown["kv_cache_usage_ratio", "chat", "tiny"] == 0.25


def test_states_of_an_engine_add_up_to_the_time_from_its_start_through_its_absence() -> None:
    first, second = killed_and_started_anew()
    live = told(first)
    live.writer_gone("chat", first.writer, 12.0)
    shown = series(told(second, live=live))

    assert summed(shown, "engine_time_seconds_total") == pytest.approx(19.0)
    assert shown["engine_time_seconds_total", "chat", "tiny", "busy"] == pytest.approx(6 * 0.25 + 3 * 0.5)
    assert shown["engine_time_seconds_total", "chat", "tiny", "cold_start"] == pytest.approx(4.0 + 5.5)
    assert shown["engine_iterations_total", "chat", "tiny"] == 18.0


def stopped_and_started_anew() -> list[Server]:
    first, second = Server(0), Server(1)
    first.start(0.5, began=0.0)
    first.request(0.5)
    first.engine(1.5)
    first.end(1.5, in_flight=2)
    second.start(502.0, began=500.0)
    second.engine(503.0)
    return [first, second]


@pytest.mark.parametrize("make", [killed_and_started_anew, stopped_and_started_anew])
def test_agent_and_analyzers_count_the_same(make: Callable[[], list[Server]]) -> None:
    servers = make()
    live = told(servers[0])
    live.writer_gone("chat", servers[0].writer, 12.0)
    shown = series(told(servers[1], live=live))
    job = of_rows("chat", [row for server in servers for row in server.rows], Heartbeats(), StepTable())
    outcomes = {labels[-1]: count for labels, count in shown.items() if labels[0] == "requests_total" and count}

    assert traffic_of(job).outcomes == outcomes
    states = {labels[-1]: seconds for labels, seconds in shown.items() if labels[0] == "engine_time_seconds_total"}
    assert engine_states(job) == pytest.approx(states)


def test_a_service_that_was_stopped_in_order_was_not_away() -> None:
    shown = series(told(*stopped_and_started_anew()))

    assert shown["engine_time_seconds_total", "chat", "tiny", "cold_start"] == pytest.approx(0.5 + 2.0)
    assert shown["requests_total", "chat", "tiny", "1", "cut"] == 2


def test_a_refused_request_waited_in_no_queue() -> None:
    server = Server()
    server.start()
    server.refuse(1.0)
    shown = series(told(server))

    assert shown["requests_total", "chat", "tiny", "1", "shed"] == 1
    assert sum(shown["request_queue_seconds", "chat", "tiny", "1"].counts) == 0


def test_a_service_is_no_training_also_when_it_is_run_by_a_launcher() -> None:
    server = Server()
    server.start()
    server.beat(1.0, 3)
    server.request(1.0)
    live = told(server)
    assert live.jobs == {}

    launcher, other = Server(8, service="uvicorn-7"), Server(9, service="train")
    for who, directory in ((launcher, "run"), (other, "elsewhere")):
        who.write(records.JobStarted, 0.5, world_size=0, pid=1)
        who.rows = [records.JobStarted(**{**_fields(row), "rank": records.LAUNCHER_RANK}) for row in who.rows]
        told(who, live=live, directory=directory)

    assert set(live.jobs) == {"uvicorn-7", "train"}
    assert [job.name for job in trainings(live.jobs.values(), live.services)] == ["train"]


def _fields(row: records.Record) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_what_clients_recorded_is_not_shown() -> None:
    client = Server(role="client")
    client.start()
    client.request(1.0)
    client.beat(1.5, 7)
    client.end(2.0, in_flight=7)

    assert series(told(client)) == {}


def test_of_two_processes_one_may_end_and_the_service_is_up() -> None:
    workers = [Server(0), Server(1)]
    for number, worker in enumerate(workers):
        worker.start(float(number))
        worker.request(1.0)
    live = told(*workers)
    assert series(live)["server_start_time_seconds", "chat"] == BEGIN + 1.0
    live.writer_gone("chat", workers[1].writer, 10.0)
    shown = series(live)

    assert shown["server_up", "chat"] == 1.0
    assert shown["server_start_time_seconds", "chat"] == BEGIN
    assert shown["requests_total", "chat", "tiny", "1", "ok"] == 2


def test_a_front_that_is_gone_is_a_server_that_is_down_though_its_engine_lives() -> None:
    front, engine = Server(0), Server(1, role="engine")
    front.start()
    engine.start()
    live = told(front, engine)
    live.writer_gone("chat", front.writer, 10.0)

    assert series(live)["server_up", "chat"] == 0.0


def test_preemptions_that_engine_and_request_both_tell_of_count_once() -> None:
    server = Server()
    server.start()
    server.engine(1.0, preemptions=3)
    server.request(0.0, preemptions=3)

    assert series(told(server))["request_preemptions_total", "chat", "tiny"] == 3.0


def test_models_and_versions_without_end_share_one_series() -> None:
    server = Server()
    server.start()
    for number in range(1000):
        server.request(1.0, model=f"model-{number}", version="v" * 4_000)
    shown = series(told(server))
    counted = {labels[1:4]: count for labels, count in shown.items() if labels[0] == "requests_total" and labels[-1] == "ok"}

    assert len(counted) == MAX_VERSIONS + 1
    assert counted["chat", "other", "other"] == 1000 - (MAX_VERSIONS - 1)
    assert max(len(version) for _, _, version in counted) < 100


def test_a_version_that_nobody_asks_for_any_more_makes_room_for_the_next() -> None:
    live = JobRegistry(Limits())
    for number in range(3 * MAX_VERSIONS):
        server = Server(number)
        server.start()
        server.request(1.0, version=f"v{number}")
        server.end(2.0)
        told(server, live=live, now=10_000.0 * (number + 1))
    versions = set(live.services.services["chat"].requests["tiny"])

    assert len(versions) == MAX_VERSIONS
    assert f"v{3 * MAX_VERSIONS - 1}" in versions
    assert "other" not in versions


def test_a_thousand_services_and_processes_stay_within_the_limits() -> None:
    live = JobRegistry(Limits(jobs=8, ranks=16))
    for number in range(1_000):
        server = Server(number, service=f"chat-{number % 100}")
        server.start()
        server.engine(1.0)
        server.request(1.0)
        told(server, live=live)

    assert len(live.services.services) == 8
    assert sum(len(service.processes) for service in live.services.services.values()) == 16
    assert live.rejected["over_limit"] > 0
    assert len(series(live)) < 100 * 8
    live.forget(1e6, 900.0)
    assert all(service.processes for service in live.services.services.values()), "one without processes is forgotten"


def test_versions_of_many_services_have_a_limit_for_the_node() -> None:
    live = JobRegistry(Limits())
    for number in range(32):
        server = Server(number, service=f"chat-{number}")
        server.start()
        for version in range(7):
            server.request(1.0, version=f"v{version}")
        told(server, live=live)
    shown = series(live)
    counted = {labels[1:4]: count for labels, count in shown.items() if labels[0] == "requests_total" and labels[-1] == "ok"}

    assert sum(version != "other" for _, _, version in counted) == MAX_VERSIONS_OF_NODE
    assert sum(counted.values()) == 32 * 7


def test_workers_that_come_and_go_do_not_use_the_limit_up() -> None:
    live = JobRegistry(Limits(ranks=4))
    for number in range(100):
        server = Server(number)
        server.start()
        server.request(1.0)
        server.end(2.0)
        told(server, live=live)

    assert series(live)["requests_total", "chat", "tiny", "1", "ok"] == 100
    assert live.rejected["over_limit"] == 0


@each(
    "forged",
    [{"wall_seconds": -1.0}, {"wall_seconds": 1e300}, {"tokens_in": -5}, {"outcome": "great"}, {"inter_token_buckets": [1] * 99}],
)
def test_a_request_that_cannot_be_is_left_out(forged: dict[str, Any]) -> None:
    server = Server()
    server.start()
    server.request(1.0, **forged)
    live = told(server)

    assert summed(series(live), "requests_total") == 0
    assert live.rejected["implausible"] + live.rejected["malformed"] == 1


def test_a_service_is_forgotten_as_long_after_its_end_as_a_job() -> None:
    server = Server()
    server.start()
    live = told(server)
    live.forget(5000.0, 900.0)
    assert "chat" in live.services.services
    live.writer_gone("chat", server.writer, 5000.0)
    live.forget(5800.0, 900.0)
    assert "chat" in live.services.services
    live.forget(5901.0, 900.0)

    assert live.services.services == {}


class Written:
    """A server's process whose records lie in a real spool as it makes them."""

    def __init__(self, directory: Path, server: Server) -> None:
        self.server, self._spool, self._written = server, SpoolWriter(directory, server.writer), 0

    def flush(self) -> None:
        for row in self.server.rows[self._written :]:
            assert self._spool.append(records.encode(row))
        self._written = len(self.server.rows)

    def close(self) -> None:
        self.flush()
        self._spool.close()


def test_an_agent_that_is_restarted_goes_on_counting_and_sees_a_process_that_was_killed_meanwhile(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    process = Written(tmp_path / "spool" / "run", Server())
    process.server.start(990.0)
    process.server.request(995.0)
    process.server.beat(999.0, 3)
    process.flush()
    pass_seconds(agent, clock, 2)
    assert value(agent, "tachoscope_server_up", "chat") == 1.0
    agent.follower.close()
    agent.journal.close()
    process.server.request(998.0, prefill=2.0)
    process.close()
    agent = agent_of(tmp_path, clock=clock)
    pass_seconds(agent, clock, 4)

    assert value(agent, "tachoscope_requests_total", "chat", "tiny", "1", "ok") == 2.0
    assert value(agent, "tachoscope_requests_total", "chat", "tiny", "1", "cut") == 2.0
    assert value(agent, "tachoscope_server_up", "chat") == 0.0


def test_a_process_whose_files_went_while_the_agent_was_away_is_up_no_longer(tmp_path: Path) -> None:
    clock = FakeClock()
    agent = agent_of(tmp_path, clock=clock)
    process = Written(tmp_path / "spool" / "run", Server())
    process.server.start(990.0)
    process.flush()
    pass_seconds(agent, clock, 2)
    agent.follower.close()
    agent.journal.close()
    process.close()
    for file in spool.segments(tmp_path / "spool"):
        os.unlink(file)
    agent = agent_of(tmp_path, clock=clock)
    pass_seconds(agent, clock, 2)

    assert value(agent, "tachoscope_server_up", "chat") == 0.0


def test_killed_at_random_moments_under_load_every_request_is_counted_and_stored_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    agent = AgentProcess(tmp_path, forked=True)
    processes = [Written(tmp_path / "spool" / "run", Server(number)) for number in range(3)]
    for process in processes:
        process.server.start(time.monotonic())
    for _ in range(3):
        agent.start(wait=False)
        until = time.monotonic() + chance.uniform(0.3, 2.0)
        while time.monotonic() < until:
            for process in processes:
                process.server.request(time.monotonic() - 1.0, queued=0.25, gaps=(0.02,) * 5)
                process.server.engine(time.monotonic(), iterations=7)
                process.flush()
            time.sleep(0.01)
        agent.kill()
    agent.start()
    for process in processes:
        process.server.end(time.monotonic(), in_flight=1)
        process.close()
    wait_for(lambda: not list(spool.segments(tmp_path / "spool")))
    page = agent.get("/metrics")
    assert agent.stop() == 0

    made = sorted((row.writer, row.seq) for process in processes for row in process.server.rows)  # type: ignore[attr-defined]
    opened = Store(str(tmp_path / "store"))
    stored = [records.decode(line) for part in opened.segments("chat") for line in opened.read(part).splitlines()]
    assert sorted((row.writer, row.seq) for row in stored) == made
    requests = sum(isinstance(row, records.RequestDone) for process in processes for row in process.server.rows)
    shown = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in page.splitlines() if not line.startswith("#")}
    labels = 'model="tiny",{}service="chat"'
    of = 'tachoscope_requests_total{model="tiny",outcome="%s",service="chat",version="1"}'
    assert shown[of % "ok"] == requests
    assert shown[of % "cut"] == 3
    assert shown["tachoscope_request_inter_token_seconds_count{" + labels.format("") + ',version="1"}'] == 5 * requests
    assert shown["tachoscope_engine_iterations_total{" + labels.format("") + "}"] == 7 * requests


def joint(live: JobRegistry) -> tuple[float, float]:
    shown = series(live)
    yes, no = (shown["requests_joint_total", "chat", "tiny", "1", met] for met in ("yes", "no"))
    return yes, no


def test_a_request_meets_all_objectives_together_or_none() -> None:
    server = Server()
    server.start()
    server.request(0.0, prefill=2.5, gaps=(0.1, 0.1))
    server.request(0.0, prefill=0.1, gaps=(0.02, 0.16))
    assert joint(told(server)) == (2.0, 0.0), "the mean of its tokens counts, and both bounds are met by what is equal to them"
    server.request(0.0, prefill=2.6, gaps=(0.01,))
    server.request(0.0, prefill=0.1, gaps=(0.11, 0.11))
    server.request(0.0, prefill=0.1, gaps=(0.01,), outcome="cut")
    server.refuse(0.0)
    server.refuse(0.0, outcome="client_error", status=400)
    server.request(0.0, prefill=0.1)

    assert joint(told(server)) == (3.0, 4.0)


def test_of_a_model_that_answers_in_no_tokens_nothing_is_said_of_all_objectives_together() -> None:
    server = Server()
    server.start()
    for outcome in ("ok", "server_error"):
        server.request(0.0, outcome=outcome, first_token_seconds=None)
    assert joint(told(server)) == (0.0, 0.0)
    server.request(0.0)
    server.request(0.0, first_token_seconds=None)
    server.request(0.0, outcome="server_error", first_token_seconds=None)

    assert joint(told(server)) == (1.0, 1.0), "one that ended ok and whose first token nobody saw is left out"


def test_what_a_killed_process_had_in_flight_met_none_of_its_objectives() -> None:
    first, _ = killed_and_started_anew()
    live = told(first)
    yes, no = joint(live)
    live.writer_gone("chat", first.writer, 12.0)

    assert joint(live) == (yes, no + 4.0)
