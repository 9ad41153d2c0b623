"""A small inference server with continuous batching on CPU, under tachoscope's probe: OpenAI's /v1/completions, streamed or not.

    python examples/serve.py --port 8123 --fault kv_pressure
    python examples/serving_load.py http://127.0.0.1:8123 --rate 8 --seconds 30 --output 192
    tachoscope analyze --job chat

The model is a real decoder with random weights, so its answers are noise. Faults, by the class that the report calls them:
`queue_saturation` (one request at a time), `kv_pressure` (a KV cache for a few requests), `prefill_interference` (whole prompts
in one pass, no chunks), `cold_start` (it warms up for all lengths of prompts while requests wait). `--queue-limit` is the cure
of the first: what would wait longer is refused with 429. Needs torch and uvicorn; the parts are tiny_llama.py,
continuous_batching.py and completions_api.py.
"""

from __future__ import annotations

import argparse
import socket
import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
import uvicorn
from completions_api import MODEL, VOCABULARY, Completions, RefusedError
from continuous_batching import Generation, Scheduler
from tiny_llama import Part, Shape, TinyLlama

import tachoscope

FAULTS: dict[str, dict[str, int]] = {
    "none": {},
    "queue_saturation": {"max_batch": 1},
    "kv_pressure": {"kv_tokens": 512},
    "prefill_interference": {"prefill_chunk": 0},
    "cold_start": {"warm_up": 1024},
}


class Engine:
    """The model, and the thread that it runs in. The thread alone touches the scheduler; requests come in under a lock."""

    def __init__(self, options: argparse.Namespace, probe: Any) -> None:
        self.options, self.probe = options, probe
        self.scheduler = Scheduler(options.kv_tokens, options.max_batch, options.prefill_chunk)
        self.arrived: list[Generation] = []
        self.changed = threading.Condition()
        self.ready = self.stopped = False

    @property
    def healthy(self) -> bool:
        return self.ready and not self.stopped

    def submit(self, generation: Generation) -> None:
        """Let a request wait for its turn.

        Raises:
            RefusedError: it never fits, too many wait already, or the engine stopped.
        """
        if not self.scheduler.fits(generation):
            most = self.options.kv_tokens
            raise RefusedError(400, f"{len(generation.prompt)} + {generation.max_tokens} tokens, and the KV cache holds {most}")
        with self.changed:
            if self.stopped:
                raise RefusedError(503, "the engine stopped")
            waiting = len(self.arrived) + len(self.scheduler.waiting)
            if self.options.queue_limit and waiting >= self.options.queue_limit:
                raise RefusedError(429, f"{waiting} requests wait already")
            generation.entered("queued" if self.ready else "cold_start")
            self.arrived.append(generation)
            self.changed.notify()

    def run(self, on_stop: Callable[[], None]) -> None:
        """Load the model and serve, until `stop`; then nobody waits for an answer any more."""
        try:
            with self.probe.loading():
                model = load(self.options)
            with self.changed:
                self.ready = True
                for generation in self.arrived:
                    generation.entered("queued")
            while self._wait():
                self._iterate(model)
        except Exception:
            traceback.print_exc()
        finally:
            self.stop()
            for generation in (*self.scheduler.running, *self.scheduler.waiting, *self.arrived):
                generation.got(None)
            on_stop()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify()

    def _wait(self) -> bool:
        """Wait for something to do; say whether there is."""
        with self.changed:
            while not (self.stopped or self.arrived or self.scheduler.waiting or self.scheduler.running):
                self.changed.wait()
            self.scheduler.waiting += self.arrived
            self.arrived.clear()
            return not self.stopped

    def _iterate(self, model: TinyLlama) -> None:
        batch = self.scheduler.plan()
        if not batch.shares:
            return
        with self.probe.batch(
            prefill_tokens=batch.prefill_tokens,
            decode_tokens=batch.decode_tokens,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            kv_used=self.scheduler.kv_used,
            preempted=batch.preempted,
        ):
            tokens = model.forward(batch.parts)
        self.scheduler.finish(batch, tokens)


def load(options: argparse.Namespace) -> TinyLlama:
    """Make the model and run it once for each length of prompt up to `--warm-up`, as servers do that capture graphs."""
    torch.set_num_threads(options.threads)
    model = TinyLlama(Shape(vocabulary=VOCABULARY), options.kv_tokens)
    for length in range(32, min(options.warm_up, options.kv_tokens) + 1, 32):
        model.forward([Part([1] * length, 0, range(length))])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8123, help="0: any that is free; it is printed")
    parser.add_argument("--service", default="chat", help="name under which it is recorded")
    parser.add_argument("--max-batch", type=int, default=16, help="requests that are worked on at the same time")
    parser.add_argument("--kv-tokens", type=int, default=16384, help="tokens that the KV cache holds")
    parser.add_argument("--prefill-chunk", type=int, default=64, help="prompt tokens in one pass, at most; 0: whole prompts")
    parser.add_argument("--queue-limit", type=int, default=0, help="answer 429 when so many wait; 0: never")
    parser.add_argument("--warm-up", type=int, default=64, help="longest prompt to warm up for, in tokens")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.set_defaults(**FAULTS[parser.parse_known_args()[0].fault])
    options = parser.parse_args()
    service = tachoscope.service(options.service, model=MODEL)
    engine = Engine(options, service.engine("0", capacity=options.max_batch))
    application = tachoscope.ServingMiddleware(Completions(engine), service=service)
    config = uvicorn.Config(application, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    listener = socket.create_server((options.host, options.port), backlog=2048)  # clients may come before the model is there
    print(f"serving on http://{options.host}:{listener.getsockname()[1]}", flush=True)
    thread = threading.Thread(target=engine.run, args=(lambda: setattr(server, "should_exit", True),), daemon=True)
    thread.start()
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        engine.stop()
        thread.join()


if __name__ == "__main__":
    main()
