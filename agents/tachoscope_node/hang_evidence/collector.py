"""Collects the evidence of a hang on a node, once for each hang, in a thread of its own and for a bounded time.

Used by who notices hangs: the node's agent, and `tachoscope run` where there is no agent. No method raises into them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.jobs.hang_rule import RankState, stuck_rank
from tachoscope_core.owner import Owner
from tachoscope_core.storage import hang_bundles
from tachoscope_core.storage.hang_bundles import STOPPED, HangBundle, ProcessEvidence
from tachoscope_core.storage.store import Store
from tachoscope_node.hang_evidence.bounded import within
from tachoscope_node.hang_evidence.flight_dumps import DumpRoom, take_dump
from tachoscope_node.hang_evidence.processes import evidence_of
from tachoscope_node.hang_evidence.rank_processes import HungRank, ProcessTable

COLLECT_SECONDS = 25.0
"""For all parts together; the bar is 60 s from the last step to the bundle."""
MOST_RANKS = 64
MOST_EVIDENCE_BYTES = 64 << 20
"""Of all processes, in memory; of what is stored see `hang_bundles`."""
NETWORK_SECONDS = 2.0
"""Between two readings of the network: collectives that go on move far more in that time than heartbeats."""
SWITCH_VARIABLE = "TACHOSCOPE_HANG_EVIDENCE"
"""`0`: nothing is collected."""

__all__ = ["EvidenceCollector", "HungJob", "HungRank"]


@dataclass(frozen=True, slots=True)
class HungJob:
    """A job that hangs on this node. `since`: Unix seconds of its last step here. `failed_rank`: -1: not known.

    Attributes:
        owner: whose the job is; nothing is written to a job of the name that is another's.
    """

    job: str
    attempt: int
    since: float
    step: int
    failed_rank: int
    why: str
    ranks: Sequence[HungRank]
    owner: Owner


class EvidenceCollector:
    """Collects in the background and writes one bundle a hang.

    Args:
        ras: host and port of NCCL's RAS; None: it is not asked. log: gets a sentence for each bundle, or why there is none.
    """

    def __init__(
        self,
        store: Store,
        node: str,
        *,
        proc: str = "/proc",
        sys: str = "/sys",
        ras: tuple[str, int] | None = None,
        log: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._node = node
        self._proc = proc
        self._sys = sys
        self._ras = ras
        self._log = log
        self._clock = clock
        self._busy: dict[str, threading.Thread] = {}

    def begin(self, hung: HungJob) -> None:
        """Begin to collect; a job that is being looked at already is not looked at twice."""
        if os.environ.get(SWITCH_VARIABLE) == "0":
            return
        running = self._busy.get(hung.job)
        if running is not None and running.is_alive():
            return
        self._busy = {job: thread for job, thread in self._busy.items() if thread.is_alive()}
        thread = threading.Thread(target=self._run, args=(hung, self._clock()), name="tachoscope-hang", daemon=True)
        self._busy[hung.job] = thread
        try:
            thread.start()
        except RuntimeError as error:
            self._log(f"job {hung.job}: no evidence of its hang was collected: {error}")

    def wait(self, seconds: float) -> None:
        """Wait until what is being collected is written, so many seconds at most."""
        deadline = time.monotonic() + seconds
        for thread in self._busy.values():
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _run(self, hung: HungJob, noticed: float) -> None:
        try:
            self._store.claim(hung.job, hung.owner)
            bundle, dumps = self._collect(hung, noticed)
            bundle = self._with_dumps(bundle, dumps)
            hang_bundles.write(self._store, msgspec.structs.replace(bundle, complete=self._clock()))
            self._log(f"job {hung.job}: the evidence of its hang is stored: tachoscope hang {hung.job} --store {self._store.url}")
        except Exception as error:  # of a store, or a fault: the job and who watches it go on
            self._log(f"job {hung.job}: the evidence of its hang could not be stored: {error}")

    def _collect(self, hung: HungJob, noticed: float) -> tuple[HangBundle, dict[int, bytes]]:
        """Return what was found, and dumps of the flight recorder by rank."""
        parts = _RankParts(hung.ranks[:MOST_RANKS], self._proc)
        node_tasks, missing = self._node_tasks()
        found, late = within(COLLECT_SECONDS, parts.tasks() | node_tasks)
        missing |= late
        if len(hung.ranks) > MOST_RANKS:
            missing["ranks"] = f"{len(hung.ranks) - MOST_RANKS} more were not looked at"
        processes = parts.processes()
        failed_rank, why = _named(hung, processes)
        bundle = HangBundle(
            job=hung.job,
            attempt=hung.attempt,
            node=self._node,
            since=hung.since,
            noticed=noticed,
            step=hung.step,
            failed_rank=failed_rank,
            why=why,
            processes=processes,
            network=found.get("network", {}),
            network_seconds=NETWORK_SECONDS if "network" in found else 0.0,
            kernel_log=found.get("kernel log", []),
            ras=found.get("NCCL RAS", ""),
            missing=_in_short(missing),
        )
        return bundle, dict(parts.dumps)

    def _node_tasks(self) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
        """Return what is asked of the node itself, and what is not, with the reason."""
        try:
            from tachoscope_node.hang_evidence import node_facts  # with packages that an agent needs, and `tachoscope run` does not
        except ImportError as error:
            return {}, dict.fromkeys(("network", "kernel log", "NCCL RAS"), f"{error}: pip install 'tachoscope[agent]'")
        tasks: dict[str, Callable[[], Any]] = {
            "network": lambda: node_facts.network_moved(self._proc, self._sys, NETWORK_SECONDS),
            "kernel log": node_facts.kernel_lines,
        }
        if self._ras is None:
            return tasks, {"NCCL RAS": "not asked: only an agent does, with nccl.ras in its configuration"}
        address = self._ras
        tasks["NCCL RAS"] = lambda: node_facts.ras_answer(address)
        return tasks, {}

    def _with_dumps(self, bundle: HangBundle, dumps: dict[int, bytes]) -> HangBundle:
        names: dict[str, str] = {}
        missing = dict(bundle.missing)
        for rank, data in dumps.items():
            try:
                names[str(rank)] = hang_bundles.write_dump(self._store, bundle, rank, data)
            except TachoscopeError as error:
                missing[f"flight recorder of rank {rank}"] = str(error)
        return msgspec.structs.replace(bundle, dumps=names, missing=missing)


class _RankParts:
    """What is looked at of each rank: what was found of a process stays, also where the next one does not answer.

    Attributes:
        dumps: of the flight recorder, by rank.
    """

    def __init__(self, ranks: Sequence[HungRank], proc: str) -> None:
        self._ranks = {name: rank for rank, name in zip(ranks, _names_of(ranks), strict=True)}
        self._table = ProcessTable(proc)
        self._seen: dict[str, list[ProcessEvidence]] = {name: [] for name in self._ranks}
        self._dump_room = DumpRoom()
        self._room, self._lock = MOST_EVIDENCE_BYTES, threading.Lock()
        self.dumps: dict[int, bytes] = {}

    def tasks(self) -> dict[str, Callable[[], Any]]:
        looks: dict[str, Callable[[], Any]] = {name: partial(self._look, name, rank) for name, rank in self._ranks.items()}
        return looks | {f"flight recorder of {name}": partial(self._take_dump, rank) for name, rank in self._ranks.items()}

    def processes(self) -> list[ProcessEvidence]:
        return [process for found in self._seen.values() for process in list(found)]

    def _look(self, name: str, rank: HungRank) -> bool:
        for process in evidence_of(rank, self._table):
            self._seen[name].append(self._with_room(process))
        return True

    def _with_room(self, process: ProcessEvidence) -> ProcessEvidence:
        """Return a process without its stacks where those of others fill the memory: their size is a foreign process's choice."""
        size = len(msgspec.json.encode(process))
        with self._lock:
            self._room -= size
            if self._room >= 0:
                return process
            self._room += size
        missing = process.missing | {"threads": f"left out: all evidence takes {MOST_EVIDENCE_BYTES >> 20} MiB at most"}
        return msgspec.structs.replace(process, threads=[], py_spy="", missing=missing)

    def _take_dump(self, rank: HungRank) -> bool:
        seen = self._table.of_rank(rank)
        if seen is None:
            raise TachoscopeError("the rank's process cannot be seen")
        self.dumps[rank.rank] = take_dump(seen, rank.rank, rank.uid, self._table, self._dump_room)
        return True


