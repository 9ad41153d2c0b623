"""The probe of one process: its life and its guard. What it measures is told to it by parts of its own.

The patches and adapters tell events of the training thread to `StepMachine`, which decides the phases and the steps; what follows
the steps is listed in `Probe._follow`. The probe opens, announces and closes, goes on in a forked child, and never raises into
the job nor waits for an agent or a disk.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tachoscope import guard
from tachoscope.checkpoints.tracker import Checkpoints
from tachoscope.compilation.compilations import Compilations
from tachoscope.failures.handled import HandledErrors
from tachoscope.lineage import collect as lineage
from tachoscope.memory.watch import MemoryWatch
from tachoscope.preemption.poll import NOTICES
from tachoscope.process import identity as ident
from tachoscope.process.lifetime import on_end_and_fork
from tachoscope.profiling.on_demand import Profiles
from tachoscope.sampling.loop_stacks import LoopStacks
from tachoscope.sampling.model_calls import ModelCalls
from tachoscope.sampling.other_threads import OtherThreads
from tachoscope.sampling.sampler import Sampler
from tachoscope.spool.outbox import Outbox
from tachoscope.timing import phases
from tachoscope.timing.finished_step import FinishedStep
from tachoscope.timing.procfs import RunDelay
from tachoscope.training import compiled_steps, job_started
from tachoscope.training import integrity as integrity_checks
from tachoscope.training.collectives import Collectives
from tachoscope.training.heartbeats import Heartbeats
from tachoscope.training.loaders import LoaderWatch
from tachoscope.training.step_records import StepRecords
from tachoscope_core.records import records

_LOOK_SECONDS = 0.5
"""A look that finds nothing costs the interpreter's lock, for which the training thread may wait."""


