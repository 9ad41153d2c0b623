"""The probe: turns what happens in a training process into records.

The patches and adapters call it on the training thread; it accounts the time (`timing.phases`), and at each step's end queues one
record. It never raises into the job and never waits for an agent or a disk.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tachoscope import guard
from tachoscope.checkpoints.tracker import Checkpoints
from tachoscope.lineage import collect as lineage
from tachoscope.preemption.poll import NOTICES
from tachoscope.process import identity as ident
from tachoscope.process.lifetime import on_end_and_fork
from tachoscope.profiling.on_demand import Profiles
from tachoscope.sampling.loop_code import MOST_CALLS
from tachoscope.sampling.model_calls import ModelCalls
from tachoscope.sampling.other_threads import OtherThreads
from tachoscope.sampling.sampler import Counts, Sampler
from tachoscope.sampling.stacks import Chain, chain_of
from tachoscope.spool.outbox import FinishedStep, Outbox
from tachoscope.timing import phases
from tachoscope.timing.device_clock import GAP, HOST_TO_DEVICE, DeviceClock
from tachoscope.timing.procfs import RunDelay
from tachoscope.training import integrity as integrity_checks
from tachoscope.training import job_started as announcement
from tachoscope.training import parallel_layout as layout
from tachoscope.training.collectives import Collectives
from tachoscope.training.evaluation import EvaluationRule
from tachoscope.training.gradient_steps import GradientSteps
from tachoscope.training.loaders import LoaderWatch, private_bytes
from tachoscope.training.step_rule import StepRule
from tachoscope_core.records import records

_CALL_MODELS = (phases.OTHER, phases.PREPARATION, phases.FORWARD, phases.LOSS)
"""Phases in which a model is called as such: elsewhere it is called by a loader, a checkpoint, or backward once more."""
STEPS_TO_FIND_MODELS = 20
"""A job that called no module with gradients in so many steps computes without."""
FIRST_DETAILED_STEPS = 100
DETAIL_EVERY_NS = 100_000_000
"""The CPU clocks are read in the first steps, then in one step a tenth of a second: they are system calls, and cost most."""
SLOW_STEP_NS = 100_000_000
"""The first steps, and any step this long, are written at once; others within a tenth of a second, by the sampler's thread."""


