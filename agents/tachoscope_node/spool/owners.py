"""Whom each job belongs to: the user, and namespace, whose process first wrote of it on this node. Records of others are not taken.

The store keeps the same (`Store.claim`), for longer than a node remembers and over all nodes. Who writes a segment is what the
kernel says of the file's owner, and the kubelet by the name of the directory that it mounts into a pod; what the records say of
themselves counts for nothing here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from tachoscope_core.owner import Owner

PodName = tuple[str, str]
"""Namespace and name of a pod, each empty where it is not known."""
_POD_DIRECTORY = re.compile(
    r"(?:(?P<namespace>[a-z0-9-]{1,63})_(?:(?P<pod>[a-z0-9.-]{1,253})_)?)?"
    r"(?P<uid>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)

AGENT_DIRECTORY = "agent-"
"""Prefix of the directories that agents write to. Launchers never write there."""
MAX_JOBS_OF_USER = 1000
"""Names that one owner may have at a time; a further one is refused, so that nobody makes the node forget another's."""


def pod_of_directory(directory: str) -> tuple[str, PodName]:
    """Return UID and name of the pod that a directory of the spool is mounted into; empty where its name does not tell.

    It is `<uid>`, `<namespace>_<uid>`, or as in /var/log/pods `<namespace>_<pod>_<uid>`.
    """
    found = _POD_DIRECTORY.fullmatch(directory)
    return (found["uid"], (found["namespace"] or "", found["pod"] or "")) if found else ("", ("", ""))


def writer_of(uid: int, directory: str, directory_uid: int) -> Owner:
    """Return who writes a file of a directory of the spool; a directory that a user made may have any name, and tells nothing."""
    made_by_system = directory_uid in {0, os.geteuid()}
    return Owner(uid, pod_of_directory(directory)[1][0] if made_by_system else "")


class Owners:
    """The owners by job.

    Args:
        known: owners by job, from before a restart; kept up to date.
    """

    def __init__(self, known: dict[str, Owner]) -> None:
        self.known = known

    def may_write(self, job: str, writer: Owner, directory: str) -> bool:
        """Return whether an owner's records of a job are accepted. The first writer owns the job; agents may write of every job."""
        if writer.uid == os.geteuid() and directory.startswith(AGENT_DIRECTORY):
            return True
        owner = self.known.get(job)
        if owner is None and sum(one == writer for one in self.known.values()) < MAX_JOBS_OF_USER:
            owner = self.known[job] = writer
        return owner == writer

    def keep_only(self, kept: Collection[str]) -> None:
        """Forget the owners of all other jobs."""
        for job in self.known.keys() - set(kept):
            del self.known[job]
