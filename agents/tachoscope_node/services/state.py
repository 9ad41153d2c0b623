"""What is known of one service on this node: plain data, which is saved as it is. Times are monotonic unless named Unix."""

from __future__ import annotations

import msgspec

from tachoscope_core.metrics.serving import (
    ENGINE_STATES,
    FIRST_TOKEN_SECONDS,
    INTER_TOKEN_SECONDS,
    MET,
    OUTCOMES,
    QUEUE_SECONDS,
    REQUEST_SECONDS,
    REQUEST_STATES,
)
from tachoscope_service.metrics.buckets import Buckets, empty_buckets


class EngineState(msgspec.Struct):
    """What an engine last said of itself, up to `until`; None: it does not say it."""

    model: str
    until: float
    running: float | None
    waiting: float | None
    kv_cache_usage_ratio: float | None


class ServiceProcess(msgspec.Struct):
    """A process that serves requests.

    Attributes:
        role: as its record says. directory: where it writes.
        began_unix: Unix seconds at which it was started. began: the same on the monotonic clock. first_record: when it first wrote.
        in_flight: requests that it has, as of `beat_unix`. ended: `left` or `killed` once it did.
        engines: by name. begun: the time before its first engine is accounted for.
    """

    directory: str
    role: str = "server"
    model: str = ""
    version: str = ""
    began: float = 0.0
    began_unix: float = 0.0
    first_record: float = 0.0
    last_record: float = 0.0
    in_flight: int = 0
    beat_unix: float = 0.0
    ended: str = ""
    engines: dict[str, EngineState] = {}
    begun: bool = False


class Requests(msgspec.Struct):
    """Sums over the requests to one model and version. `used`: when the last one ended. `joint`: by whether objectives were met."""

    used: float = 0.0
    outcomes: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    joint: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(MET, 0))
    states: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(REQUEST_STATES, 0.0))
    seconds: Buckets = msgspec.field(default_factory=lambda: empty_buckets(REQUEST_SECONDS.buckets))
    first_token: Buckets = msgspec.field(default_factory=lambda: empty_buckets(FIRST_TOKEN_SECONDS.buckets))
    inter_token: Buckets = msgspec.field(default_factory=lambda: empty_buckets(INTER_TOKEN_SECONDS.buckets))
    queue: Buckets = msgspec.field(default_factory=lambda: empty_buckets(QUEUE_SECONDS.buckets))
    tokens_in: int = 0
    tokens_out: int = 0
    preemptions: int = 0


class Engines(msgspec.Struct):
    """Sums over the engines of one model."""

    states: dict[str, float] = msgspec.field(default_factory=lambda: dict.fromkeys(ENGINE_STATES, 0.0))
    iterations: int = 0
    prompt_tokens: int = 0
    preemptions: int = 0


class Service(msgspec.Struct):
    """One service: its processes by writer, requests by model and version, engines by model.

    Attributes:
        idle_since: when the last of its processes ended; None: one lives.
        away_since: when its last engine was killed: until another begins, the service is away. None: it is not.
    """

    name: str
    processes: dict[str, ServiceProcess] = {}
    requests: dict[str, dict[str, Requests]] = {}
    engines: dict[str, Engines] = {}
    idle_since: float | None = None
    away_since: float | None = None

    def alive(self) -> list[ServiceProcess]:
        return [process for process in self.processes.values() if not process.ended]

    def answering(self) -> list[ServiceProcess]:
        """Return the processes that answer requests; where none says that it does, those that work on them."""
        servers = [process for process in self.processes.values() if process.role == "server"]
        return servers or list(self.processes.values())
