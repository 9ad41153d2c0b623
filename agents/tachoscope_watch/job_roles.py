"""Who may submit, see and cancel training jobs over the watch's API: a file of roles, each with the clients that have it.

    submitter: [user:alice, token:/etc/tachoscope/ci]    # submits; sees and cancels its own jobs
    reader: [user:bob]                                   # sees all jobs
    operator: [certificate:ops.example.org]              # sees and cancels all jobs

A client is known by the web configuration. One without a role is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Value, documents
from tachoscope_service.http.web_config import WebConfig

Role = Literal["submitter", "reader", "operator"]
CERTIFICATE = "certificate:"


class RoleMissingError(TachoscopeError):
    """The client has no role that allows what it asked for."""


@dataclass(frozen=True, slots=True)
class JobRoles:
    """The clients of each role. Methods raise RoleMissingError; `owner` is the client that submitted the job."""

    clients: Mapping[Role, frozenset[str]] = field(default_factory=dict)

    def check_submit(self, client: str) -> None:
        if not self._has(client, "submitter"):
            raise _missing(client, "submit training jobs", "submitter")

    def check_cancel(self, client: str, owner: str, job: str) -> None:
        if not (self._has(client, "operator") or self._is_own(client, owner)):
            raise _missing(client, f"cancel {job[:100]!r}, which it did not submit", "operator")

    def check_read(self, client: str, owner: str, job: str) -> None:
        if not self.may_read(client, owner):
            raise _missing(client, f"see {job[:100]!r}, which it did not submit", "reader")

    def may_read(self, client: str, owner: str) -> bool:
        return self._has(client, "reader") or self._has(client, "operator") or self._is_own(client, owner)

    def _is_own(self, client: str, owner: str) -> bool:
        return owner == client and self._has(client, "submitter")

    def _has(self, client: str, role: Role) -> bool:
        return bool(client) and client in self.clients.get(role, frozenset())


def _missing(client: str, what: str, role: Role) -> RoleMissingError:
    who = client or "this client, whose certificate has no name,"
    return RoleMissingError(f"{who} may not {what}: it lacks the role {role}", fix="an entry in the file of --accept-jobs")


def read_roles(path: Path, config: WebConfig) -> JobRoles:
    """Read a file of roles.

    Raises:
        TachoscopeError: with file, line and key: it cannot be read, or names a role or client that is not known.
    """
    found = documents(path)
    if len(found) != 1:
        raise TachoscopeError(f"{path} has {len(found)} documents", fix="a file has the roles of one watch")
    section = found[0].section(get_args(Role))
    known = config.client_names
    return JobRoles(
        {role: frozenset(_client(one, known) for one in value.items()) for role, value in section.values.items()}  # type: ignore[misc]
    )


def _client(value: Value, known: frozenset[str]) -> str:
    name = value.word()
    if name not in known and not (name.startswith(CERTIFICATE) and name != CERTIFICATE):
        listed = ", ".join([*sorted(known), f"{CERTIFICATE}NAME"])
        raise value.error(f"is {name!r}, which is not a client of the web configuration", f"known are {listed}")
    return name