def _names_of(ranks: Sequence[HungRank]) -> list[str]:
    """Return a name for each; processes that claim the same rank get their writers' ids."""
    counts = Counter(rank.rank for rank in ranks)
    return [f"rank {rank.rank}" if counts[rank.rank] == 1 else f"rank {rank.rank} ({rank.writer[:8]})" for rank in ranks]


def _named(hung: HungJob, processes: Sequence[ProcessEvidence]) -> tuple[int, str]:
    """Return the rank that hangs and why: by the kernel's word if one is stopped, else as it was noticed."""
    states = [
        RankState(
            process.rank, "", process.step, process.phase, stopped=bool(process.threads) and process.threads[0].state in STOPPED
        )
        for process in processes
        if process.kind == "rank"
    ]
    if any(state.stopped for state in states):
        stuck, why = stuck_rank(states)
        if stuck is not None:
            return stuck[0], why
    return hung.failed_rank, hung.why


def _in_short(missing: dict[str, str]) -> dict[str, str]:
    """Return what is missing, with ranks that lack the same for one reason as one."""
    dumps = {what: why for what, why in missing.items() if what.startswith("flight recorder")}
    if len(dumps) > 1 and len(set(dumps.values())) == 1:
        missing = {what: why for what, why in missing.items() if what not in dumps} | {
            "flight recorder": next(iter(dumps.values()))
        }
    return missing
