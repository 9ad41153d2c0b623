"""What this process saved and read of checkpoints: from the calls that the patches and adapters see to records and manifests."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from tachoscope.checkpoints import checkpoint_name as references
from tachoscope.checkpoints.manifest import Manifests, SavedCheckpoint
from tachoscope.checkpoints.save_nesting import Calls, CheckpointCall, distributed_files, written
from tachoscope.preemption.poll import NoticePoll
from tachoscope.profiling.annotations import CHECKPOINT, Annotations
from tachoscope.spool.outbox import Outbox
from tachoscope.timing import phases
from tachoscope_core.records import records
from tachoscope_core.records.records import ShardSum

LAST_MANIFEST_SECONDS = 3.0
LAST_MANIFEST_VARIABLE = "TACHOSCOPE_MANIFEST_WAIT_SECONDS"
LAST_MANIFEST_SECONDS_AFTER_FAILURE = 0.3
"""How long the end of the process waits for a manifest under way, unless the variable says another number. One that failed must be
seen gone by its peers soon."""


class ProbeState(Protocol):
    """The part of the probe that a tracker of saves reads."""

    on: bool
    thread_ident: int
    outbox: Outbox
    timeline: phases.Timeline

    @property
    def steps(self) -> int: ...
    @property
    def steps_in_parameters(self) -> int: ...
    def bind(self) -> None: ...


class Checkpoints:
    """The checkpoints of one process. Its training thread calls it, but for what is said of other threads."""

    def __init__(self, probe: ProbeState, notices: NoticePoll) -> None:
        self._probe = probe
        self._notices = notices
        self._annotations = Annotations()
        self.saves = Calls()
        self.loads = Calls()
        self._manifests = Manifests(self._manifest)
        self._held: deque[Callable[[tuple[str, str] | None], bool]] = deque()
        self._saved: set[str] = set()
        self._lock = threading.RLock()  # a signal handler of the job may save in the middle of `_release`

    # --- saving ------------------------------------------------------------------------------------------------------------

    def save_begin(self) -> CheckpointCall:
        """A save begins; a framework's checkpoint holds several such calls."""
        self._probe.timeline.enter(phases.CHECKPOINT)  # first, and left last: all that blocks is in the phase
        self._annotations.begin(CHECKPOINT)
        call = self.saves.begin()
        call.after_notice = call.after_notice or self._notices.poll()
        return call

    def save_end(self, *, raised: bool) -> None:
        """The save ended or raised: write the record if it was the outermost call and wrote a checkpoint."""
        call = self.saves.end()
        self._annotations.end()
        self._probe.timeline.leave()
        # Ranks that write nothing only wait for the one that does; their phases say so.
        wrote = call is not None and (call.took_part or self._probe.outbox.rank == 0)
        step = self._probe.steps_in_parameters
        if call is None or raised or not wrote or not step:
            return
        if call.completion is None:
            self._complete(call, step)
            return
        returned = time.monotonic()

        def done(future: Future[Any]) -> None:
            if self._probe.on and not future.cancelled() and future.exception() is None:
                self._complete(call, step, background_seconds=time.monotonic() - returned)

        call.completion.add_done_callback(done)

    def completes_with(self, future: Future[Any]) -> None:
        """Complete the checkpoint being saved only when this future is done."""
        self.saves.current.completion = future
        self.saves.current.took_part += 1

    def saved_in_background(self, target: Any, began: float) -> None:
        """Another thread saved to a path while training continued."""
        call = CheckpointCall(took_part=1, began=began, after_notice=self._notices.poll())
        call.reference = references.reference_of(target)
        file = written(target)
        call.files = [file] if file else []
        call.bytes = os.stat(call.reference).st_size if file else 0
        self._complete(call, self._probe.steps, background_seconds=time.monotonic() - began, asynchronous=True)

    def said_saved(self, *, reference: str | os.PathLike[str], seconds: float, size_bytes: int) -> None:
        """The job reports a save in its own format."""
        call = CheckpointCall(reference=references.reference_of(reference), bytes=size_bytes, after_notice=self._notices.poll())
        call.blocking_seconds = seconds
        file = written(reference)
        if file is not None and os.path.isfile(file.path):
            call.files = [file]
            call.bytes = size_bytes or os.path.getsize(file.path)
        self._write_saved(call, self._probe.steps_in_parameters, 0.0, asynchronous=False)

    def _complete(self, call: CheckpointCall, step: int, *, background_seconds: float = 0.0, asynchronous: bool = False) -> None:
        """Complete a checkpoint. One with a temporary name counts once it is renamed."""
        asynchronous = asynchronous or call.completion is not None
        _add_files(call)
        if not references.looks_temporary(call.reference):
            self._write_saved(call, step, background_seconds, asynchronous=asynchronous)
            return
        in_training = threading.get_ident() == self._probe.thread_ident

        def release(renamed: tuple[str, str] | None) -> bool:
            if renamed is None:
                may_still_be = self._probe.steps <= step if in_training else True
                if may_still_be and self._probe.on:
                    return False
            elif (name := references.after_rename(call.reference, *renamed)) is not None:
                for file in call.files:
                    file.path = references.after_rename(file.path, *renamed) or file.path
                call.reference = name
            else:
                return False
            self._write_saved(call, step, background_seconds, asynchronous=asynchronous)
            return True

        with self._lock:
            self._held.append(release)

    def renamed(self, source: Any, target: Any) -> None:
        """A file or folder was renamed; any thread."""
        if self._held:
            self._release((references.absolute_path(source), references.absolute_path(target)))

    def flush(self) -> None:
        """Let what was not renamed within the step that saved it keep its name; called by the sampler's thread."""
        if self._held:
            self._release(None)

    def _release(self, renamed: tuple[str, str] | None) -> None:
        with self._lock:
            for _ in range(len(self._held)):
                if self._held:
                    release = self._held.popleft()
                    if not release(renamed):
                        self._held.append(release)

    def _write_saved(self, call: CheckpointCall, step: int, background_seconds: float, *, asynchronous: bool) -> None:
        self._saved.add(call.reference)
        self._probe.outbox.write(
            records.CheckpointSaved,
            step=step,
            blocking_seconds=call.blocking_seconds,
            background_seconds=background_seconds,
            bytes=call.bytes,
            reference=call.reference,
            asynchronous=asynchronous,
            after_notice=call.after_notice,
        )
        if references.is_local(call.reference):
            self._manifests.put(SavedCheckpoint(step, call.reference, call.files))

    def _manifest(self, step: int, reference: str, shards: list[ShardSum], seconds: float) -> None:
        self._probe.outbox.write(records.CheckpointManifest, step=step, reference=reference, shards=shards, seconds=seconds)

    # --- restoring ---------------------------------------------------------------------------------------------------------

    def may_load(self) -> bool:
        """Return whether a call of this thread may read a checkpoint: it trains, or may come to, and no `DataLoader` calls it."""
        me = threading.get_ident()
        if me != self._probe.thread_ident and (self._probe.thread_ident or me != threading.main_thread().ident):
            return False
        return not self._probe.thread_ident or self._probe.timeline.phase != phases.DATA_WAIT

    def load_begin(self) -> CheckpointCall:
        if self._probe.steps:
            self._probe.timeline.enter(phases.CHECKPOINT)
        return self.loads.begin()

    def load_end(self) -> None:
        """The read ended or raised: write the record if it was the outermost call and read a checkpoint."""
        if self._probe.steps:
            self._probe.timeline.leave()
        call = self.loads.end()
        if call is None or not call.took_part or self.saves.depth:
            return
        self.said_restored(reference=call.reference, seconds=call.blocking_seconds, size_bytes=call.bytes)

    def counts(self, loaded: Any, target: Any) -> bool:
        """Return whether what a plain read gave is a checkpoint, and not data.

        What is read within a framework's restore is. Else it is, before the first step, a mapping (a state dict) or a module; later
        only what this process saved.
        """
        if self.loads.depth > 1:
            return True
        if not self._probe.steps:
            return hasattr(loaded, "keys") or hasattr(loaded, "state_dict")
        return references.reference_of(target) in self._saved

    def said_restored(self, *, reference: str, seconds: float, size_bytes: int = 0, step: int = -1) -> None:
        """The process continued from a checkpoint; before the first step the record is kept until it is known to train."""
        self._probe.outbox.write(
            records.CheckpointRestored, step=step, blocking_seconds=seconds, bytes=size_bytes, reference=reference
        )
        if not self._probe.steps and threading.get_ident() == self._probe.thread_ident:
            self._probe.bind()  # the first step begins after it

    def parents(self) -> list[str]:
        """Return the references of what was restored before the process began to train, each once."""
        early = self._probe.outbox.early_steps
        named = (fields["reference"] for kind, fields in early if kind is records.CheckpointRestored)
        return list(dict.fromkeys(name for name in named if name))

    # --- the end -----------------------------------------------------------------------------------------------------------

    def close(self, *, failed: bool) -> None:
        """Write what is left. The probe is already off."""
        self._release(None)
        self._manifests.close(LAST_MANIFEST_SECONDS_AFTER_FAILURE if failed else _last_manifest_seconds())


def _add_files(call: CheckpointCall) -> None:
    """Complete the files that were written, and their size, by what is known only when the checkpoint is whole."""
    if call.distributed is not None:
        files = distributed_files(*call.distributed)
        call.files += files
        call.bytes += sum(file.version[2] for file in files if file.version)
    elif not call.files and call.reference and (file := written(call.reference)) is not None and os.path.isfile(file.path):
        call.files = [file]
        call.bytes = call.bytes or os.path.getsize(file.path)


def _last_manifest_seconds() -> float:
    try:
        seconds = float(os.environ.get(LAST_MANIFEST_VARIABLE, LAST_MANIFEST_SECONDS))
    except ValueError:
        seconds = LAST_MANIFEST_SECONDS
    return min(seconds, threading.TIMEOUT_MAX) if seconds >= 0 else LAST_MANIFEST_SECONDS
