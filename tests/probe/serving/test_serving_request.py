"""The accounting of a request's time and tokens, with a clock that stands still between the calls."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_clock import SECOND, FakeClock
from tachoscope.serving.request import STATES, Request
from tachoscope_core.metrics.serving import INTER_TOKEN_BUCKETS
from tachoscope_core.records import records
from trying import each

ENVELOPE = {
    "job": "j",
    "attempt": 0,
    "writer": "w",
    "seq": 0,
    "rank": 0,
    "local_rank": 0,
    "host": "h",
    "time": 1.0,
    "monotonic_ns": 1,
}


class Ended:
    """Keeps the requests that ended."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def request_ended(self, request: Request) -> None:
        self.requests.append(request)


def new(clock: FakeClock, ended: Ended | None = None) -> Request:
    return Request(ended, clock=clock)


def test_a_request_is_queued_until_its_first_phase_and_nowhere_known_between_phases() -> None:
    clock = FakeClock()
    request = new(clock)
    clock.passes(1)
    with request.phase("prefill"):
        clock.passes(2)
    clock.passes(4)
    request.enter("decode")
    clock.passes(8)
    request.done()

    assert request.fields()["phase_seconds"] == {"queued": 1, "prefill": 2, "decode": 8}
    assert request.fields()["wall_seconds"] == 15


def test_without_a_phase_nothing_is_said_of_the_states() -> None:
    clock = FakeClock()
    request = new(clock)
    clock.passes(3)
    request.done()

    assert (request.fields()["phase_seconds"], request.fields()["wall_seconds"]) == ({}, 3)


def test_a_phase_inside_another_interrupts_it_and_one_entered_inside_stays() -> None:
    clock = FakeClock()
    request = new(clock)
    with request.phase("decode"):
        clock.passes(1)
        with request.phase("preempted"):
            clock.passes(2)
        clock.passes(4)
        request.enter("queued")
        clock.passes(8)
    clock.passes(16)
    request.done()

    assert request.fields()["phase_seconds"] == {"decode": 5, "preempted": 2, "queued": 24}
    assert request.preemptions == 1


def test_a_preemption_counts_once_however_it_is_said() -> None:
    request = new(FakeClock())
    request.preempted()
    request.enter("preempted")
    request.enter("prefill")
    with request.phase("preempted"), request.phase("prefill"):
        pass
    request.done()

    assert request.fields()["preemptions"] == 2


def test_tokens_that_come_together_have_no_time_between_them() -> None:
    clock = FakeClock()
    request = new(clock)
    clock.passes(0.5)
    request.token(2)
    clock.passes(0.04)
    request.token(3)
    clock.passes(9.0)
    request.token()
    request.done()

    fields = request.fields()
    assert (fields["first_token_seconds"], fields["tokens_out"]) == (0.5, 6)
    assert (fields["inter_token_count"], fields["inter_token_max_seconds"]) == (5, 9.0)
    assert fields["inter_token_seconds"] == pytest.approx(9.04)
    assert fields["inter_token_buckets"] == [3, 0, 1, *[0] * (len(INTER_TOKEN_BUCKETS) - 3), 1], "a bound belongs to its bucket"


def test_what_comes_after_the_end_changes_nothing() -> None:
    clock, ended = FakeClock(), Ended()
    request = new(clock, ended)
    request.token()
    request.done("shed")
    before = request.fields()
    clock.passes(1)
    request.token()
    request.enter("decode")
    request.done("ok")

    assert request.fields() == before
    assert ended.requests == [request]


@each(
    ("error", "tokens", "outcome"),
    [
        (None, 0, "ok"),
        (TimeoutError(), 1, "timeout"),
        (asyncio.CancelledError(), 1, "client_error"),
        (GeneratorExit(), 1, "client_error"),
        (ValueError(), 0, "server_error"),
        (ValueError(), 1, "cut"),
    ],
)
def test_leaving_the_block_ends_a_request_by_what_left_it(error: BaseException | None, tokens: int, outcome: str) -> None:
    ended = Ended()
    try:
        with new(FakeClock(), ended) as request:
            request.token(tokens)
            if error is not None:
                raise error
    except BaseException as raised:
        assert raised is error, "and the exception passes"

    assert [request.outcome for request in ended.requests] == [outcome]


