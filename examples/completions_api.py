"""OpenAI's /v1/completions as an ASGI application, streamed or not, before an engine that generates.

A prompt is a list of token ids, or text of which each byte is one. /health is 503 until the model is there. The probe's
middleware is around it: the request that it has begun is told the states and tokens, by the engine's thread, at the time of
their making.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any, Protocol

from continuous_batching import Generation

import tachoscope

MODEL, VOCABULARY, STOP_TOKEN = "tiny-llama", 2048, 0
ENVELOPE = {"id": "cmpl", "object": "text_completion", "model": MODEL}

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class RefusedError(Exception):
    """The request is not served: `status` of HTTP, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Engine(Protocol):
    """What generates. `healthy`: it takes requests and works on them."""

    @property
    def healthy(self) -> bool: ...

    def submit(self, generation: Generation) -> None: ...

    def stop(self) -> None: ...


class Completions:
    """The ASGI application."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
            return
        try:
            if scope["path"] == "/health":
                await answer(send, 200 if self.engine.healthy else 503, {"healthy": self.engine.healthy})
            elif (scope["method"], scope["path"]) == ("POST", "/v1/completions"):
                await self.complete(await body_of(receive), receive, send)
            else:
                await refuse(send, 404, f"no {scope['method']} {scope['path']}; there is POST /v1/completions")
        except RefusedError as error:
            await refuse(send, error.status, str(error))

    async def live(self, receive: Receive, send: Send) -> None:
        """Stop the engine when the server shuts down."""
        while (event := (await receive())["type"]) == "lifespan.startup":
            await send({"type": f"{event}.complete"})
        self.engine.stop()
        await send({"type": f"{event}.complete"})

    async def complete(self, body: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; when its client leaves, its place in batch and cache is free for others."""
        generation = generation_of(body)
        request = tachoscope.current_request()
        request.tokens_in = len(generation.prompt)
        found: asyncio.Queue[int | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def got(token: int | None) -> None:
            if token is not None:
                request.token()
            loop.call_soon_threadsafe(found.put_nowait, token)

        generation.entered, generation.got = request.enter, got
        self.engine.submit(generation)
        watch = asyncio.create_task(left(receive, found))
        try:
            pieces = tokens_of(generation, found, watch)
            if body.get("stream"):
                await stream(send, generation, pieces, with_usage=bool((body.get("stream_options") or {}).get("include_usage")))
            else:
                text = "".join([text_of(token) async for token in pieces])
                choice = {"index": 0, "text": text, "finish_reason": generation.ended}
                await answer(send, 200, {**ENVELOPE, "choices": [choice], "usage": usage_of(generation)})
        except ClientLeftError:
            pass
        finally:
            generation.gone = True
            watch.cancel()


async def body_of(receive: Receive) -> dict[str, Any]:
    """Read the body, which is to be a JSON object of at most 8 MiB."""
    content, more = b"", True
    while more and len(content) <= 8 << 20:
        message = await receive()
        content, more = content + message.get("body", b""), message.get("more_body", False)
    try:
        body = json.loads(content)
    except ValueError as error:
        raise RefusedError(400, f"the body is not JSON: {error}") from None
    if more or not isinstance(body, dict):
        raise RefusedError(400, "the body is not a JSON object, or over 8 MiB")
    return body


def generation_of(body: dict[str, Any]) -> Generation:
    """Return what the body asks for."""
    prompt, most = body.get("prompt"), body.get("max_tokens", 16)
    tokens = list(prompt.encode()) if isinstance(prompt, str) else prompt
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int and 0 <= token < VOCABULARY for token in tokens):
        raise RefusedError(400, f"`prompt` is to be text or a list of token ids below {VOCABULARY}, and not empty")
    if type(most) is not int or most < 1:
        raise RefusedError(400, f"`max_tokens` is to be a whole number of at least 1, not {most!r}")
    return Generation(tokens, most, stop_token=None if body.get("ignore_eos") else STOP_TOKEN)


class ClientLeftError(Exception):
    """Nobody reads the answer any more."""


async def left(receive: Receive, found: asyncio.Queue[int | None]) -> None:
    """Wait until the client leaves, and wake whoever waits for a token."""
    while (await receive())["type"] != "http.disconnect":
        pass
    found.put_nowait(None)


async def tokens_of(generation: Generation, found: asyncio.Queue[int | None], watch: asyncio.Task[None]) -> AsyncIterator[int]:
    """Yield the tokens as they are found.

    Raises:
        ClientLeftError: it left. RuntimeError: the engine stopped.
    """
    for number in count(1):
        token = await found.get()
        if token is None:
            raise ClientLeftError if watch.done() else RuntimeError("the engine stopped")
        yield token
        if generation.ended and number == len(generation.output):
            return


async def stream(send: Send, generation: Generation, pieces: AsyncIterator[int], *, with_usage: bool) -> None:
    """Send one server-sent event for each token."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    sent = 0
    async for token in pieces:
        sent += 1
        reason = generation.ended if generation.ended and sent == len(generation.output) else None
        await event(send, {**ENVELOPE, "choices": [{"index": 0, "text": text_of(token), "finish_reason": reason}]})
    if with_usage:
        await event(send, {**ENVELOPE, "choices": [], "usage": usage_of(generation)})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def event(send: Send, content: dict[str, Any]) -> None:
    await send({"type": "http.response.body", "body": b"data: %b\n\n" % json.dumps(content).encode(), "more_body": True})


async def answer(send: Send, status: int, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, why: str) -> None:
    await answer(send, status, {"error": {"message": why, "code": status}})


def text_of(token: int) -> str:
    return f" {token}"


def usage_of(generation: Generation) -> dict[str, int]:
    given, made = len(generation.prompt), len(generation.output)
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
