"""Open-loop load on an OpenAI-compatible completions server: requests arrive when they arrive, whether or not the server keeps up.

    python examples/serving_load.py http://127.0.0.1:8123 --rate 4 --seconds 30
    python examples/serving_load.py http://127.0.0.1:8123 --rates 2,4,8 --record chat-clients
    python examples/serving_load.py http://127.0.0.1:8123 --burstiness 0.25 --lengths AzureLLMInferenceTrace_conv.csv --scale 0.1

Arrivals are Poisson; with a burstiness below 1 they come in bursts: gamma-distributed gaps of that shape, as vLLM's benchmark has.
Lengths are fixed, or drawn from a trace with the columns ContextTokens and GeneratedTokens, scaled. Times are from when a request
was due, so that a client that is late does not hide a slow server. Ctrl-C prints what is known by then. Needs aiohttp.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import math
import random
import resource
import time
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

Length = tuple[int, int]
"""Prompt and output tokens."""


@dataclass
class Answer:
    """What became of one request, as its client saw it: seconds from when it was due.

    Attributes:
        due: seconds from the beginning of the load. sent: when it was really sent, after it was due.
        tokens: of the answer, as the server says, else one a chunk. gaps: from one chunk to the next.
        outcome: `ok`, `client_error`, `server_error`, `shed`, `timeout`, `cut`; empty: it goes on.
    """

    due: float
    prompt_tokens: int
    sent: float = 0.0
    first_token: float = 0.0
    end: float = 0.0
    tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    outcome: str = ""
    status: int = 0


def arrivals(rate: float, seconds: float, burstiness: float, randomly: random.Random) -> Iterator[float]:
    """Yield the seconds at which requests are due, at `rate` a second on average."""
    at = randomly.gammavariate(burstiness, 1 / (rate * burstiness))
    while at < seconds:
        yield at
        at += randomly.gammavariate(burstiness, 1 / (rate * burstiness))


def lengths(path: Path, scale: float, most: int) -> list[Length]:
    """Return the scaled lengths of a trace's requests: at least 1 token each, together at most `most`."""
    found = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            prompt = max(1, min(round(int(row["ContextTokens"]) * scale), most - 2))
            output = max(1, min(round(int(row["GeneratedTokens"]) * scale), most - prompt - 1))
            found.append((prompt, output))
    return found


async def ask(session: aiohttp.ClientSession, url: str, body: dict[str, Any], answer: Answer, started: float, record: Any) -> None:
    """Send one request and read its stream to the end; `record`: the probe's, None without."""

    def now() -> float:
        return time.monotonic() - started - answer.due

    try:
        answer.sent = now()
        async with session.post(f"{url}/v1/completions", json=body) as response:
            answer.status = response.status
            if response.status == 200:
                answer.outcome = await read(response.content, answer, now, record)
            else:
                answer.outcome = refusal(response.status)
    except TimeoutError:
        answer.outcome = "timeout"
    except aiohttp.ClientConnectorError:  # nobody is there
        answer.outcome = "server_error"
    except aiohttp.ClientError:  # it was there, and is not any more
        answer.outcome = "cut"
    except (ValueError, KeyError, TypeError, AttributeError):  # it speaks something else
        answer.outcome = "server_error"
    finally:
        answer.end = now()
        if record is not None:
            record.status = answer.status
            record.done(answer.outcome or "client_error", tokens_out=answer.tokens)  # the load was interrupted


async def read(lines: AsyncIterable[bytes], answer: Answer, now: Callable[[], float], record: Any) -> str:
    """Read the events of a stream; return how it ended."""
    last = 0.0
    async for line in lines:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            return "ok"
        event = json.loads(line[len(b"data: ") :])
        if "error" in event:
            return "server_error"
        if event.get("choices"):
            at = now()
            if last:
                answer.gaps.append(at - last)
            else:
                answer.first_token = at
            last = at
            answer.tokens += 1
            if record is not None:
                record.token()
        elif event.get("usage"):  # a chunk may hold several tokens where the client lags
            answer.tokens = event["usage"]["completion_tokens"]
    return "cut"


def refusal(status: int) -> str:
    """Return the outcome of a request that was answered with another status than 200."""
    if status in {429, 503}:
        return "shed"
    if status in {408, 504}:
        return "timeout"
    return "server_error" if status >= 500 else "client_error"


def body_of(model: str, length: Length, randomly: random.Random) -> dict[str, Any]:
    """Return the request for a stream of so many tokens, after a prompt of random ones."""
    prompt, output = length
    return {
        "model": model,
        "prompt": [randomly.randrange(3, 500) for _ in range(prompt)],
        "max_tokens": output,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
    }


async def drive(
    url: str,
    model: str,
    plan: Sequence[tuple[float, Length]],
    *,
    grace: float = 60.0,
    seed: int = 0,
    service: Any = None,
    answers: list[Answer] | None = None,
) -> list[Answer]:
    """Send the planned requests at their times; return what became of them.

    Args:
        grace: seconds that a request may take. seed: of the prompts.
        service: of the probe, with the role `client`; None: no records.
        answers: they are put there as they are sent, so that what is known can be read before the end.
    """
    answers = [] if answers is None else answers
    randomly = random.Random(seed)
    bodies = [body_of(model, length, randomly) for _, length in plan]  # before the clock runs
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=grace)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session, asyncio.TaskGroup() as tasks:
        started = time.monotonic()
        for (due, length), body in zip(plan, bodies, strict=True):
            await asyncio.sleep(max(0.0, started + due - time.monotonic()))
            answers.append(Answer(due, length[0]))
            record = service and service.request(tokens_in=length[0], arrived=started + due)
            tasks.create_task(ask(session, url, body, answers[-1], started, record))
    return answers


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered) - 1e-9) - 1, 0)] if ordered else float("nan")


