"""What the middleware records of real requests to a real uvicorn server: how each really ended, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import websockets.sync.client

import tachoscope
from serving_server import ask, counts, post, requests_in, served, stored, until_none_is_in_flight
from tachoscope.serving.asgi_middleware import _MOST_PATHS
from tachoscope_core.metrics.serving import INTER_TOKEN_BUCKETS
from tachoscope_core.records import records


def until_it_streams(client: socket.socket, text: bytes = b"data: 1") -> None:
    seen = b""
    while text not in seen:
        part = client.recv(1 << 16)
        assert part, f"the answer ended before {text!r}: {seen!r}"
        seen += part


def reset(client: socket.socket) -> None:
    """Close a connection the way a client that dies does."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()


@pytest.mark.parametrize("protocol", ["h11", "httptools"])
def test_each_request_is_recorded_as_it_ended(tmp_path: Path, protocol: str) -> None:
    with served(tmp_path, "--http", protocol) as (_, port):
        expected = []

        def asked(outcome: str, status: int, answer: bytes) -> None:
            assert answer.startswith(b"HTTP/1.1 %d" % status if status else b"")
            expected.append((outcome, status))

        asked("ok", 200, ask(port, {}))
        asked("ok", 200, ask(port, {"stream": 5}))
        asked("client_error", 400, ask(port, raw=b"{not JSON"))
        asked("client_error", 422, ask(port, {"status": 422}))
        asked("shed", 429, ask(port, {"status": 429}))
        asked("shed", 503, ask(port, {"status": 503}))
        asked("timeout", 408, ask(port, {"status": 408}))
        asked("timeout", 504, ask(port, {"status": 504}))
        asked("server_error", 500, ask(port, {"status": 500}))
        for body in ({"raise": "value"}, {"raise": "timeout"}, {"send": False}):
            assert ask(port, body).startswith(b"HTTP/1.1 500"), "of the server's own making: the app sent no answer"
        expected += [("server_error", 0), ("timeout", 0), ("server_error", 0)]
        for way in ("raise", "return"):
            answer = ask(port, {"stream": 2, "break": way})
            assert b"data: 1" in answer
            assert b"[DONE]" not in answer
            expected.append(("cut", 200))
        for leave in (socket.socket.close, reset):
            client = post(port, {"stream": 100, "seconds": 0.02})  # goes on for longer than the client takes to leave
            until_it_streams(client)
            leave(client)
            until_none_is_in_flight(port)
            expected.append(("client_error", 200))
        post(port, {"seconds": 0.3}).close()
        until_none_is_in_flight(port)
        expected.append(("client_error", 200))

    found = requests_in(stored(tmp_path))
    assert [(row.outcome, row.status) for row in found] == expected
    assert {(row.model, row.version, row.side) for row in found} == {("tiny", "7", "server")}


def test_an_app_of_fastapi_between_other_middlewares_is_recorded_alike(tmp_path: Path) -> None:
    with served(tmp_path, app="serving_fastapi:app") as (_, port):
        for path in ("/stream", "/busy", "/fault", "/typed?number=7", "/typed?number=seven", "/nowhere"):
            ask(port, path=path)
        client = post(port, path="/stream?count=1000")
        until_it_streams(client)
        client.close()
        until_none_is_in_flight(port)
    whole, busy, fault, typed, mistyped, nowhere, left = requests_in(stored(tmp_path))

    assert (whole.outcome, whole.tokens_out, whole.inter_token_count) == ("ok", 20, 19)
    assert sum(whole.phase_seconds.values()) == pytest.approx(whole.wall_seconds, abs=1e-9)
    assert (busy.outcome, busy.status) == ("shed", 429)
    assert (fault.outcome, fault.status) == ("server_error", 0)
    assert (typed.outcome, typed.status, set(typed.phase_seconds)) == ("ok", 200, {"queued", "prefill"})
    assert typed.wall_seconds < 5.0, "what goes on after the answer is none of the request's time"
    assert (mistyped.outcome, nowhere.outcome) == ("client_error", "client_error")
    assert left.outcome == "client_error"
    assert 2 <= left.tokens_out < 1000, "the app was stopped by it"


