"""What the ranks of a training record: who they are, their steps, heartbeats, collectives, and what was found in them."""

from __future__ import annotations

import msgspec

from tachoscope_core.records.base import (
    MAX_STEP_SECONDS,
    Amount,
    Count,
    Name,
    Place,
    Rank,
    Record,
    Seconds,
    Text,
    UnixSeconds,
    World,
)


class JobStarted(Record, frozen=True, kw_only=True, tag="JobStarted"):
    """A process of the job began to record: written before its first step, or by the launcher when it starts the command.

    Attributes:
        process_time: Unix seconds at which the operating system started the process; 0: not known.
        rendezvous_seconds: what the process spent in `init_process_group` before this record.
        device_name: the accelerator's product name, such as `NVIDIA H100 80GB HBM3`; empty on CPU.
        lineage: what the run was made of, by name (see `tachoscope.lineage.collect`), secrets redacted.
        parents: references of the checkpoints that it began from.
    """

    world_size: World
    pid: Count
    process_time: UnixSeconds = 0.0
    rendezvous_seconds: Seconds = 0.0
    device: Name = "cpu"
    device_name: Name = ""
    gpu_uuid: Name = ""
    pod_uid: Name = ""
    code_reference: Text = ""
    data_snapshot: Text = ""
    hyperparameters_hash: Name = ""
    lineage: dict[Name, Text] = {}
    parents: list[Text] = []
    torch_version: Name = ""
    cpu_threads: Count = 0
    """Intra-op threads of torch in this process; 0: not known."""
    cpu_count: Count = 0
    """Cores that this process may run on; 0: not known."""
    layout: dict[Name, Count] = {}
    """Size of each parallel dimension: dp, tp, pp, cp, ep."""
    groups: dict[Name, list[list[Count]]] = {}
    """By parallel dimension, the ranks of the groups that this process is in; those of `pp` in the order of the stages."""
    stack_locator: Text = ""
    """Where who may trace this process finds its Python threads, see `tachoscope.sampling.other_process`; empty: not known."""


class StepDone(Record, frozen=True, kw_only=True, tag="StepDone"):
    """One optimizer step of one rank; `monotonic_ns` is its end.

    Attributes:
        step: number of the step within the process, from 1.
        wall_seconds: from the end of the step before to the end of this one, measured apart from the phases.
        phase_seconds: exclusive seconds of the training thread by phase; they sum to `wall_seconds`.
        cpu_seconds: CPU seconds of the training thread by phase, for the phases where it was read.
        run_delay_seconds: seconds the training thread was ready but had no core, by phase (`backward`, and `step` for all).
        device_seconds: seconds on the accelerator's own clock by what it did: `gap` (nothing was queued), `host_to_device`,
            `forward`, `no_grad` (models called without gradients), `backward`, `optimizer`. They sum to the time from the end of
            the step before on the device to the end of this one. Empty on CPU and where events did not time the step.
        samples, tokens: what the step consumed, when the job says so; 0: not known.
        backward_calls: how often gradients were computed in it: in a pipeline, or with accumulation, its micro-batches.
        elements: numbers in the first tensor of the batches that it consumed, padding included; 0: not known.
    """

    step: Count
    wall_seconds: Seconds
    phase_seconds: dict[Name, Seconds]
    cpu_seconds: dict[Name, Seconds] = {}
    run_delay_seconds: dict[Name, Seconds] = {}
    device_seconds: dict[Name, Seconds] = {}
    samples: Count = 0
    tokens: Count = 0
    backward_calls: Count = 1
    elements: Count = 0


def step_seconds(step: StepDone) -> float:
    """Return how long a step took: on its device, where events timed it, since a host queues work ahead of its device."""
    return sum(step.device_seconds.values()) if step.device_seconds else step.wall_seconds


