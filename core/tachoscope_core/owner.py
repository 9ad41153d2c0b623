"""Who a job belongs to: the Unix user, and in Kubernetes the namespace, of the process that first wrote of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

_NAMESPACE = "POD_NAMESPACE"
"""Environment variable of the Downward API's metadata.namespace, by its usual name."""
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of a job.

    A namespace and not a pod: a job has many pods, and new ones after a restart. The user alone says little there, since most
    containers run as root.
    """

    uid: int
    namespace: str = ""

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"user {self.uid} of namespace {self.namespace}" if self.namespace else f"user {self.uid}"


def of_this_process(environ: Mapping[str, str] = os.environ) -> Owner:
    """Return the owner of what this process writes to a store itself."""
    namespace = environ.get(_NAMESPACE, "")
    if not namespace:
        try:
            namespace = _SERVICE_ACCOUNT.read_text().strip()
        except (OSError, ValueError):
            namespace = ""
    return Owner(os.geteuid(), namespace)