def test_a_stream_has_the_times_of_its_chunks_and_one_under_the_engine_its_states_and_tokens(tmp_path: Path) -> None:
    with served(tmp_path) as (_, port):
        began = time.monotonic()
        ask(port, {"stream": 6, "seconds": 0.06})
        ask(port, {"stream": 6, "seconds": 0.06, "engine": True})
        until_none_is_in_flight(port)  # a request ends when its last message was sent: the client may have it sooner
        took = time.monotonic() - began
        ask(port, {})
    bare, told, whole = requests_in(stored(tmp_path))

    for row in (bare, told):
        assert row.inter_token_count == 5, "the end of the stream is not a token"
        assert row.inter_token_seconds >= 5 * 0.06
        assert row.inter_token_max_seconds >= 0.06
        assert sum(row.inter_token_buckets[: INTER_TOKEN_BUCKETS.index(0.05) + 1]) == 0
        assert sum(row.inter_token_buckets) == 5
    assert bare.wall_seconds + told.wall_seconds <= took
    assert (bare.phase_seconds, bare.tokens_in, bare.tokens_out) == ({}, 0, 0)
    assert (told.tokens_in, told.tokens_out) == (57, 6)
    assert set(told.phase_seconds) == {"queued", "prefill", "decode"}
    assert told.phase_seconds["prefill"] >= 0.02
    assert told.phase_seconds["decode"] >= 6 * 0.06
    assert sum(told.phase_seconds.values()) == pytest.approx(told.wall_seconds, abs=1e-9), "no second is unexplained"
    assert told.first_token_seconds is not None
    assert told.first_token_seconds >= told.phase_seconds["queued"] + 0.02
    assert (whole.tokens_in, whole.tokens_out, whole.first_token_seconds) == (11, 3, None), "as its usage says"


def test_health_metrics_other_methods_websockets_and_lifespan_pass_untouched(tmp_path: Path) -> None:
    with served(tmp_path, "--lifespan", "on") as (_, port):
        with websockets.sync.client.connect(f"ws://127.0.0.1:{port}/v1/realtime", open_timeout=60) as client:
            assert client.recv() == "hello"
        for path in ("/health", "/metrics", "/v2/health/ready"):
            assert ask(port, {}, path=path).startswith(b"HTTP/1.1 200")
        assert counts(port)["in_flight"] == 0
    rows = stored(tmp_path)

    assert [type(row) for row in rows] == [records.ServiceStarted, records.ServiceEnded]


def counts_at_rest(port: int) -> dict[str, Any]:
    """Return what the process holds once no request is in flight and it lets go of nothing more."""
    until_none_is_in_flight(port)
    end, before, found = time.monotonic() + 60, {}, counts(port)
    while time.monotonic() < end and any(found[name] != before.get(name) for name in ("tasks", "threads", "files")):
        time.sleep(0.2)
        before, found = found, counts(port)
    return found