def plausible(step: StepDone) -> bool:
    """Return whether a step's numbers can be true: a spool is foreign input, and a counter that took in nonsense keeps it."""
    if step.wall_seconds > MAX_STEP_SECONDS:
        return False
    return abs(sum(step.phase_seconds.values()) - step.wall_seconds) <= 1e-6 + 0.01 * step.wall_seconds


OTHER_THREADS = "other_training_threads"
"""Signal of a heartbeat: threads of the process that computed gradients so far, beside the one that is watched."""


GRADIENT_STEPS = "steps_without_optimizer"
"""Signal of a heartbeat: steps so far that ended with the gradients, since no optimizer stepped."""


COMPILATIONS = "compilations"
"""Signal of a heartbeat: compilations by torch.compile so far; absent: not known, as without torch."""
DYNAMO_RESET = "torch._dynamo.reset"
"""The reason of a compilation of code that torch had compiled before it was reset."""


class LoaderSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `DataLoader` that a process trains with, as its last iterator was made.

    Attributes:
        workers, prefetch_factor, persistent_workers, pin_memory: as in `DataLoader`; prefetch_factor 0: there are no workers.
        iterable: an `IterableDataset`. shards: it asks for its worker (`get_worker_info`), or a `worker_init_fn` is given; where
            neither is seen, each worker may yield all samples.
        batch_bytes: of the tensors of its first batch. iterators: begun so far over the same data set, such as one an epoch.
        shared_memory_bytes: free in /dev/shm, through which workers hand batches over; 0: not known.
    """

    workers: Count = 0
    prefetch_factor: Count = 0
    persistent_workers: bool = False
    pin_memory: bool = False
    iterable: bool = False
    shards: bool = False
    batch_bytes: Count = 0
    iterators: Count = 1
    shared_memory_bytes: Count = 0


class Heartbeat(Record, frozen=True, kw_only=True, tag="Heartbeat"):
    """A process is alive, and what its sampler saw since the last heartbeat.

    Attributes:
        step: last finished step.
        window_seconds: length of the window that the signals are about.
        signals: sums over the window, by name, in base units (see `tachoscope.sampling.sampler`); absent: not measured.
            `OTHER_THREADS` and `GRADIENT_STEPS` count since the process began to record; absent: zero. So does `COMPILATIONS`;
            absent: not known.
        wait_samples: by phase, what the thread was seen doing (cpu, disk, file, pipe, socket, sleep, lock, poll, other) to the
            number of samples; in `data_wait` with loader workers it is what the workers were doing.
        where: by phase, the innermost line of user code that the thread was seen at, `file:line function`, to samples. A sample
            counts for the phase that it turned out to belong to: a statement that makes the model's input is `data_wait`. `pause`:
            lines at which the thread stood still in a call that computes nothing.
        activity: by phase that the clock was running for, `PHASE KIND` to samples: the phase that the sample turned out to belong
            to, and what the thread was seen doing. Only phases whose time can belong to several.
        loader: the loader that the process trains with; None: it has none, or the probe is older than this field.
        phase: the phase that the thread was in when this was written.
        dropped_total: records that this process could not write so far.
    A process that serves requests says in `signals` how many are in flight (`requests_in_flight`): they are cut if it dies.
    """

    step: Count
    phase: Name = ""
    window_seconds: Seconds = 0.0
    signals: dict[Name, Amount] = {}
    wait_samples: dict[Name, dict[Name, Count]] = {}
    where: dict[Name, dict[Text, Count]] = {}
    activity: dict[Name, dict[Name, Count]] = {}
    loader: LoaderSettings | None = None
    dropped_total: Count = 0


class CollectiveDone(Record, frozen=True, kw_only=True, tag="CollectiveDone"):
    """Summary of collectives of one kind, size class, group and peer since the last such record of the process.

    Attributes:
        collective: name of the function of `torch.distributed`, such as `all_reduce` or `recv`; `isend` and `irecv` are `send` and
            `recv`. size_class: of one message, such as `<=64KiB`.
        count: calls. bytes: of their messages; in an all-gather or a reduce-scatter those of all ranks together.
        seconds: the training thread was blocked in them, waiting for other ranks included.
        group: ranks of the process group; empty: all. group_size: how many they are; 0: not known.
        peer: global rank at the other end of `send` and `recv`; -1: it was not a point-to-point call.
        step: last finished step of the process.
        wait_seconds, transfer_seconds: where who wrote this can tell them apart.
        communicator, sequence: NCCL's own, where NCCL's Inspector told of this one call (`seconds` then are its execution on the
            device, on `rank`, and who wrote this is the node agent); empty and -1 else.
    """

    collective: Name
    size_class: Name
    count: Count
    bytes: Count
    seconds: Seconds
    group: Text = ""
    group_size: Count = 0
    peer: Rank = -1
    step: Count = 0
    wait_seconds: Seconds | None = None
    transfer_seconds: Seconds | None = None
    communicator: Name = ""
    sequence: Place = -1


class CompilationDone(Record, frozen=True, kw_only=True, tag="CompilationDone"):
    """Code was compiled by torch.compile, or torch gave up compiling it; `monotonic_ns` is the end.

    Attributes:
        place: `file:line function` of the code; empty: not known. compile_id: torch's own, such as `0/1`: code 0, the second time.
        seconds: what it took, by torch. Forward and backward that are compiled apart have a record each.
        recompiled: the code had been compiled before, for other inputs. reason: of that, the first guard that failed, in torch's
            words, or `DYNAMO_RESET`; empty: this version of torch does not tell.
        limit: the limit that was hit, such as `recompile_limit (8)`: from now on torch runs the code as it is for all inputs for
            which nothing is compiled. failure: the type of the exception that ended it; empty: it was compiled.
        backward: of the gradients only, compiled when they were first computed.
        graph_breaks: where code could not be compiled in one piece, `file:line function`, with the reason: since the last such
            record of the process.
    """

    place: Text = ""
    compile_id: Name = ""
    seconds: Seconds = 0.0
    recompiled: bool = False
    reason: Text = ""
    limit: Name = ""
    failure: Name = ""
    backward: bool = False
    graph_breaks: dict[Text, Text] = {}


class IntegrityEvent(Record, frozen=True, kw_only=True, tag="IntegrityEvent"):
    """What a check of the numbers found after a step; nothing is wrong where `not_finite` is empty and the checksums agree.

    Attributes:
        check: what was looked at, such as `parameters`. detail: what of it is wrong, in words.
        not_finite: which of `loss`, `gradients` and `parameters` hold NaN or Inf.
        checksum: of the parameters, hexadecimal; empty: not taken.
        replicas: global ranks that should have the same checksum after the same step; empty: none are known.
        loss_growth: last finite loss over the median of the twenty up to it, where it lies in the host's memory; 0: not known.
        seconds: what the check took.
    """

    step: Count
    check: Name
    detail: Text = ""
    not_finite: list[Text] = []
    checksum: Name = ""
    replicas: list[Count] = []
    loss_growth: Amount = 0.0
    seconds: Seconds = 0.0


class UpdatesApplied(Record, frozen=True, kw_only=True, tag="UpdatesApplied"):
    """Updates of parameters that others updated meanwhile, since the last such record of the process: a parameter server's.

    Attributes:
        staleness: how many updates were applied between reading the parameters and applying this one, to the number of updates.
        bound: the largest staleness that the job says it allows; None: it did not say.
    """

    staleness: dict[Count, Count]
    bound: Count | None = None


class TraceCaptured(Record, frozen=True, kw_only=True, tag="TraceCaptured"):
    """A profiler trace of this rank lies in the store.

    Attributes:
        reference: its path in the store. first_step, last_step: the steps that it made slower, by recording them or by keeping what
            was recorded; 0: not known.
    """

    reference: Text
    bytes: Count
    first_step: Count = 0
    last_step: Count = 0