def test_a_request_that_is_dropped_without_a_word_was_lost_by_the_server() -> None:
    ended = Ended()
    new(FakeClock(), ended)
    request = new(FakeClock(), ended)
    request.token()
    del request
    gc.collect()

    assert [request.outcome for request in ended.requests] == ["server_error", "cut"]


@each("call", ["enter", "phase", "done"])
def test_a_word_that_there_is_not_is_told_with_those_that_there_are(call: str) -> None:
    with pytest.raises(ValueError, match=r"'decoding'.*; valid (states|outcomes): .*(decode|cut)"):
        getattr(new(FakeClock()), call)("decoding")


events = st.lists(
    st.tuples(
        st.sampled_from([*STATES, "token", "tokens", "leave"]),
        st.integers(0, 20 * SECOND) | st.sampled_from([round(bound * SECOND) for bound in INTER_TOKEN_BUCKETS]),
    ),
    max_size=40,
)


@given(events)
def test_states_are_exclusive_and_never_more_than_the_wall_and_each_gap_is_in_its_bucket(rows: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    request = new(clock)
    arrived = clock.now
    token_times: list[int] = []
    phases: list[object] = []
    for what, nanoseconds in rows:
        clock.now += nanoseconds
        if what.startswith("token"):
            count = 3 if what == "tokens" else 1
            request.token(count)
            token_times += [clock.now] * count
        elif what == "leave":
            if phases:
                phases.pop().__exit__(None, None, None)  # type: ignore[attr-defined]
        else:
            phase = request.phase(what)
            phase.__enter__()
            phases.append(phase)
    request.done()

    fields = request.fields()
    assert fields["wall_seconds"] == (clock.now - arrived) / 1e9
    assert all(seconds > 0 for seconds in fields["phase_seconds"].values())
    assert sum(fields["phase_seconds"].values()) <= fields["wall_seconds"] + 1e-9
    if all(what not in {"leave"} for what, _ in rows) and fields["phase_seconds"]:
        assert sum(fields["phase_seconds"].values()) == pytest.approx(fields["wall_seconds"]), "never left: all time is accounted"
    gaps = [after - before for before, after in itertools.pairwise(token_times)]
    counted = [0] * (len(INTER_TOKEN_BUCKETS) + 1)
    for gap in gaps:
        counted[bisect_left([round(bound * SECOND) for bound in INTER_TOKEN_BUCKETS], gap)] += 1
    record = records.RequestDone(request="1", **ENVELOPE, **fields)  # type: ignore[arg-type]
    assert sum(record.inter_token_buckets) == record.inter_token_count == len(gaps)
    assert record.inter_token_buckets == counted[: len(record.inter_token_buckets)]
    assert record.inter_token_seconds == sum(gaps) / 1e9
    assert record.inter_token_max_seconds == max(gaps, default=0) / 1e9
    assert record.first_token_seconds == ((token_times[0] - arrived) / 1e9 if token_times else None)


def test_many_threads_on_one_request_lose_no_time_and_no_token_and_end_it_once() -> None:
    ended = Ended()
    request = Request(ended)
    barrier = threading.Barrier(4)

    def work(state: str) -> None:
        barrier.wait()
        for _ in range(2000):
            request.enter(state)
            request.token()
        barrier.wait()
        request.done()

    threads = [threading.Thread(target=work, args=(state,)) for state in ("prefill", "decode", "preempted", "queued")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    fields = request.fields()
    assert ended.requests == [request]
    assert (fields["tokens_out"], fields["inter_token_count"], sum(fields["inter_token_buckets"])) == (8000, 7999, 7999)
    assert sum(fields["phase_seconds"].values()) == pytest.approx(fields["wall_seconds"], abs=1e-9)