@pytest.mark.alone
def test_hundreds_of_requests_at_once_are_each_recorded_once_and_leave_nothing_behind(tmp_path: Path) -> None:
    async def one(port: int, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"together": 400, "stream": 3, "seconds": 0.2}' if number % 2 else b'{"together": 400, "seconds": 0.2}'
        writer.write(b"POST /v1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if number % 10 == 1:
            await reader.readuntil(b"data: 0")
        else:
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()

    async def burst(port: int) -> None:
        await asyncio.gather(*(one(port, number) for number in range(400)))

    with served(tmp_path) as (_, port):
        asyncio.run(burst(port))  # what a first burst makes the process keep is not a leak
        before = counts_at_rest(port)
        for _ in range(2):
            asyncio.run(burst(port))
            until_none_is_in_flight(port)
        after = counts_at_rest(port)
    rows = stored(tmp_path)
    found = requests_in(rows)

    assert len(found) == 1200
    assert sum(row.outcome == "client_error" for row in found) == 120
    assert sum(row.outcome == "ok" for row in found) == 1080
    assert {name: after[name] for name in ("tasks", "threads", "in_flight")} == {
        name: before[name] for name in ("tasks", "threads", "in_flight")
    }
    assert abs(after["files"] - before["files"]) <= 1, "a connection that is just being closed"
    assert after["resident"] - before["resident"] < 8 << 20
    assert [row.in_flight for row in rows if isinstance(row, records.ServiceEnded)] == [0]


def test_only_the_paths_that_are_asked_for_are_recorded_and_a_body_of_any_kind_of_bytes_is_fine(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": memoryview(b"data: 1"), "more_body": True})
        await send({"type": "http.response.body", "body": bytearray(b"data: 2")})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    wrapped = tachoscope.ServingMiddleware(app, service="paths", paths=["/v1/*", "/generate"])
    for path in ("/v1/completions", "/generate", "/generate/more", "/v2"):
        asyncio.run(wrapped({"type": "http", "method": "POST", "path": path}, receive, send))
    tachoscope.service("paths").close()

    assert [message["body"] for message in sent if "body" in message] == [b"data: 1", b"data: 2"] * 4
    assert [row.inter_token_count for row in requests_in(stored(tmp_path, "paths"))] == [1, 1]


def test_requests_to_paths_that_hold_ids_are_each_recorded_and_their_paths_not_kept(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send(message: Any) -> None: ...

    async def ask_all() -> None:
        for number in range(2 * _MOST_PATHS + 1):
            for path in (f"/v1/{number}", f"/{number}/health"):
                await wrapped({"type": "http", "method": "POST", "path": path}, None, send)  # type: ignore[arg-type]

    wrapped = tachoscope.ServingMiddleware(app, service="ids")
    asyncio.run(ask_all())
    tachoscope.service("ids").close()

    assert len(requests_in(stored(tmp_path, "ids"))) == 2 * _MOST_PATHS + 1
    assert len(wrapped._known_paths) <= _MOST_PATHS


def test_a_request_that_is_cancelled_before_its_answer_is_the_servers_fault_and_after_it_began_cut(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        waits.set()
        await asyncio.sleep(600)

    async def send(message: Any) -> None: ...

    waits = asyncio.Event()

    async def cancel() -> None:
        wrapped = tachoscope.ServingMiddleware(app, service="cancelled")
        for path in ("/", "/begun"):
            task = asyncio.create_task(wrapped({"type": "http", "method": "POST", "path": path}, None, send))  # type: ignore[arg-type]
            await waits.wait()
            waits.clear()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    tachoscope.service("cancelled").close()

    assert [row.outcome for row in requests_in(stored(tmp_path, "cancelled"))] == ["server_error", "cut"]


def test_a_leaving_that_the_probe_was_told_of_first_is_told_to_the_app_as_well(tmp_path: Path) -> None:
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        told.append(await receive())
        await asyncio.sleep(0.06)
        await send({"type": "http.response.start", "status": 200, "headers": None})  # as no server takes it
        await send({"type": "http.response.body", "body": b"{}"})
        told.append(await receive())

    messages = iter([{"type": "http.request", "body": b"{}"}, {"type": "http.disconnect"}])

    async def fake_servers_receive() -> Any:
        return next(messages)  # each message once, as some servers do

    async def send(message: Any) -> None: ...

    asyncio.run(
        tachoscope.ServingMiddleware(app, service="left")(
            {"type": "http", "method": "POST", "path": "/"}, fake_servers_receive, send
        )
    )
    tachoscope.service("left").close()

    assert [message["type"] for message in told] == ["http.request", "http.disconnect"]
    assert [row.outcome for row in requests_in(stored(tmp_path, "left"))] == ["client_error"]