def tokens_per_second(answers: Sequence[Answer], seconds: float) -> float:
    """Return the tokens of complete answers over the time to the last end: of a load that left a queue, it is after the load's."""
    tokens = sum(answer.tokens for answer in answers if answer.outcome == "ok")
    return tokens / max([seconds, *(answer.due + answer.end for answer in answers)])


def summary(answers: Sequence[Answer], seconds: float) -> str:
    """Return what the clients saw, in a few lines."""
    done = [answer for answer in answers if answer.outcome == "ok"]
    counted = Counter(answer.outcome or "unfinished" for answer in answers).most_common()
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counted)
    return (
        f"{len(answers)} requests in {seconds:.0f} s: {outcomes}; {tokens_per_second(answers, seconds):.0f} tokens a second\n"
        f"first token   {quantiles([answer.first_token for answer in done])}\n"
        f"inter token   {quantiles([gap for answer in done for gap in answer.gaps])}\n"
        f"sent late by  {quantiles([answer.sent for answer in answers])}"
    )


def quantiles(values: Sequence[float]) -> str:
    """Return p50, p95 and p99 of seconds, in milliseconds."""
    return ", ".join(f"p{share * 100:.0f} {quantile(values, share) * 1e3:.1f} ms" for share in (0.5, 0.95, 0.99))


def row(rate: float, answers: Sequence[Answer], seconds: float) -> str:
    """Return the line of a sweep's table about one rate."""
    done = [answer for answer in answers if answer.outcome == "ok"]
    first, gaps = [answer.first_token for answer in done], [gap for answer in done for gap in answer.gaps]
    times = [quantile(values, share) * 1e3 for values in (first, gaps) for share in (0.5, 0.95)]
    tokens = tokens_per_second(answers, seconds)
    return f"{rate:8g} {len(answers):9} {len(done):6} {tokens:9.0f}" + "".join(f"{time:10.1f}" for time in times)


HEAD = "    rate  requests     ok  tokens/s  TTFT p50       p95   ITL p50       p95   (ms)"


def plan_of(options: argparse.Namespace, rate: float) -> list[tuple[float, Length]]:
    """Return when which request is due, the same for the same options."""
    randomly = random.Random(options.seed)
    drawn = lengths(options.lengths, options.scale, options.most) if options.lengths else [(options.prompt, options.output)]
    plan = []
    for due in arrivals(rate, options.seconds, options.burstiness, randomly):
        length = randomly.choice(drawn)
        if randomly.random() < options.long_share:
            length = (options.long_prompt, length[1])
        plan.append((due, length))
    return plan


def options_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--rate", type=float, default=2.0, help="requests a second")
    parser.add_argument("--rates", type=lambda text: [float(rate) for rate in text.split(",")], help="one after the other, 2,4,8")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each rate")
    parser.add_argument("--grace", type=float, default=60.0, help="seconds that a request may take")
    parser.add_argument("--burstiness", type=float, default=1.0, help="1: Poisson; below: in bursts")
    parser.add_argument("--prompt", type=int, default=32, help="tokens")
    parser.add_argument("--output", type=int, default=32, help="tokens")
    parser.add_argument("--long-prompt", type=int, default=0, help="tokens of the prompts that are mixed in")
    parser.add_argument("--long-share", type=float, default=0.0, help="share of the requests that have them")
    parser.add_argument("--lengths", type=Path, help="a trace with the columns ContextTokens and GeneratedTokens")
    parser.add_argument("--scale", type=float, default=0.1, help="of the trace's lengths")
    parser.add_argument("--most", type=int, default=1000, help="tokens that prompt and output may have together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="write each answer there, as JSON lines")
    parser.add_argument("--record", metavar="NAME", help="record what the clients see with tachoscope, as the service of that name")
    return parser.parse_args()


def main() -> None:
    options = options_of()
    service = None
    if options.record:
        import tachoscope

        service = tachoscope.service(options.record, model=options.model, role="client")
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # a connection for each request under way
    if options.rates:
        print(HEAD)
    everything: list[Answer] = []
    for rate in options.rates or [options.rate]:
        answers: list[Answer] = []
        plan, began, interrupted = plan_of(options, rate), time.monotonic(), False
        settings = {"grace": options.grace, "seed": options.seed, "service": service, "answers": answers}
        try:
            asyncio.run(drive(options.url, options.model, plan, **settings))
        except KeyboardInterrupt:
            interrupted = True
        seconds = min(options.seconds, time.monotonic() - began)
        print(row(rate, answers, seconds) if options.rates else summary(answers, seconds), flush=True)
        everything += answers
        if interrupted:
            break
    if options.write:
        options.write.write_text("".join(json.dumps(vars(answer)) + "\n" for answer in everything))


if __name__ == "__main__":
    main()
