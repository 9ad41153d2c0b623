"""Reads one checkpoint back, as a process of its own: an order comes on stdin, the verdict goes to stdout, both JSON.

A process, not a thread: it takes the user's rights for good, so that the kernel decides what that user may read, links and access
lists included; it runs only when nobody else wants the core, and a thread that did so would now and then hold the interpreter's
lock while it waits, and stop the agent; and it can be killed. No content of a file leaves it.
"""

from __future__ import annotations

import errno
import os
import pwd
import sys
import time
from collections.abc import Callable
from io import FileIO

import msgspec

from tachoscope_core.checkpoints.verification import Manifest, ReadBack, open_regular, verify

_NOBODY = 65534
_LOOK_BYTES = 64 << 20


class ReadRequest(msgspec.Struct, frozen=True):
    """What to read.

    Attributes:
        reference, place, manifests, expected_ranks, whole: see `tachoscope_core.checkpoints.verification.verify`.
        uid: of the user who may read it. roots: folders that it has to lie in; empty: any.
        bytes_per_second: most that is read; 0: no limit.
    """

    reference: str
    place: str
    manifests: dict[int, Manifest]
    expected_ranks: list[int]
    whole: bool
    uid: int
    roots: list[str] = []
    bytes_per_second: int = 0


def main() -> None:
    """Carry out the `ReadRequest` on stdin as its user, and write a `ReadBack` to stdout."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=ReadRequest)
    try:
        drop_privileges_to(order.uid)
    except OSError:
        verdict = ReadBack("unreachable", f"the agent may not read as user {order.uid}: it needs CAP_SETUID and CAP_SETGID")
    else:
        verdict = carry_out(order)
    sys.stdout.buffer.write(msgspec.json.encode(verdict))


def drop_privileges_to(uid: int) -> None:
    """Give up all rights but those of a user, for good; one that this host does not know has no groups.

    Raises:
        OSError: this process may not.
    """
    if os.geteuid() == uid:
        return
    try:
        user = pwd.getpwuid(uid)
        group, groups = user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid)
    except KeyError:
        group, groups = _NOBODY, []
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(uid, uid, uid)


def carry_out(order: ReadRequest) -> ReadBack:
    """Read the checkpoint back with the rights that this process has."""
    found = verify(
        order.reference,
        order.manifests,
        place=order.place,
        expected_ranks=order.expected_ranks,
        whole=order.whole,
        open_file=_opener(order.roots),
        on_bytes=_pace(order.bytes_per_second),
    )
    assert found is not None  # nobody stops it
    return found


def _opener(roots: list[str]) -> Callable[[str], FileIO]:
    """Return a function that opens files below the roots only; links are resolved by opening."""
    real_roots = [os.path.realpath(root) for root in roots]

    def open_below(path: str) -> FileIO:
        file = open_regular(path)
        place = os.readlink(f"/proc/self/fd/{file.fileno()}")
        if real_roots and not any(os.path.commonpath((root, place)) == root for root in real_roots):
            file.close()
            raise OSError(errno.EACCES, "it is outside of checkpoints.roots", path)
        return file

    return open_below


def _pace(bytes_per_second: int) -> Callable[[int], None]:
    """Return a function that limits the rate, and exits this process when the agent is gone."""
    parent, began = os.getppid(), time.monotonic()
    read = looked = 0

    def wait(size: int) -> None:
        nonlocal read, looked
        read += size
        if read - looked >= _LOOK_BYTES or bytes_per_second:
            looked = read
            if os.getppid() != parent:
                os._exit(1)  # at once: the thread that reads ahead may wait for a storage that does not answer
        if bytes_per_second:
            time.sleep(max(began + read / bytes_per_second - time.monotonic(), 0.0))

    return wait
