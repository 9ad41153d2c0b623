"""What is known of the services that run on this node, from their records: the state behind the metrics of inference.

A service is not a training job: its processes are not ranks, and several of them form one service. What clients recorded is left to
`tachoscope analyze`: it is the same requests once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tachoscope_core.metrics.serving import (
    FIRST_TOKEN_SECONDS,
    JOINT_FIRST_TOKEN_SECONDS,
    JOINT_OUTPUT_TOKEN_SECONDS,
    OUTCOMES,
    QUEUE_SECONDS,
    REQUEST_SECONDS,
)
from tachoscope_core.owner import Owner
from tachoscope_core.records import records
from tachoscope_core.records import serving as serving_records
from tachoscope_node.common.shares import has_room
from tachoscope_node.config.settings import Limits
from tachoscope_node.services.state import Engines, EngineState, Requests, Service, ServiceProcess

OTHER = "other"
MAX_VERSIONS = 8
"""Models and versions of a service that have series of their own at a time; the others share one, as do engines' models."""
MAX_VERSIONS_OF_NODE = 64
"""The same over all services of the node."""
MAX_ENGINES = 16
"""Engines of a process whose gauges are shown."""
UNUSED_SECONDS = 900.0
"""So long after its last request a version makes room for a new one."""
MAX_LABEL = 96
MAX_WINDOW_SECONDS = 3600.0
MAX_START_SECONDS = 86400.0
"""A process that says that it took longer to begin is not believed."""

_KINDS = (records.ServiceStarted, records.RequestDone, records.EngineWindow, records.ServiceEnded)
ServiceRecord = records.ServiceStarted | records.RequestDone | records.EngineWindow | records.ServiceEnded | records.Heartbeat


def of_service(record: records.AnyRecord) -> ServiceRecord | None:
    """Return the record if a process of a service wrote it."""
    if isinstance(record, _KINDS):
        return record
    is_beat = isinstance(record, records.Heartbeat) and serving_records.in_flight(record) is not None
    return record if is_beat else None  # type: ignore[return-value]


