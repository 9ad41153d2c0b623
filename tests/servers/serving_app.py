"""A small ASGI app for tests of the serving probe: it does what the request's body asks for."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import tachoscope

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


HERE: list[asyncio.Future[None]] = []
"""Requests that wait for others."""


async def answer(scope: Message, receive: Receive, send: Send) -> None:
    """Answer one request; a body that is not JSON is the client's error."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        await send({"type": "websocket.close", "code": 1000})
        return
    if scope["method"] == "GET":
        await whole(send, 200, json.dumps(counts()).encode())
        return
    try:
        wanted = json.loads(await body_of(receive))
    except ValueError:
        await whole(send, 400, b"not JSON")
        return
    if "raise" in wanted:
        raise {"timeout": TimeoutError, "value": ValueError}[wanted["raise"]]("asked for")
    if "together" in wanted:
        await meet(wanted["together"])
    if wanted.get("stream"):
        await stream(send, wanted)
        return
    await pause(wanted.get("seconds", 0.0))
    usage = {"usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}}
    await whole(send, wanted.get("status", 200), json.dumps({"text": "x" * 10_000, **usage}).encode(), wanted.get("send", True))


async def pause(seconds: float) -> None:
    """Sleep for no less than that: a timer of uvloop counts from when the loop's round began, and may end sooner."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(left)


async def meet(count: int) -> None:
    """Wait until so many requests are in flight at once."""
    HERE.append(asyncio.get_running_loop().create_future())
    mine = HERE[-1]
    if len(HERE) == count:
        for one in HERE:
            one.set_result(None)
        HERE.clear()
    await asyncio.wait_for(mine, 300)


async def stream(send: Send, wanted: Message) -> None:
    """Send the chunks that are asked for, under the engine API if that is asked for, and leave off where that is."""
    request = tachoscope.current_request()
    if wanted.get("engine"):
        request.tokens_in = 57
        request.enter("prefill")
        await pause(0.02)
        request.enter("decode")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    for number in range(wanted["stream"]):
        if wanted.get("engine"):
            request.token()
        await send({"type": "http.response.body", "body": f"data: {number}\n\n".encode(), "more_body": True})
        await pause(wanted.get("seconds", 0.0))
    if wanted.get("break") == "raise":
        raise ValueError("asked for")
    if wanted.get("break") == "return":
        return
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def whole(send: Send, status: int, body: bytes, is_sent: bool = True) -> None:
    if is_sent:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def body_of(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


def counts() -> dict[str, Any]:
    """Return what the process holds: what a request must not leave behind."""
    service = tachoscope.service("chat")
    return {
        "pid": os.getpid(),
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "in_flight": service.in_flight,
        "time": time.time(),
    }


app = tachoscope.ServingMiddleware(answer, service="chat", model="tiny", version="7")