class Probe:
    """Watches one process between `open` and `close`.

    After a fork the child is watched as a process of its own: a rank started by fork writes under its own writer, and a loader
    worker, which never computes gradients, writes nothing.
    """

    on = False
    thread_ident = 0
    thread_id = 0
    _hooks_set = False
    grad_enabled = staticmethod(bool)
    models: ModelCalls | None = None
    """Calls of models are reported by it, once torch is there."""

    def open(self, identity: ident.Identity, directory: Path) -> None:
        """Begin to watch this process; nothing is written before its first backward or explicit step."""
        self.identity = identity
        self.directory = directory
        self.outbox = Outbox(identity, directory, waits=True)  # for this to turn out a process that trains
        self.timeline = phases.Timeline()
        self.checkpoints = Checkpoints(self, NOTICES)
        self.collectives = Collectives()
        self.rendezvous_seconds = 0.0
        self.thread_ident = self.thread_id = 0
        self.steps = 0
        self.rule = StepRule()
        self.gradient_steps = GradientSteps()
        self.other_threads = OtherThreads()
        self.device: DeviceClock[FinishedStep] | None = None
        self._loader: weakref.ref[Any] | None = None
        self.loaders = LoaderWatch()
        self._samples = self._elements = self._backward_calls = 0
        self._pending: list[tuple[int, int]] = []
        self.evaluation = EvaluationRule(self.timeline)
        self.without_gradients = False
        self.stacks_wanted = True
        self.model_stacks: list[Chain] = []
        self.backward_stack: Chain = ()
        self.integrity = integrity_checks.from_environment(os.environ)
        self._open_optimizers: list[int] = []
        self._announced = False
        self._failure = ""
        self._run_delay: RunDelay | None = None
        self._step_delay = self._backward_delay = self._backward_begin_delay = 0
        self._detailed_until = 0
        self._sampler: Sampler | None = None
        self.profiles = Profiles(os.environ)
        self._set_hooks()
        self.on = True

    # --- the training thread -------------------------------------------------------------------------------------------

    def in_watched_thread(self) -> bool:
        """Return whether the calling thread is the one that is watched; the first that trains is. Never raises."""
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
        """Begin a phase, if the calling thread is watched; say whether it did, and `end_phase` is to be called. Never raises."""
        try:
            if not self.in_watched_thread():
                return False
            self.timeline.enter(phase)
        except Exception as error:
            self.stop_after_fault(error)
            return False
        return True

    def end_phase(self) -> None:
        """End the phase that `begin_phase` began. Never raises."""
        try:
            self.timeline.leave()
        except Exception as error:
            self.stop_after_fault(error)

    def bind(self) -> None:
        """Watch the calling thread from now on."""
        self.thread_ident, self.thread_id = threading.get_ident(), threading.get_native_id()
        self._run_delay = RunDelay()
        self._step_delay = self._run_delay.read()
        self._backward_delay = 0
        self.timeline.reads_cpu = True
        self.timeline.restart()

    def batch_begin(self, loader: object, *, grad_enabled: bool) -> None:
        """The thread asks a loader's iterator for a batch."""
        if not grad_enabled:
            self.timeline.begin_evaluation(no_grad=True)
        elif self.timeline.evaluating and self.timeline.evaluating_without_grad:
            self.end_evaluation()
        if self._has_models and not self.timeline.evaluating and self.evaluation.batch_asked(loader):
            self._pending.clear()
        if self._open_optimizers:
            self._leave_optimizers()
        if self.device is not None:
            self.device.begin(GAP)  # within a step that accumulates gradients, too
        self.timeline.enter(phases.DATA_WAIT)
        if self._loader is None or self._loader() is not loader:
            self._loader = weakref.ref(loader)

    def batch_end(self, samples: int, *, got_one: bool, elements: int = 0) -> None:
        """The loader returned a batch, or was exhausted."""
        if not got_one:
            self.timeline.leave()
            if not self.timeline.evaluating:
                self.rule.loader_exhausted()
            return
        self.timeline.leave_to(phases.PREPARATION if self._has_models else phases.FORWARD)
        self._batch_arrived(samples, elements)

    def batch_handed_out(self) -> None:
        """The loop gets a batch that its loader read ahead; its samples were counted then."""
        self.timeline.go_on_in(phases.PREPARATION if self._has_models else phases.FORWARD)
        self._batch_arrived(0, 0)

    def _batch_arrived(self, samples: int, elements: int) -> None:
        if self.timeline.evaluating:  # perhaps: of its batches the last one may be of the training
            before = self._pending[-1] if self._pending else (0, 0)
            self._pending = [(samples or before[0], elements or before[1])]
        elif self._has_models:
            self.evaluation.batch_arrived()
            self._pending.append((samples, elements))
        else:
            self._train_on(samples, elements)

    def _train_on(self, samples: int, elements: int) -> None:
        self.rule.batch_arrived(self._loader)
        self._samples += samples
        self._elements += elements

    def _train_on_pending(self) -> None:
        pending, self._pending = self._pending, []
        for samples, elements in pending:
            self._train_on(samples, elements)

    @property
    def _has_models(self) -> bool:
        return self.models is not None and self.models.active

    @property
    def _fed(self) -> bool:
        """Whether a loader gave a batch since the last step, or will give the next one."""
        return self.rule.is_fed_by_loader or bool(self._pending)

    def end_evaluation(self) -> None:
        """What may have been evaluation was it; its batches are not trained on."""
        if self.timeline.evaluating:
            self.timeline.end_evaluation()
            self._pending.clear()

    def mode_changed(self, *, training: bool) -> None:
        """The job called `train` or `eval` of a module."""
        if training:
            self.end_evaluation()
        elif self.steps:  # before the first step it is a model being built
            self.timeline.begin_evaluation()

    def model_begin(self, module: Any) -> bool:
        """A model is called that no other called; False where this belongs to another phase, such as backward."""
        if not self.on or self.timeline.phase not in _CALL_MODELS:
            return False
        if not self.grad_enabled():
            if self._has_models and not self.timeline.evaluating:
                self.evaluation.called_without_gradients(module, fed=self._fed)
            self.without_gradients = True
            if self.device is not None and self._fed and not self.timeline.evaluating:
                self.device.begin("no_grad")
            self.timeline.enter(phases.FORWARD)
            return True
        if self.stacks_wanted and len(self.model_stacks) < MOST_CALLS:
            self.model_stacks.append(chain_of(sys._getframe(2)))
        self.without_gradients = False
        assert self.models is not None
        self.models.watch_class(type(module))
        self.timeline.enter(phases.FORWARD)
        if self.timeline.evaluating:
            return True
        if self.device is not None:
            self.device.begin("forward")
        self.evaluation.called_with_gradients(module)
        if self._pending:
            self._train_on_pending()
        elif not self._fed:
            self.timeline.move_to_phase(phases.OTHER, phases.PREPARATION)
        return True

    def copy_begin(self) -> str | None:
        """A tensor of the host is about to be copied to the device; return what `copy_end` needs, None if nobody watches."""
        if self.device is None or not self.begin_phase(phases.HOST_TO_DEVICE):
            return None
        if self.timeline.evaluating:
            return ""
        before = self.device.segment
        self.device.begin(HOST_TO_DEVICE)
        return before

    def copy_end(self, before: str) -> None:
        """It is copied, or queued. What was before goes on; where no model will say that it begins, the forward pass does."""
        self.end_phase()
        if self.device is not None and before:
            self.device.begin("forward" if before == GAP and not self._has_models else before)

    def model_end(self) -> None:
        """The call of a model returned."""
        if self.without_gradients:
            self.timeline.leave()
            if not self.timeline.evaluating:
                self.evaluation.returned_without_gradients()
        else:
            self.timeline.leave_to(phases.LOSS)

    def backward_begin(self) -> None:
        """Gradients are about to be computed: this is training."""
        if self.timeline.evaluating:
            self.timeline.cancel_evaluation()
        self._train_on_pending()
        if self._open_optimizers:
            self._leave_optimizers()
        if not self._announced:
            self._announce()
        if self.stacks_wanted and (self.model_stacks or self.steps >= STEPS_TO_FIND_MODELS):
            self.backward_stack = chain_of(sys._getframe(2))
            self.stacks_wanted = False
        if self.timeline.reads_cpu and self._run_delay is not None:
            self._backward_begin_delay = self._run_delay.read()
        if self.device is not None:
            self.device.begin("backward")
        self._backward_calls += 1
        self.timeline.enter(phases.BACKWARD)

    def backward_end(self) -> None:
        """Gradients are there."""
        self.timeline.leave_to(phases.LOSS if self._has_models else phases.FORWARD)
        if self.timeline.reads_cpu and self._run_delay is not None:
            self._backward_delay += self._run_delay.read() - self._backward_begin_delay
        if not self.rule.explicit and self.gradient_steps.computed() and (self.rule.fresh_batch or not self._fed):
            self.gradient_steps.counted += 1
            self.end_step()

    def gradients_elsewhere(self) -> None:
        """A thread that is not watched is about to compute gradients."""
        if self.on and self.other_threads.computes(self.thread_ident):
            self.bind()

    def exchanged(self) -> None:
        """The thread sent to another rank, or received: a stage of a pipeline computes a batch that no loader gave it."""
        if self._announced and self.timeline.phase == phases.OTHER:
            self.timeline.go_on_in(phases.LOSS if self._has_models else phases.FORWARD)

    def _leave_optimizers(self) -> None:
        """Forget optimizer steps that raised, if the job went on: only in a closure are gradients computed within a step."""
        if self.timeline.phase == phases.OPTIMIZER:
            self.timeline.unwind(self._open_optimizers[0])
            self._open_optimizers.clear()

    def optimizer_begin(self, *, with_closure: bool = False) -> None:
        """An optimizer begins its step; one with a closure computes loss and gradients in it."""
        if self.device is not None and not with_closure:
            self.device.begin("optimizer")
        self._open_optimizers.append(self.timeline.depth)
        self.timeline.enter(phases.OPTIMIZER)

    def closure_begin(self) -> None:
        """An optimizer asks for the loss and its gradients."""
        self.timeline.enter(phases.LOSS if self._has_models else phases.FORWARD)

    def closure_end(self) -> None:
        """It has them."""
        self.timeline.leave()
        if self.device is not None:
            self.device.begin("optimizer")

    def optimizer_left(self) -> None:
        """What `optimizer_begin` said ended, and was not a step."""
        if self._open_optimizers:
            self.timeline.unwind(self._open_optimizers.pop())

    def optimizer_end(self, optimizer: object) -> None:
        """An optimizer ended its step, and perhaps a step of the job with it."""
        if self._open_optimizers:  # else watched since the middle of this step
            self.timeline.unwind(self._open_optimizers.pop())
        self.gradient_steps.optimizer_stepped()
        if self.rule.optimizer_stepped(optimizer, nested=bool(self._open_optimizers)):
            self.end_step()
        elif self._has_models and not self.rule.explicit:
            self.timeline.go_on_in(phases.OTHER)

    def explicit_step(self, *, samples: int, tokens: int) -> None:
        """The job says that a step ends here; from now on only it does."""
        first, self.rule.explicit = not self.rule.explicit, True
        if first and self.steps and not self.rule.fresh_batch:
            return  # the optimizer ended this very step, before anyone could know that the job would
        self.end_step(samples=samples, tokens=tokens)

    def end_step(self, *, samples: int = 0, tokens: int = 0) -> None:
        """A step ends here: write its record."""
        if not self._announced:
            self._announce()
        self.steps += 1
        self.rule.step_ended()
        self.evaluation.step_ended()
        if self.models is not None:
            self.models.step_ended(self._backward_calls)
        had_detail = self.timeline.reads_cpu
        # The clock of the last event is near enough to decide by.
        detail = self.steps < FIRST_DETAILED_STEPS or self.timeline.last >= self._detailed_until
        end, total, wall, cpu = self.timeline.end_step(read_cpu=detail)
        step_delay = backward_delay = None
        if self._run_delay is not None and self._run_delay.measured and (had_detail or detail):
            now = self._run_delay.read()
            if had_detail:
                step_delay, backward_delay = now - self._step_delay, self._backward_delay
            self._step_delay, self._backward_delay = now, 0
        if detail:
            self._detailed_until = end + DETAIL_EVERY_NS
        samples = samples or self._samples
        calls, elements = self._backward_calls, self._elements
        step = FinishedStep(self.steps, end, total, wall, cpu, step_delay, backward_delay, samples, tokens, calls, elements)
        self._samples = self._elements = self._backward_calls = 0
        if self.device is None:
            self.outbox.put(step, {})
        else:
            self.device.finish(step)
            self._queue_ready_steps()
        if self.steps <= FIRST_DETAILED_STEPS or total >= SLOW_STEP_NS or self._sampler is None:
            self.outbox.flush(wait=False)
        if self.integrity is not None and self.integrity.due(self.steps):
            self._check_integrity(self.integrity)
        if self.profiles.recording is not None:
            self.profiles.step_ended(self.steps)

    def _check_integrity(self, checks: integrity_checks.Checks) -> None:
        fields = checks.run()
        if fields is not None:
            self.outbox.write(records.IntegrityEvent, step=self.steps, **fields)

    @property
    def steps_in_parameters(self) -> int:
        """The steps whose updates the parameters hold: a framework may save within a step, after its update."""
        return self.steps + self.rule.updated_since_step

    # --- what the sampler reads -----------------------------------------------------------------------------------------

    @property
    def phase(self) -> int:
        """The phase that the watched thread is in."""
        return self.phase_of(self.timeline.phase, without_gradients=self.without_gradients)

    def phase_of(self, phase: int, *, without_gradients: bool) -> int:
        """Return what a phase of the timeline most likely turns out to be, which the next call of a model or loader decides."""
        if phase == phases.FORWARD and without_gradients:
            return phases.EVALUATION
        return phases.PREPARATION if phase == phases.OTHER and self._has_models and not self._fed else phase

    def loader_workers(self) -> Sequence[int] | None:
        """Return the process ids of the loader's workers, or None without any."""
        loader = self._loader() if self._loader is not None else None
        workers = getattr(loader, "_workers", None)
        return [worker.pid for worker in workers if worker.pid] if workers else None

    def flush(self) -> None:
        """Write what is queued, and look whether a profile is wanted."""
        self.outbox.flush()
        self.checkpoints.flush()
        self.profiles.poll()

    # --- records ---------------------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        """Write `JobStarted`: now, at the first backward, the process group is known."""
        self._announced = True
        if self.models is not None:
            self.models.look_for_models()
        self.outbox.rank, self.outbox.local_rank, world = announcement.ranks()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            cuda = torch.cuda
            self.device = DeviceClock(lambda: cuda.Event(enable_timing=True), cuda.current_stream, cuda.is_current_stream_capturing)
        self.outbox.start(
            world_size=world,
            rendezvous_seconds=self.rendezvous_seconds,
            **layout.of_process(os.environ, self.outbox.rank, world),
            parents=[*dict.fromkeys([*self.checkpoints.parents(), *lineage.described_parents()])],
            **announcement.of_process(torch),
        )
        sampler = Sampler(self, self._heartbeat)
        try:
            sampler.start()
        except RuntimeError:  # no more threads: steps are written as they end
            return
        self._sampler = sampler

    def _heartbeat(
        self, window_seconds: float, signals: dict[str, float], wait_samples: Counts, where: Counts, activity: Counts
    ) -> None:
        self._write_collectives()
        if self.collectives.gradient_bytes:
            signals = signals | {"gradient_bytes": float(self.collectives.gradient_bytes)}
        odd = {records.OTHER_THREADS: self.other_threads.count, records.GRADIENT_STEPS: self.gradient_steps.counted}
        signals = signals | {name: float(count) for name, count in odd.items() if count}
        worker = next(iter(self.loader_workers() or ()), None)
        if worker is not None and (size := private_bytes(worker)) is not None:
            signals = signals | {"worker_bytes": size}
        self.outbox.write(
            records.Heartbeat,
            step=self.steps,
            phase=records.PHASES[self.timeline.phase_now],
            window_seconds=window_seconds,
            signals=signals,
            wait_samples=wait_samples,
            where=where,
            activity=activity,
            loader=self.loaders.settings,
            dropped_total=self.outbox.dropped,
        )

    def _write_collectives(self) -> None:
        now = time.monotonic_ns()
        rows = [(records.CollectiveDone, now, {**fields, "step": self.steps}) for fields in self.collectives.new_sums()]
        if rows:
            self.outbox.write_all(rows)

    def _queue_ready_steps(self, *, everything: bool = False) -> None:
        if self.device is not None:
            for step, seconds in self.device.ready(everything=everything):
                self.outbox.put(step, seconds)

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
        self.thread_ident = 0
        guard.print_line(f"not watching any longer, a fault of the probe: {type(error).__name__}: {error}")

    def on_gc(self, phase: str, info: dict[str, int]) -> None:  # noqa: ARG002  # the signature of gc.callbacks
        """Account a garbage collection of the watched thread."""
        try:
            if self.on and threading.get_ident() == self.thread_ident:
                if phase == "start":
                    self.timeline.enter(phases.GC)
                else:
                    self.timeline.leave()
        except Exception as error:
            self.stop_after_fault(error)

    def failed(self, error: BaseException) -> None:
        """Remember that the training failed; the message stays out of the record, since it may hold secrets."""
        if not (isinstance(error, SystemExit) and not error.code):  # sys.exit() is an ordinary end
            self._failure = type(error).__name__

    def on_exception(self, kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        """Remember that the process fails, and let the next hook print it."""
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
        """Write the last records and release the spool; the process may go on without being watched."""
        if not self.on:
            return
        self.on = False
        self.thread_ident = 0
        if not self._announced:
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
        self._queue_ready_steps(everything=True)
        self._write_collectives()
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
