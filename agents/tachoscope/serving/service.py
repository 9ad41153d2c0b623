"""Services: what this process says of the requests that it answers, works on, or sends."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import uuid
from pathlib import Path
from typing import Literal

from tachoscope import guard
from tachoscope.process import identity
from tachoscope.process.lifetime import on_end_and_fork
from tachoscope.process.placement import pod_uid
from tachoscope.serving.engine import Engine
from tachoscope.serving.outbox import ServiceOutbox
from tachoscope.serving.request import Request
from tachoscope.timing.procfs import start_time
from tachoscope.training.job_started import device_of
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import check_job_name
from tachoscope_core.storage import spool

Role = Literal["server", "engine", "client"]
ROLES: tuple[Role, ...] = ("server", "engine", "client")


class Service:
    """A service in this process. Records begin with its first use; a process that is forked, or spawned, writes its own."""

    def __init__(self, name: str, *, model: str = "", version: str = "", role: Role = "server") -> None:
        self.name, self.model, self.version, self.role = name, model, version, role
        self._numbers = itertools.count()
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()
        self._outbox: ServiceOutbox | None = None
        self._broken = False

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self.name, self.model, self.version, self.role)

    @property
    def in_flight(self) -> int:
        """Requests of this process that arrived and have not ended."""
        return self._outbox.in_flight if self._outbox is not None else 0

    @property
    def dropped(self) -> int:
        """Records of this process that could not be written so far."""
        return self._outbox.dropped if self._outbox is not None else 0

    def request(self, *, tokens_in: int = 0, model: str = "", version: str = "", arrived: float | None = None) -> Request:
        """Return a request that arrives now; it is recorded when it is done, so end it, or use it as a context.

        Args:
            tokens_in: of its prompt; 0: not known yet. model, version: default: the service's.
            arrived: when it did, by `time.monotonic()`, where that was before now.
        """
        outbox = self._outbox or self.open()
        number = next(self._numbers)
        if outbox is not None:
            outbox.arrived(number)
        return Request(
            outbox,
            number,
            tokens_in=tokens_in,
            model=model or self.model,
            version=version or self.version,
            arrived=arrived,
        )

    def engine(self, name: str = "0", *, capacity: int = 0, model: str = "") -> Engine:
        """Return the engine of that name in this process; its time counts from the first call on.

        Args:
            capacity: most requests that it works on at once; 0: not known. model: default: the service's.
        """
        with self._lock:
            found = self._engines.get(name)
            if found is None:
                found = Engine(name, capacity=capacity, model=model or self.model, used=self._used)
                self._engines[name] = found
        self._used()
        return found

    def open(self) -> ServiceOutbox | None:
        """Start recording, as the first use does; None, with one line on stderr, if that is not possible."""
        with self._lock:
            if self._outbox is None and not self._broken:
                try:
                    self._outbox = self._opened()
                except Exception as error:  # never into the server
                    if guard.is_of_the_job(error):
                        raise
                    self._broken = True
                    guard.print_line(f"requests of {self.name} are not recorded: {error}")
            return self._outbox

    def close(self) -> None:
        """Write what is left, and put it into the store unless an agent or `tachoscope run` will; a later use begins again.

        Called at the end of the process and, by the middleware, when the server shuts down.
        """
        with self._lock:
            outbox, self._outbox = self._outbox, None
        if outbox is None:
            return
        try:
            outbox.close()
            for engine in self._engines.values():
                engine.reset_after_fork()
            if not os.environ.get(identity.RUN_DIR):
                from tachoscope.spool.ship import ship_quietly

                ship_quietly(outbox.directory, None)
        except Exception as error:  # never into the server
            if guard.is_of_the_job(error):
                raise
            guard.print_line(f"the last records of {self.name} are lost: {type(error).__name__}: {error}")

    def reset_after_fork(self) -> None:
        """Begin again in a forked process: its records have a writer of their own."""
        self._lock = threading.Lock()
        if self._outbox is not None:
            self._outbox.abandon()
            self._outbox = None
        for engine in self._engines.values():
            engine.reset_after_fork()

    def _used(self) -> None:
        if self._outbox is None:
            self.open()

    def _opened(self) -> ServiceOutbox:
        who = identity.resolve(os.environ, job=self.name)
        run_directory = os.environ.get(identity.RUN_DIR)
        outbox = ServiceOutbox(
            who,
            Path(run_directory) if run_directory else spool.default_root() / f"serve-{uuid.uuid4()}",
            engines=lambda: list(self._engines.values()),
            side="client" if self.role == "client" else "server",
            started={
                "pid": os.getpid(),
                "role": self.role,
                "process_time": start_time(),
                "model": self.model,
                "version": self.version,
                "pod_uid": pod_uid(os.environ),
                **device_of(sys.modules.get("torch")),
            },
        )
        place = identity.place(os.environ)
        outbox.start(*place[:2] if place is not None else (0, 0))
        return outbox


class Services:
    """Those of this process, by name and role; closed at its end, and begun again where it forks."""

    def __init__(self) -> None:
        self._services: dict[tuple[str, Role], Service] = {}
        self._lock = threading.Lock()
        self._hooked = False

    def get(self, name: str, *, model: str, version: str, role: Role) -> Service:
        """Return the service of that name and role; a model or version given here replaces its own."""
        with self._lock:
            found = self._services.get((name, role))
            if found is None:
                found = self._services[name, role] = Service(name, model=model, version=version, role=role)
            found.model, found.version = model or found.model, version or found.version
            if not self._hooked:
                self._hooked = True
                on_end_and_fork(self.close, self._after_fork_in_child)
        return found

    def close(self) -> None:
        for service in list(self._services.values()):
            service.close()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        for service in self._services.values():
            service.reset_after_fork()


SERVICES = Services()


def service(name: str, *, model: str = "", version: str = "", role: Role = "server") -> Service:
    """Return the service of that name and role in this process (see `tachoscope.service`).

    Raises:
        ValueError: the name cannot be used, or there is no such role.
    """
    try:
        check_job_name(name)
    except TachoscopeError as error:
        raise ValueError(f"service {error}") from None
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}; valid roles: {', '.join(ROLES)}")
    return SERVICES.get(name, model=model, version=version, role=role)


def _unpickled(name: str, model: str, version: str, role: Role) -> Service:
    return service(name, model=model, version=version, role=role)
