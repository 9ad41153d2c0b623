"""What to do where the training thread waits although its loader workers are idle: more of them would be idle, too.

What takes the time then is between the workers and the loop: the hand-over of each batch, work of the training process itself
(a slow sampler, batches that are not tensors), the thread that pins memory, a batch that takes longer than others (they are handed
out in order), or the start of the workers.
"""

from __future__ import annotations

from dataclasses import dataclass

from tachoscope_analyzers.advice.advised import Advised
from tachoscope_analyzers.advice.number_text import count, percent, time
from tachoscope_analyzers.data.thresholds import threshold


@dataclass(frozen=True, slots=True)
class Idle:
    """Seconds are of a step.

    Attributes:
        step: mean step. rest: that without waiting. handover: what handing its batches over costs by the model.
        workers: processes. idle: share of the looks at which a worker waited for work. workers_cpu: CPU seconds of all workers.
        thread_busy: CPU seconds of the training thread over seconds in which it waits, None: not measured.
        only_computes: no worker was seen waiting for anything but work.
        pins: a thread of the training process copies each batch into pinned memory.
    """

    step: float
    rest: float
    handover: float
    workers: int
    idle: float
    workers_cpu: float | None
    thread_busy: float | None = None
    only_computes: bool = False
    pins: bool = False


def advice(found: Idle) -> Advised:
    """Return what is missing in place of workers, as far as it can be told, and how to see whether a change helped."""
    wait = found.step - found.rest
    idle = f"{count(found.workers, 'worker')} {'is' if found.workers == 1 else 'are'} idle in {percent(found.idle)} of the samples"
    head = f"not more workers: while training waits ({time(wait)} a step), {idle}. "
    if wait <= threshold("handover_spread") * found.handover:
        return _handover(found, head)
    if found.thread_busy is not None and found.thread_busy >= threshold("loader_busy_ratio"):
        return Advised(
            f"{head}The training process itself computes in the loader: its sampler, or batches that are not tensors and are "
            f"unpickled. `py-spy dump --pid` shows which; return tensors. {_tell(found)}"
        )
    pins = "the thread that pins memory (try pin_memory=False), " if found.pins else ""
    return Advised(
        f"{head}Look for {pins}one slow batch in many (try a larger prefetch_factor), or an answer of the network (`py-spy dump` "
        f"of a worker: not in `_worker_loop`; only then more workers help). {_tell(found)}"
    )


def _handover(found: Idle, head: str) -> Advised:
    alone = None if found.workers_cpu is None or not found.only_computes else found.rest + found.workers_cpu
    words = f"{head}Handing a batch over costs about {time(found.handover)}. "
    if alone is not None and alone < threshold("worthwhile_step_ratio") * found.step:
        return Advised(
            f"{words}Load in the training process, which takes at most {time(found.workers_cpu or 0.0)} a step: "
            f"DataLoader(num_workers=0). {_tell(found)}",
            {"num_workers": 0},
        )
    return Advised(f"{words}Use larger batches, or index tensors that are in memory without a DataLoader. {_tell(found)}")


def _tell(found: Idle) -> str:
    return f"It helped if a step takes less than {time(found.step)}"