class ServiceRegistry:
    """The services of the node. `rejected` counts what is left out, by reason."""

    def __init__(
        self,
        rejected: Counter[str],
        services: dict[str, Service] | None = None,
        *,
        owner: Callable[[str], Owner | None] = lambda _: None,
    ) -> None:
        self._rejected = rejected
        self._owner = owner
        self.services: dict[str, Service] = services if services is not None else {}

    def add_record(self, directory: str, record: ServiceRecord, at: float, now: float, limits: Limits) -> None:
        """Take a record.

        Args:
            at: seconds of the host's monotonic clock at which it was written. now: it is this late there.
        """
        if isinstance(record, records.ServiceStarted) and record.role == "client":
            return
        if isinstance(record, records.RequestDone) and record.side == "client":
            return
        if isinstance(record, records.RequestDone | records.EngineWindow) and not serving_records.plausible(record):
            self._rejected["implausible"] += 1
            return
        service = self.services.get(record.job)
        process = service.processes.get(record.writer) if service is not None else None
        if process is None and isinstance(record, records.Heartbeat | records.ServiceEnded):
            return  # of a client, or of a process beyond the limits
        service = service or self._service(record.job, limits, now)
        process = process or (self._process(service, directory, record, at, limits) if service is not None else None)
        if service is None or process is None:
            return
        process.last_record, process.ended, service.idle_since = max(process.last_record, at), "", None
        match record:
            case records.ServiceStarted():
                self._start(service, process, record, at, now)
            case records.RequestDone():
                self._request(service, process, record, now)
            case records.EngineWindow():
                self._window(service, process, record, at)
            case records.Heartbeat():
                process.in_flight, process.beat_unix = serving_records.in_flight(record) or 0, record.time
            case records.ServiceEnded():
                process.in_flight = max(0, min(record.in_flight, serving_records.MOST_COUNT))
                self._end(service, process, "left", now)

    def _service(self, name: str, limits: Limits, now: float) -> Service | None:
        if not has_room(Counter(map(self._owner, self.services)), self._owner(name), limits.jobs):
            self._rejected["over_limit"] += 1
            return None
        self.services[name] = Service(name, idle_since=now)
        return self.services[name]

    def _process(self, service: Service, directory: str, record: ServiceRecord, at: float, limits: Limits) -> ServiceProcess | None:
        held: Counter[Owner | None] = Counter()
        for other in self.services.values():
            held[self._owner(other.name)] += len(other.processes)
        owner = self._owner(service.name)
        if not has_room(held, owner, limits.ranks) and not self._drop_ended(owner):
            self._rejected["over_limit"] += 1
            return None
        made = ServiceProcess(directory, began=at, first_record=at, began_unix=record.time)
        service.processes[record.writer] = made
        return made

    def _drop_ended(self, owner: Owner | None) -> bool:
        """Make room for a process of a user's; say whether there is any: workers come and go for as long as the service lives."""
        ended = [
            (process.last_record, service, writer)
            for service in self.services.values()
            for writer, process in service.processes.items()
            if process.ended and self._owner(service.name) == owner
        ]
        if not ended:
            return False
        _, service, writer = min(ended, key=lambda row: row[0])
        del service.processes[writer]
        return True

    def _start(self, service: Service, process: ServiceProcess, record: records.ServiceStarted, at: float, now: float) -> None:
        process.role, process.model, process.version = record.role, _label(record.model), _label(record.version)
        took = record.time - record.process_time
        if 0.0 <= took <= MAX_START_SECONDS:
            process.began_unix, process.began = record.process_time, max(at - took, 0.0)
        if record.role == "server":
            self._requests_of(service, process.model, process.version, now)

    def _requests_of(self, service: Service, model: str, version: str, now: float) -> Requests:
        known = service.requests.get(model, {}).get(version)
        if known is None:
            rows = [(sums.used, of, at) for of, versions in service.requests.items() for at, sums in versions.items()]
            there = sum(len(versions) for other in self.services.values() for versions in other.requests.values())
            is_full = len(rows) >= MAX_VERSIONS or there >= MAX_VERSIONS_OF_NODE
            if is_full and rows and now - min(rows)[0] > UNUSED_SECONDS:
                _, old_model, old_version = min(rows)
                del service.requests[old_model][old_version]
            elif is_full:
                model, version = OTHER, OTHER
            known = service.requests.setdefault(model, {}).setdefault(version, Requests())
        known.used = max(known.used, now)
        return known

    def _request(self, service: Service, process: ServiceProcess, record: records.RequestDone, now: float) -> None:
        model, version = _label(record.model) or process.model, _label(record.version) or process.version
        sums = self._requests_of(service, model, version, now)
        if process.in_flight and serving_records.was_in_flight(record, process.beat_unix):
            process.in_flight -= 1
        if record.outcome not in OUTCOMES:
            self._rejected["implausible"] += 1
            return
        sums.outcomes[record.outcome] += 1
        if record.first_token_seconds is not None:
            sums.first_token.observe(record.first_token_seconds, FIRST_TOKEN_SECONDS.buckets)
        _count_joint(sums, record)
        if record.outcome == "ok":
            sums.seconds.observe(record.wall_seconds, REQUEST_SECONDS.buckets)
        if any(record.phase_seconds.values()):
            sums.queue.observe(record.phase_seconds.get("queued", 0.0), QUEUE_SECONDS.buckets)
        for index, count in enumerate(record.inter_token_buckets):
            sums.inter_token.counts[index] += count
        sums.inter_token.counts[-1] += record.inter_token_count - sum(record.inter_token_buckets)
        sums.inter_token.sum += record.inter_token_seconds
        for state, seconds in serving_records.request_states(record).items():
            sums.states[state] += seconds
        sums.tokens_in += record.tokens_in
        sums.tokens_out += record.tokens_out
        sums.preemptions += record.preemptions

    def _window(self, service: Service, process: ServiceProcess, record: records.EngineWindow, at: float) -> None:
        if not 0.0 < record.window_seconds <= MAX_WINDOW_SECONDS:
            self._rejected["implausible"] += 1
            return
        model = _label(record.model) or process.model
        if model not in service.engines and len(service.engines) >= MAX_VERSIONS:
            model = OTHER
        sums = service.engines.setdefault(model, Engines())
        if not process.begun:
            process.begun = True
            sums.states["cold_start"] += self._before(service, process)
        for state, seconds in serving_records.engine_states(record).items():
            sums.states[state] += seconds
        sums.iterations += record.iterations
        sums.prompt_tokens += record.prompt_tokens
        sums.preemptions += record.preemptions
        if record.engine[:MAX_LABEL] in process.engines or len(process.engines) < MAX_ENGINES:
            look = EngineState(model, at, record.running_mean, record.waiting_mean, record.kv_cache_usage_ratio)
            process.engines[record.engine[:MAX_LABEL]] = look

    def _before(self, service: Service, process: ServiceProcess) -> float:
        """Return how long a process with an engine took to begin, with the absence of the service if it was killed before."""
        since = process.began if service.away_since is None else min(service.away_since, process.began)
        service.away_since = None
        return max(process.first_record - since, 0.0)

    def writer_gone(self, name: str, writer: str, now: float) -> None:
        """Note that a process is gone: one that did not say that it ends was killed."""
        service = self.services.get(name)
        process = service.processes.get(writer) if service is not None else None
        if service is not None and process is not None and not process.ended:
            self._end(service, process, "killed", now)

    def _end(self, service: Service, process: ServiceProcess, how: str, now: float) -> None:
        if how == "killed":
            for look in process.engines.values():  # it worked on until then, and did not come to write it
                service.engines[look.model].states["unexplained"] += max(process.last_record - look.until, 0.0)
        process.ended, process.engines = how, {}
        if process.in_flight:
            sums = self._requests_of(service, process.model, process.version, now)
            sums.outcomes["cut"] += process.in_flight
            sums.joint["no"] += process.in_flight if _answers_in_tokens(sums) else 0
            process.in_flight = 0
        if process.begun and not any(other.begun for other in service.alive()):
            service.away_since = process.last_record if how == "killed" else None
        if not service.alive():
            service.idle_since = now

    def only(self, writers: set[str], now: float) -> None:
        """End the processes that write no longer: what became of those whose files went while the agent was away, is not known."""
        for service in self.services.values():
            for writer, process in service.processes.items():
                if not process.ended and writer not in writers:
                    process.in_flight = 0
                    self._end(service, process, "left", now)

    def drop_ended(self, now: float, retention_seconds: float) -> None:
        for name, service in list(self.services.items()):
            if service.idle_since is not None and now - service.idle_since > retention_seconds:
                del self.services[name]


def _count_joint(sums: Requests, record: records.RequestDone) -> None:
    """Count whether a request met all objectives; what of a model that never gave a token failed, says nothing of tokens."""
    if record.outcome == "client_error" or not _answers_in_tokens(sums):
        return
    if record.outcome == "ok" and record.first_token_seconds is None:
        return  # it was not seen when they came
    mean = record.inter_token_seconds / max(record.inter_token_count, 1)
    soon = (record.first_token_seconds or 0.0) <= JOINT_FIRST_TOKEN_SECONDS
    is_met = record.outcome == "ok" and soon and mean <= JOINT_OUTPUT_TOKEN_SECONDS
    sums.joint["yes" if is_met else "no"] += 1


def _answers_in_tokens(sums: Requests) -> bool:
    return any(sums.first_token.counts)


def _label(text: str) -> str:
    return text[:MAX_LABEL]
