"""Makes records of services for tests: requests and engines whose truth is known because it is planted."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from tachoscope_core.metrics.serving import INTER_TOKEN_BUCKETS
from tachoscope_core.records import records

BEGIN = 1.7e9


class Server:
    """One process of a service, as its records show it. Times are seconds after `BEGIN`; the host's clock shows the same."""

    def __init__(
        self, number: int = 0, *, service: str = "chat", role: str = "server", model: str = "tiny", version: str = "1"
    ) -> None:
        self.service, self.role, self.model, self.version = service, role, model, version
        self.writer = f"{number:08d}-0000-4000-8000-000000000000"
        self.rows: list[records.Record] = []

    def write(self, kind: type[records.Record], at: float, **fields: Any) -> None:
        envelope = {
            "job": self.service,
            "attempt": 0,
            "writer": self.writer,
            "seq": len(self.rows),
            "rank": 0,
            "local_rank": 0,
            "host": "node-1",
            "time": BEGIN + at,
            "monotonic_ns": round(at * 1e9),
        }
        self.rows.append(kind(**envelope, **fields))

    def start(self, at: float = 0.0, *, began: float | None = None) -> None:
        """Say that it serves; `began`: when the operating system started it."""
        process_time = BEGIN + (at if began is None else began)
        self.write(
            records.ServiceStarted, at, pid=1, role=self.role, process_time=process_time, model=self.model, version=self.version
        )

    def request(
        self,
        arrival: float,
        *,
        queued: float = 0.0,
        prefill: float = 0.1,
        gaps: tuple[float, ...] = (),
        rest: float = 0.0,
        **fields: Any,
    ) -> None:
        """Tell of a request that ends its phases in this order; `rest` seconds after them are nowhere explained."""
        wall = queued + prefill + sum(gaps) + rest
        counts = [0] * (len(INTER_TOKEN_BUCKETS) + 1)
        for gap in gaps:
            counts[bisect_left(INTER_TOKEN_BUCKETS, gap)] += 1
        told: dict[str, Any] = {
            "request": str(len(self.rows)),
            "wall_seconds": wall,
            "phase_seconds": {"queued": queued, "prefill": prefill, "decode": sum(gaps)},
            "outcome": "ok",
            "status": 200,
            "tokens_in": 10,
            "tokens_out": len(gaps) + 1,
            "model": self.model,
            "version": self.version,
            "first_token_seconds": queued + prefill,
            "inter_token_seconds": sum(gaps),
            "inter_token_count": len(gaps),
            "inter_token_max_seconds": max(gaps, default=0.0),
            "inter_token_buckets": counts,
            "side": "client" if self.role == "client" else "server",
        }
        self.write(records.RequestDone, arrival + wall, **told | fields)

    def refuse(self, at: float, outcome: str = "shed", status: int = 503) -> None:
        """Tell of a request that was refused at once."""
        told = {"request": str(len(self.rows)), "wall_seconds": 0.001, "phase_seconds": {}, "outcome": outcome, "status": status}
        self.write(records.RequestDone, at, **told)

    def engine(self, end: float, seconds: float = 1.0, **fields: Any) -> None:
        """Tell of an engine's window; what its states lack is idle, unless that is given."""
        states = dict(fields.pop("state_seconds", {}))
        states.setdefault("idle", seconds - sum(states.values()))
        self.write(records.EngineWindow, end, window_seconds=seconds, state_seconds=states, model=self.model, **fields)

    def beat(self, at: float, in_flight: int) -> None:
        """Say how many requests are in flight."""
        self.write(records.Heartbeat, at, step=0, signals={"requests_in_flight": float(in_flight)})

    def end(self, at: float, in_flight: int = 0) -> None:
        """Say that it ends."""
        self.write(records.ServiceEnded, at, in_flight=in_flight)

    def lines(self) -> bytes:
        """Return its records as they lie in a spool."""
        return b"".join(map(records.encode, self.rows))