class Probe:
    """Watches one process between `open` and `close`.

    After a fork the child is watched as a process of its own: a rank started by fork writes under its own writer, and a loader
    worker, which never computes gradients, writes nothing.
    """

    on = False
    thread_ident = 0
    thread_id = 0
    _hooks_set = False
    models: ModelCalls | None = None
    """Reports calls of models to the machine, once torch is there."""
    _compilations_timed = False

    def open(self, identity: ident.Identity, directory: Path) -> None:
        """Start watching this process. Nothing is written before its first backward or explicit step."""
        self.identity = identity
        self.directory = directory
        self.outbox = Outbox(identity, directory, waits=True)  # for this to turn out a process that trains
        self.machine = compiled_steps.new_machine()
        compiled_steps.watch(self.machine)
        self.outbox.take_steps = self.machine.take_steps
        self.timeline = self.machine.timeline
        self.step_records = StepRecords(self.outbox)
        self.loop_stacks = LoopStacks(self.machine)
        self.checkpoints = Checkpoints(self, NOTICES)
        self.collectives = Collectives()
        self.compilations = Compilations(self.outbox, self.machine, timed=self._compilations_timed)
        self.rendezvous_seconds = 0.0
        self.thread_ident = self.thread_id = 0
        self.other_threads = OtherThreads()
        self.loaders = LoaderWatch()
        self._heartbeats = Heartbeats(
            self.outbox, self.machine, self.collectives, self.compilations, self.other_threads, self.loaders
        )
        self.memory = MemoryWatch(self.outbox, lambda: self.steps, self.loader_workers)
        self.integrity = integrity_checks.from_environment(os.environ)
        self._failure = ""
        self._look_at = 0.0
        self._handled_errors = HandledErrors()
        self._sampler: Sampler | None = None
        self.profiles = Profiles(os.environ)
        self.machine.on_first_training = self._begin_records
        self.loop_stacks.take()
        self._follow()
        self._set_hooks()
        self.on = True

    def _follow(self) -> None:
        """Put who follows the steps where the machine tells them, in the order in which they are told: all of them are here."""
        machine, models = self.machine, self.models
        machine.has_models = models is not None and models.active
        machine.models_known = models is None or models.known
        machine.device = self.step_records.device
        machine.on_step = (
            *([models.step_ended] if models is not None else []),
            self.step_records.step_ended,
            *([self._check_integrity] if self.integrity is not None else []),
            *([self.profiles.step_ended] if self.profiles.enabled else []),
        )
        self._set_quick()

    def _set_quick(self) -> None:
        """Let the machine keep usual steps if only the records follow them, which the sampler's thread writes."""
        followed = self.machine.device is not None or self.integrity is not None or self.profiles.recording is not None
        self.machine.quick = self.step_records.written_elsewhere and not followed

    def report_models(self, models: ModelCalls) -> None:
        """Have `models` tell the machine of calls of models; called once torch is there."""
        self.models = models
        self._follow()

    def compilations_timed(self) -> None:
        """Torch tells from now on when it compiles."""
        self._compilations_timed = self.compilations.timed = True

    def check_integrity(self, checks: integrity_checks.Checks) -> None:
        """Have these checks made from now on."""
        self.integrity = checks
        self._follow()

    # --- the training thread -------------------------------------------------------------------------------------------

    def in_watched_thread(self) -> bool:
        """Return whether this is the watched thread, which is the first that trains. Never raises."""
        try:
            if not self.on:
                return False
            me = threading.get_ident()
            if me != self.thread_ident:
                if self.thread_ident and (self.steps or me != threading.main_thread().ident):
                    return False
                self.bind()
        except Exception as error:
            self.stop_after_fault(error)
            return False
        return True

    def begin_phase(self, phase: int) -> bool:
        """Begin a phase if this is the watched thread, and return whether `end_phase` must be called. Never raises."""
        try:
            if not self.in_watched_thread():
                return False
            self.timeline.enter(phase)
        except Exception as error:
            self.stop_after_fault(error)
            return False
        return True

    def end_phase(self) -> None:
        """End the phase that `begin_phase` began, unless another thread is watched since. Never raises."""
        try:
            if threading.get_ident() == self.thread_ident:
                self.timeline.leave()
        except Exception as error:
            self.stop_after_fault(error)

    def bind(self) -> None:
        self._watch(threading.get_ident())
        self.thread_id = threading.get_native_id()
        delay = RunDelay()
        self.machine.restart(delay.read if delay.measured else None)

    def _watch(self, thread_ident: int) -> None:
        self.thread_ident = self.machine.thread_ident = thread_ident

    def gradients_elsewhere(self) -> None:
        """A thread that is not watched is about to compute gradients."""
        if self.on and self.other_threads.computes(self.thread_ident):
            self.bind()

    @property
    def steps(self) -> int:
        """The steps that ended so far."""
        return self.machine.steps

    @property
    def steps_in_parameters(self) -> int:
        """The steps whose updates the parameters hold."""
        return self.machine.steps_in_parameters

    # --- the sampler's thread -------------------------------------------------------------------------------------------

    def loader_workers(self) -> Sequence[int]:
        """Return the process ids of the loader's workers."""
        return self._heartbeats.loader_workers()

    def flush(self) -> None:
        """Write what is queued, look at the memory, and twice a second at what was compiled, asked for, or is being handled."""
        self.outbox.flush()
        self.checkpoints.flush()
        self.memory.poll()
        now = time.monotonic()
        if now < self._look_at and not self.compilations.has_news:
            return
        self._look_at = now + _LOOK_SECONDS
        self.compilations.write_new()
        self.profiles.poll()
        self._handled_errors.look(self.thread_ident, self.steps)
        self._set_quick()

    # --- records ---------------------------------------------------------------------------------------------------------

    def _begin_records(self) -> None:
        """Announce the process, and follow it from now on: at the first backward the process group is known."""
        if self.models is not None:
            self.models.look_for_models()
        job_started.write(self.outbox, rendezvous_seconds=self.rendezvous_seconds, parents=self.checkpoints.parents())
        self.step_records.time_device()
        self._follow()
        sampler = Sampler(self, self._heartbeats.write)
        try:
            sampler.start()
        except RuntimeError:  # no more threads: steps are written as they end
            return
        self._sampler = sampler
        self.step_records.written_elsewhere = True
        self._follow()

    def _check_integrity(self, step: FinishedStep) -> None:
        if self.integrity is not None and self.integrity.due(step.number):
            fields = self.integrity.run()
            if fields is not None:
                self.outbox.write(records.IntegrityEvent, step=step.number, **fields)

    # --- life ------------------------------------------------------------------------------------------------------------

    def stop_after_fault(self, error: Exception) -> None:
        """Stop watching after a fault of the probe's own: the job goes on as if it had never been there.

        Raises:
            Exception: the error, if it is the job's own, such as one that a signal handler raised at this moment.
        """
        if guard.is_of_the_job(error):
            self.timeline.unwind(0)  # it skips the ends of phases
            raise error
        self.on = False
        self._watch(0)
        guard.print_line(f"not watching any longer, a fault of the probe: {type(error).__name__}: {error}")

    def on_gc(self, phase: str, info: dict[str, int]) -> None:  # noqa: ARG002  # the signature of gc.callbacks
        """Account a garbage collection of the watched thread; what compiling causes is part of that."""
        try:
            if self.on and threading.get_ident() == self.thread_ident and self.timeline.phase != phases.COMPILE:
                if phase == "start":
                    self.timeline.enter(phases.GC)
                else:
                    self.timeline.leave()
        except Exception as error:
            self.stop_after_fault(error)

    def failed(self, error: BaseException) -> None:
        """Remember that training failed; what it says is reported by `failures.hooks`."""
        if not (isinstance(error, SystemExit) and not error.code):  # sys.exit() is an ordinary end
            self._failure = type(error).__name__

    def on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        """Remember that the process fails, and call the next hook."""
        with guard.QUIETLY:
            self.failed(value)
        self._next_hook(kind, value, trace)

    def _set_hooks(self) -> None:
        if self._hooks_set:
            return
        self._hooks_set = True
        gc.callbacks.append(self.on_gc)
        self._next_hook = sys.excepthook
        sys.excepthook = self.on_exception
        on_end_and_fork(self.close, self._after_fork_in_child, close_as_child=self._close_as_child)

    def _close_as_child(self) -> None:
        """Close in a process of multiprocessing, whose exceptions reach no hook: one that ends it is on its way now."""
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit) and error.code and error.__context__ is not None:
            error = error.__context__  # torch.multiprocessing.spawn makes an exit of it
        if error is not None:
            self.failed(error)
        self.close()

    def _after_fork_in_child(self) -> None:
        if self.on:
            self.on = False
            with guard.QUIETLY:
                self.outbox.close()  # the parent's segment: its lock stays with the parent
                self.open(self.identity, self.directory)

    def close(self) -> None:
        """Write the last records and release the spool. The process may continue unwatched."""
        if not self.on:
            return
        self.on = False
        self._watch(0)
        if not self.machine.trains:
            return
        for part in (self._stop, self._write_last, self._write_end):
            with guard.QUIETLY:  # what the next one writes is not lost with it
                part()
        if self.outbox.dropped:
            lost = f"{self.outbox.dropped} records dropped, the training was not affected ({self.outbox.error})"
            guard.print_line(f"rank {self.outbox.rank}: {lost}")

    def _stop(self) -> None:
        self.profiles.close()
        if self._sampler is not None:
            self._sampler.stop()

    def _write_last(self) -> None:
        self.checkpoints.close(failed=bool(self._failure))
        self.step_records.queue_ready(everything=True)
        self.memory.close()
        self._heartbeats.write_collectives()
        self._look_at = 0.0
        self.flush()

    def _write_end(self) -> None:
        self.outbox.write(
            records.JobEnded,
            status="failed" if self._failure else "left",
            reason=self._failure,
            steps=self.steps,
            dropped_total=self.outbox.dropped,
            lineage=lineage.since_start(),
        )
        self.outbox.close()
