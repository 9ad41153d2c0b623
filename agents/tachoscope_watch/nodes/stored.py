"""What the store keeps of the nodes' life cycle, so that any watch goes on with it.

`node-lifecycle/state.json` is written by the one watch that has the life cycle; `requests/` by people (`tachoscope nodes`), removed
once they are taken; `tests/<node>.json` by the node that was tested; `audit/<day>/` holds what was decided and done, and is never
changed.
"""

from __future__ import annotations

import itertools
import secrets
from datetime import UTC, datetime

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.documents import read_document
from tachoscope_core.storage.store import Store, host_folder
from tachoscope_watch.nodes.states import Actions, Fleet, Judged, Request

_MOST_STATE_BYTES = 64 << 20
_MOST_REQUESTS = 1000
_MOST_AUDITS = 1000


class AuditLine(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A decision or an action.

    Attributes:
        time: Unix seconds. node: empty: of the breaker. what: `state`, `drain`, `test` or `resume`. why: the reason.
        before, after: of a change of state. outcome: of an action: `begun`, `done`, `failed` or `dry run`. error: why it failed.
        undo: the command that undoes it. actions: whether they were on. watch: that wrote it.
    """

    time: float
    node: str
    what: str
    why: str
    before: str = ""
    after: str = ""
    outcome: str = ""
    error: str = ""
    undo: str = ""
    actions: Actions
    watch: str = ""


class Lifecycle:
    """The documents of a store. Methods raise TachoscopeError where it cannot be read or written, or a document is not trusted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._numbers = itertools.count()  # lines of one millisecond stay in their order

    @property
    def _root(self) -> str:
        return f"{self._store.root}/node-lifecycle"

    def fleet(self) -> Fleet | None:
        """Return the states of all nodes; None: no watch has kept any yet."""
        return read_document(self._store, f"{self._root}/state.json", Fleet, most_bytes=_MOST_STATE_BYTES)

    def write_fleet(self, fleet: Fleet) -> None:
        self._store.write_node_lifecycle("state.json", msgspec.json.encode(fleet))

    def ask(self, request: Request) -> None:
        """Keep what a person wants, for the watch."""
        name = f"{round(request.time * 1000):015d}-{secrets.token_hex(4)}"
        self._store.write_node_lifecycle(f"requests/{name}.json", msgspec.json.encode(request))

    def requests(self, faults: list[str]) -> dict[str, Request]:
        """Return requests by path, the oldest first. What is not one is a line in `faults`."""
        found: dict[str, Request] = {}
        for path in list(self._store.find("node-lifecycle/requests"))[:_MOST_REQUESTS]:
            try:
                request = read_document(self._store, path, Request)  # type: ignore[arg-type]
                if request is not None:
                    found[path] = request
            except TachoscopeError as error:
                faults.append(str(error))
        return found

    def remove(self, paths: list[str]) -> None:
        self._store.remove(paths)

    def write_test(self, tested: Judged) -> None:
        """Keep the result of a node's test in place of that of the one before."""
        self._store.write_node_lifecycle(f"tests/{host_folder(tested.node)}.json", msgspec.json.encode(tested))

    def test(self, node: str) -> Judged | None:
        """Return the newest result of a node."""
        found = read_document(self._store, f"{self._root}/tests/{host_folder(node)}.json", Judged)
        return found if found is not None and found.node == node else None

    def audit(self, lines: list[AuditLine]) -> None:
        """Append lines to the audit log."""
        if lines:
            day = datetime.fromtimestamp(lines[0].time, UTC).date().isoformat()
            name = f"{round(lines[0].time * 1000):015d}-{next(self._numbers):06d}-{secrets.token_hex(4)}"
            self._store.write_node_lifecycle(f"audit/{day}/{name}.json", msgspec.json.encode(lines))

    def audit_lines(self, *, node: str = "", most: int = 20) -> list[AuditLine]:
        """Return the newest lines, of one node or of all, in order of time; at most those of the newest 1,000 objects."""
        found: list[AuditLine] = []
        for path in list(self._store.find("node-lifecycle/audit"))[: -_MOST_AUDITS - 1 : -1]:
            lines = read_document(self._store, path, list[AuditLine]) or []
            found = [line for line in lines if not node or line.node == node] + found
            if len(found) >= most:
                break
        return found[-most:]
