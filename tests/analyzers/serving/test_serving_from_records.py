"""Traffic from records of requests and engines: nothing is lost or invented, and planted truth is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving_making import BEGIN, Server
from tachoscope_analyzers.records.beat_table import Heartbeats
from tachoscope_analyzers.records.load import JobRecords, from_spool, of_rows, serving_job, status
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_analyzers.serving.records.from_records import engine_states, request_states, traffic_of
from tachoscope_analyzers.serving.records.traffic import traffic
from tachoscope_analyzers.serving.report.from_service import analyze_service
from tachoscope_analyzers.serving.report.report import analyze_traffic
from tachoscope_core.report.report import Source
from tachoscope_core.servers.snapshot import Buckets, EngineState, Snapshot
from tachoscope_show.report.verdict_words import first_lines


def job_of(*servers: Server) -> JobRecords:
    return of_rows("chat", [row for server in servers for row in server.rows], Heartbeats(), StepTable())


SECONDS = st.floats(0.0, 20.0)
REQUESTS = st.lists(
    st.tuples(st.floats(0.0, 900.0), SECONDS, SECONDS, st.lists(st.floats(0.0, 3.0), max_size=8), SECONDS, SECONDS),
    min_size=1,
    max_size=30,
)
WINDOWS = st.lists(st.tuples(st.floats(1.0, 900.0), st.floats(0.1, 1.0), st.integers(0, 50), st.integers(0, 500)), max_size=20)


@given(REQUESTS, WINDOWS)
def test_sums_over_the_intervals_are_the_sums_over_the_records(requests: list[tuple], windows: list[tuple]) -> None:  # type: ignore[type-arg]
    server = Server()
    server.start()
    for arrival, queued, prefill, gaps, rest, preempted in requests:
        phases = {"queued": queued, "prefill": prefill, "decode": sum(gaps), "preempted": preempted}
        server.request(
            arrival, queued=queued, prefill=prefill, gaps=tuple(gaps), rest=rest + preempted, phase_seconds=phases, preemptions=1
        )
    for end, seconds, iterations, tokens in windows:
        server.engine(end, seconds, iterations=iterations, generation_tokens=tokens)
    job = job_of(server)
    found = traffic_of(job)
    rows = job.requests

    assert found.seconds.sum() == pytest.approx(found.wall_seconds)
    assert len(found.seconds) <= 600
    assert found.total("request_seconds") == pytest.approx(sum(row.wall_seconds for row in rows))
    assert found.count("request_seconds") == len(rows)
    for name, state in (("queue_seconds", "queued"), ("prefill_seconds", "prefill"), ("decode_seconds", "decode")):
        assert found.total(name) == pytest.approx(sum(row.phase_seconds[state] for row in rows), abs=1e-6)
    assert found.total("inter_token_seconds") == pytest.approx(sum(row.inter_token_seconds for row in rows), abs=1e-6)
    assert found.count("inter_token_seconds") == pytest.approx(sum(row.inter_token_count for row in rows))
    assert found.total("prompt_tokens_total") == sum(row.tokens_in for row in rows)
    of_engines = sum(row.generation_tokens for row in job.engine_windows)
    assert found.total("generation_tokens_total") == pytest.approx(of_engines or sum(row.tokens_out for row in rows))
    assert found.total("preemptions_total") == len(rows)
    assert found.count("iteration_tokens") == pytest.approx(sum(row.iterations for row in job.engine_windows))
    for name, buckets in found.totals.items():
        assert buckets.count == pytest.approx(found.count(name))
        assert buckets.sum == pytest.approx(found.total(name), abs=1e-6)
        assert list(buckets.counts) == sorted(buckets.counts)
    present = sum(float((found.gauges[name] * found.seconds).sum()) for name in found.gauges)
    assert present == pytest.approx(sum(sum(row.phase_seconds.values()) for row in rows), abs=1e-6)


@given(REQUESTS)
def test_states_of_requests_add_up_to_their_wall_time(requests: list[tuple]) -> None:  # type: ignore[type-arg]
    server = Server()
    for arrival, queued, prefill, gaps, rest, preempted in requests:
        phases = {"queued": queued, "prefill": prefill, "decode": sum(gaps), "preempted": preempted}  # perhaps more than the wall
        server.request(arrival, queued=queued, prefill=prefill, gaps=tuple(gaps), rest=rest, phase_seconds=phases)
    job = job_of(server)

    assert sum(request_states(job).values()) == pytest.approx(sum(row.wall_seconds for row in job.requests))


def test_the_queue_is_where_the_records_say_that_requests_waited() -> None:
    server = Server()
    server.request(0.0, queued=0.0, prefill=1.0, gaps=(1.0,) * 9)
    server.request(2.0, queued=3.0, prefill=1.0, gaps=(1.0,) * 4)
    found = traffic_of(job_of(server))

    assert found.gauges["requests_waiting"] == pytest.approx([0, 0, 1, 1, 1, 0, 0, 0, 0, 0])
    assert found.gauges["requests_running"] == pytest.approx([1, 1, 1, 1, 1, 2, 2, 2, 2, 2])


def test_what_a_client_recorded_is_not_mixed_with_what_the_server_did() -> None:
    server, client = Server(0), Server(1, role="client")
    server.start()
    client.start()
    for number in range(7):
        server.request(number)
    for number in range(11):
        client.request(number, queued=1.0)
    server.engine(5.0, iterations=3)
    job = job_of(server, client)

    assert traffic_of(job).count("request_seconds") == 7
    assert traffic_of(job, "client").count("request_seconds") == 11
    assert "iteration_tokens" not in traffic_of(job, "client").counts
    assert request_states(job)["queued"] == 0.0
    assert request_states(job, "client")["queued"] == pytest.approx(11.0)


def test_a_server_killed_under_load_and_started_anew_shows_the_gap_the_start_and_what_was_cut() -> None:
    first, second = Server(0), Server(1)
    first.start(0.0, began=-5.0)
    for number in range(20):
        first.request(number / 2, prefill=0.2)
    first.beat(9.9, 4)
    first.request(9.5, prefill=0.6)
    second.start(17.0, began=12.0)
    for number in range(20):
        second.request(18.0 + number / 2, prefill=0.2)
    found = traffic_of(job_of(first, second))
    away = [at - BEGIN for at, _ in found.faults]

    assert found.outcomes == {"ok": 41.0, "cut": 3.0}
    assert 10.0 <= min(away) <= 11.5
    assert 16.0 <= max(away) <= 18.0
    assert {start - BEGIN for _, start in found.started} == {-5.0, 12.0}
    assert not found.answered[12:16].any()
    assert found.answered[:9].all()
    assert found.answered[19:].all()


def test_a_server_that_died_idle_is_away_from_the_start_of_the_next_since_nobody_knows_when() -> None:
    first, second = Server(0), Server(1)
    first.start(0.0)
    for number in range(40):
        first.request(number / 4)
    second.start(104.0, began=100.0)
    for number in range(40):
        second.request(104.0 + number / 4)
    found = traffic_of(job_of(first, second))

    assert 100.0 <= min(at - BEGIN for at, _ in found.faults) <= 101.0
    assert max(at - BEGIN for at, _ in found.faults) <= 104.0


def test_a_prompt_and_a_first_token_count_when_that_token_came_and_the_others_until_the_end() -> None:
    server = Server()
    server.request(0.0, queued=4.5, prefill=1.0, gaps=(1.0,) * 4, rest=0.5)
    found = traffic_of(job_of(server))

    assert list(found.counters["prompt_tokens_total"]) == [0, 0, 0, 0, 0, 10, 0, 0, 0, 0]
    assert found.counters["generation_tokens_total"][:5].sum() == 0
    assert found.counters["generation_tokens_total"][5] == pytest.approx(1 + 0.5 * 4 / 4.5)
    assert list(found.counts["first_token_seconds"]) == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_preemptions_that_engine_and_request_both_tell_of_count_once() -> None:
    server = Server()
    server.request(0.0, prefill=5.0, preemptions=3)
    server.engine(2.0, preemptions=3)
    found = traffic_of(job_of(server))

    assert found.counters["preemptions_total"] == pytest.approx([0, 3, 0, 0, 0])


def test_a_second_worker_is_neither_a_gap_nor_a_restart() -> None:
    workers = [Server(0), Server(1)]
    for number, worker in enumerate(workers):
        worker.start(float(5 * number))
        for second in range(5 * number, 20):
            worker.request(float(second))
    found = traffic_of(job_of(*workers))

    assert found.answered.all()
    assert {start for _, start in found.started} == {BEGIN}


def test_rare_requests_do_not_make_the_time_before_the_first_one_a_cold_start() -> None:
    first, second = Server(0), Server(1)
    first.start(0.0)
    for number in range(4):
        first.request(10.0 * number)
    first.end(35.0)
    second.start(36.0, began=35.5)
    second.request(45.0)
    found = traffic_of(job_of(first, second))

    assert {round(at - BEGIN) for at, _ in found.faults} <= {35, 36}


def test_an_engine_that_loads_its_weights_is_away_as_long_as_that() -> None:
    server = Server()
    server.start(0.0)
    for second in range(1, 6):
        server.engine(float(second), state_seconds={"cold_start": 1.0})
    for second in range(6, 11):
        server.engine(float(second), state_seconds={"busy": 0.75}, iterations=10, generation_tokens=20, kv_cache_usage_ratio=0.5)
    server.request(0.5, prefill=5.0, phase_seconds={"cold_start": 4.5, "prefill": 0.5})
    job = job_of(server)
    found = traffic_of(job)

    assert list(found.answered) == [False] * 5 + [True] * 5
    assert {why for _, why in found.faults} == {"the engine was loading"}
    assert min(at for at, _ in found.started) > max(at for at, _ in found.faults)
    assert found.gauges["kv_cache_usage_ratio"][6:] == pytest.approx([0.5] * 4)
    assert engine_states(job) == pytest.approx({"busy": 3.75, "idle": 1.25, "cold_start": 5.0, "starved": 0.0, "unexplained": 0.0})
    assert request_states(job)["cold_start"] == 4.5
    assert found.totals["iteration_tokens"].sum / found.totals["iteration_tokens"].count == 2.0


def test_two_engines_side_by_side_are_two_and_a_restarted_one_is_one() -> None:
    pair, again = Server(0), [Server(0), Server(1)]
    for second in range(1, 11):
        pair.engine(float(second), engine="0")
        pair.engine(float(second), engine="1")
        again[second > 5].engine(float(second))

    assert traffic_of(job_of(pair)).engines == 2
    assert traffic_of(job_of(*again)).engines == 1


def test_refused_requests_have_an_outcome_and_leave_the_latencies_alone() -> None:
    server = Server()
    server.request(0.0, prefill=1.0)
    for number in range(13):
        server.refuse(number / 10)
    server.refuse(2.0, "client_error", 400)
    found = traffic_of(job_of(server))

    assert found.outcomes == {"ok": 1.0, "shed": 13.0, "client_error": 1.0}
    assert found.count("request_seconds") == 1


def test_without_phases_the_engine_says_how_many_run_and_wait() -> None:
    server = Server()
    for second in range(1, 11):
        server.request(second - 1.0, prefill=0.5, phase_seconds={})
        server.engine(float(second), running_mean=2.0, waiting_mean=0.5)
    found = traffic_of(job_of(server))

    assert found.gauges["requests_running"] == pytest.approx([2.0] * 10)
    assert found.gauges["requests_waiting"] == pytest.approx([0.5] * 10)


def test_a_model_without_tokens_is_judged_and_what_nobody_said_of_its_requests_is_not_known() -> None:
    server, worker = Server(0), Server(1, role="engine")
    for number in range(200):
        server.request(number / 10, prefill=0.2, phase_seconds={}, tokens_in=0, tokens_out=0, first_token_seconds=None)
    for second in range(1, 21):
        worker.engine(float(second), state_seconds={"idle": 0.0})  # as LitServe's worker that never says what it does
    found = analyze_service(job_of(server, worker))

    assert found.window.steps == 200
    assert found.goodput is None
    assert not found.findings
    assert found.ledgers[0].states == pytest.approx({"unexplained": 40.0})
    assert found.ledgers[1].states == pytest.approx({"unexplained": 20.0}, rel=0.01)
    assert "queue_saturation" in {row.class_ for row in found.not_measured}
    assert first_lines(found).verdict.startswith("Bottleneck not known")


def test_the_batches_of_an_engine_say_where_requests_without_tokens_wait() -> None:
    server = Server()
    for number in range(200):
        server.request(number / 10, prefill=0.4, phase_seconds={}, tokens_in=0, tokens_out=0, first_token_seconds=None)
    for second in range(1, 21):
        server.engine(float(second), state_seconds={"busy": 0.9}, iterations=9, running_mean=1.0, waiting_mean=3.0)
    found = analyze_service(job_of(server))

    assert found.ledgers[0].states == pytest.approx({"queued": 61.2, "prefill": 20.4}, rel=0.03)
    assert [finding.class_ for finding in found.findings] == ["queue_saturation"]


def test_a_prometheus_with_our_names_and_no_phases_promises_no_speed_up() -> None:
    def look(at: float) -> Snapshot:
        done = Buckets((0.1, 1.0), (0.0, 10.0 * at, 10.0 * at), 2.0 * at)
        nothing = Buckets((), (10.0 * at,), 0.0)
        told = {
            "request_seconds": done,
            "queue_seconds": Buckets((), (0.0,), 0.0),
            "prefill_seconds": nothing,
            "decode_seconds": nothing,
        }
        return Snapshot(1e9 + at, (EngineState("", "chat", histograms=told, outcomes={"ok": 10.0 * at}),), server="tachoscope")

    found = analyze_traffic(traffic([look(15.0 * number) for number in range(40)]), job="chat", sources=[])

    assert found.goodput is None
    assert not found.findings
    assert found.ledgers[0].states == pytest.approx({"unexplained": 2.0 * 585})


def test_an_hour_of_traffic_is_in_600_intervals_and_a_broken_record_is_left_out() -> None:
    server = Server()
    for number in range(3600):
        server.request(float(number))
    server.request(10.0, wall_seconds=-1.0)
    server.request(10.0, inter_token_seconds=1e300)
    found = traffic_of(job_of(server))

    assert len(found.seconds) == 600
    assert found.count("request_seconds") == 3600
    assert np.isfinite(found.gauges["requests_running"]).all()


def test_without_requests_of_a_side_there_is_no_traffic() -> None:
    with pytest.raises(ValueError, match="no requests that a client recorded"):
        traffic_of(job_of(Server()), "client")


def test_a_service_is_told_from_a_training_by_its_records(tmp_path: Path) -> None:
    server = Server()
    server.start()
    server.request(1.0)
    server.engine(2.0)
    server.end(3.0)
    (tmp_path / f"{server.writer}-000000.jsonl").write_bytes(server.lines())
    loaded = from_spool([tmp_path])

    assert serving_job(loaded)
    assert (len(loaded.services), len(loaded.requests), len(loaded.engine_windows), len(loaded.service_ends)) == (1, 1, 1, 1)
    assert not serving_job(JobRecords("training", Source(path="made")))


def test_a_service_runs_until_its_newest_process_ended() -> None:
    first, second = Server(0), Server(1)
    first.start(0.0)
    first.request(1.0)
    second.start(10.0)
    assert status(job_of(first, second), now=BEGIN + 40.0) == "running"
    assert status(job_of(first, second), now=BEGIN + 400.0) == "unknown"
    second.end(20.0)

    assert status(job_of(first, second), now=BEGIN + 21.0) == "completed"
