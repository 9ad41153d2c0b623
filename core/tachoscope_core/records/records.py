"""The records that a job's processes write and that every analyzer reads.

One record is one JSON line, told apart by `kind`. Agent and probe may be of different versions: a field that a reader
does not know is ignored (shippers copy lines verbatim, so it is kept), a kind that it does not know is counted and skipped.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tachoscope_core.errors import TachoscopeError

MAX_LINE_BYTES = 1 << 20
"""Longest line that a reader takes: a spool is foreign input."""

MAX_COUNT = 1 << 53
MAX_SECONDS = 1e10
"""As Unix seconds in the year 2286."""
MAX_STEP_SECONDS = 7 * 86400.0
MAX_TEXT = 4096
"""Characters: the longest path of Linux."""

# Every number and text of a record is bounded, so that no reader has to expect what cannot be: a spool is foreign input.
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Place = Annotated[int, Meta(ge=-1, le=MAX_COUNT)]
"""A step or the like; -1: none."""
World = Annotated[int, Meta(ge=0, le=1 << 20)]
Rank = Annotated[int, Meta(ge=-1, le=1 << 20)]
"""-1: none."""
ExitCode = Annotated[int, Meta(ge=-1024, le=(1 << 32) - 1)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
UnixSeconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS)]
Nanoseconds = Annotated[int, Meta(ge=0, le=1 << 62)]
Amount = Annotated[float, Meta(ge=-1e18, le=1e18)]
"""Of any unit."""
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]

MAX_JOB_NAME = 128
_JOB_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_JOB_NAME - 1}}}")

LAUNCHER_RANK = -1
INTERRUPTED = "interrupted"
"""How the reason of a launcher's end begins where the user pressed Ctrl-C, whatever exit code the command made of that."""
"""Rank in records of the launcher (`tachoscope run`) and of the node agent, which are no rank of the job."""

Phase = Literal[
    "data_wait",
    "host_to_device",
    "forward",
    "backward",
    "optimizer",
    "collective",
    "checkpoint",
    "evaluation",
    "gc",
    "other",
    "preparation",
    "loss",
]
PHASES: tuple[Phase, ...] = Phase.__args__  # type: ignore[attr-defined]
"""Where the training thread is, exclusively: the seconds by phase of a step sum to its wall seconds.

`forward` is the time in the outermost calls of models that compute with gradients, and of loss modules. `preparation` is from the
batch to the model; in a loop without a loader, from the last step to the model. `loss` is between model, backward and optimizer.
`other` is what is left, between the optimizer and the next batch. Where no model is called as a `torch.nn.Module`, `forward` is all
time from the batch to the optimizer that is not measured otherwise, and there is neither `preparation` nor `loss`.
"""


COMPUTING_PHASES: frozenset[Phase] = frozenset({"forward", "loss", "backward", "optimizer"})
"""Phases in which a step computes; without torch nothing is in them but what the job marks."""


SHARED_PHASES: tuple[Phase, ...] = ("loss", "preparation", "other")
"""Phases of which the clock alone does not tell what their time belongs to: samples do, see `Heartbeat.activity`."""


def is_job_name(name: str) -> bool:
    """Return whether a name is safe as a folder name and a label value."""
    return _JOB_NAME.fullmatch(name) is not None


def check_job_name(name: str) -> str:
    """Return `name` if it is safe as a folder name and a label value.

    Raises:
        TachoscopeError: the name has other characters than letters, digits, `.`, `_`, `-`, or is too long.
    """
    if not is_job_name(name):
        raise TachoscopeError(
            f"job name {name!r} is not usable",
            fix=f"use 1 to {MAX_JOB_NAME} letters, digits, '.', '_' or '-', beginning with a letter or digit",
        )
    return name


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The envelope of every record.

    Attributes:
        job: stable name that the attempts of a job share.
        attempt: 0 for the first start of the job, counted up by restarts.
        writer: UUID made when the process started; (`writer`, `seq`) identifies a record.
        seq: number of the record within its writer, from 0 without gaps unless records were dropped.
        rank: global rank, or `LAUNCHER_RANK`.
        time: Unix seconds. monotonic_ns: nanoseconds of the host's monotonic clock, comparable on one host.
    """

    job: Name
    attempt: Count
    writer: Name
    seq: Count
    rank: Rank
    local_rank: Rank
    host: Name
    time: UnixSeconds
    monotonic_ns: Nanoseconds


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
            `OTHER_THREADS` and `GRADIENT_STEPS` count since the process began to record; absent: zero.
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


class CheckpointSaved(Record, frozen=True, kw_only=True, tag="CheckpointSaved"):
    """A checkpoint was written, or is complete if it was asynchronous: `time` is when.

    Attributes:
        step: last finished step of the process.
        blocking_seconds: the training thread stood still for so long. background_seconds: from then until it was complete.
        bytes: what this rank wrote; 0: not known.
        reference: path or URL of the file or folder, secrets redacted; empty: not known.
        asynchronous: saved in the background. after_notice: saved after a notice that the process will be ended.
    """

    step: Count
    blocking_seconds: Seconds
    background_seconds: Seconds = 0.0
    bytes: Count = 0
    checksum: Name = ""
    reference: Text = ""
    asynchronous: bool = False
    after_notice: bool = False


class ShardSum(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint: path below the checkpoint's reference (empty: the reference is the file), and its checksum."""

    path: Text = ""
    bytes: Count
    checksum: Name
    """`<algorithm>:<hexadecimal digits>`."""


class CheckpointManifest(Record, frozen=True, kw_only=True, tag="CheckpointManifest"):
    """The files that this rank wrote of a checkpoint, with their checksums, taken right after it was complete.

    Attributes:
        step: as in the `CheckpointSaved` of the same reference. seconds: what taking them took.
    """

    step: Count
    reference: Text
    shards: list[ShardSum]
    seconds: Seconds = 0.0


class CheckpointVerified(Record, frozen=True, kw_only=True, tag="CheckpointVerified"):
    """A checkpoint was read back and compared with its manifests.

    Attributes:
        step: as in its `CheckpointSaved`. attempt_saved: the attempt that saved it.
        sound: all files are there and their checksums agree. fault: else what is wrong, naming the file.
        seconds: what reading back took, for `bytes`.
        ranks: whose files were read, where it was not those of all ranks: each node reads what its own ranks wrote.
    """

    step: Count
    reference: Text = ""
    attempt_saved: Count = 0
    sound: bool = True
    fault: Text = ""
    bytes: Count = 0
    checksum: Name = ""
    seconds: Seconds = 0.0
    ranks: list[Count] = []


class CheckpointRestored(Record, frozen=True, kw_only=True, tag="CheckpointRestored"):
    """A process continued from a checkpoint; `time` is when it was read.

    Attributes:
        step: step of the whole job that the checkpoint is of, where the job says it; -1: the save of the same reference tells it.
        blocking_seconds: what reading it took.
    """

    step: Place = -1
    blocking_seconds: Seconds
    bytes: Count = 0
    reference: Text = ""


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


class ShardRead(Record, frozen=True, kw_only=True, tag="ShardRead"):
    """A shard of the data set was read to its end.

    Attributes:
        shard: path or URL, secrets redacted. bytes: 0: not known. seconds: from opening to its end.
    """

    shard: Text
    bytes: Count
    seconds: Seconds


class ShardFailed(Record, frozen=True, kw_only=True, tag="ShardFailed"):
    """Reading a shard of the data set raised: `error` is the type of the exception, its text stays out."""

    shard: Text
    error: Text


class WorkerFailed(Record, frozen=True, kw_only=True, tag="WorkerFailed"):
    """A process of the job is gone without having ended in order; written by who watches it (launcher, node agent), at `time`.

    Attributes:
        failed_rank, failed_writer: whose process it was.
        failed_attempt: its attempt. failed_pid: its process id.
        gone_time: Unix seconds at which it was seen gone. seen_time: at which it was last seen alive.
        step: the last step that it finished.
    """

    reason: Text
    exit_code: ExitCode = 0
    failed_rank: Rank = LAUNCHER_RANK
    failed_writer: Name = ""
    failed_attempt: Count = 0
    failed_pid: Count = 0
    gone_time: UnixSeconds = 0.0
    seen_time: UnixSeconds = 0.0
    step: Count = 0


class WorkerHung(Record, frozen=True, kw_only=True, tag="WorkerHung"):
    """No rank of the node finished a step for much longer than a step takes; written by who watches, once for each hang.

    Attributes:
        failed_rank, failed_writer: the rank that is stuck, as far as it can be told (the others wait); -1: it cannot.
        since_time: Unix seconds of the last finished step. step: its number within the process.
        why: what it was judged by.
    """

    failed_rank: Rank = LAUNCHER_RANK
    failed_writer: Name = ""
    since_time: UnixSeconds
    step: Count = 0
    why: Text = ""


class WorkerRestarted(Record, frozen=True, kw_only=True, tag="WorkerRestarted"):
    """A process of the job was started again; written by who watches it.

    Attributes:
        restarted_rank, restarted_attempt: whose process it is, and its attempt.
    """

    reason: Text = ""
    restarted_rank: Rank = LAUNCHER_RANK
    restarted_attempt: Count = 0


class PreemptionNotice(Record, frozen=True, kw_only=True, tag="PreemptionNotice"):
    """Somebody said that the job's processes on this host will be ended; written by the launcher or the node agent at `time`.

    Attributes:
        source: who said so: `sigterm`, `aws`, `gcp`, `azure`. deadline: Unix seconds of the announced end; 0: not said.
    """

    source: Name
    deadline: UnixSeconds = 0.0


class ShardQuarantined(Record, frozen=True, kw_only=True, tag="ShardQuarantined"):
    """A shard of the data set failed on several ranks or attempts and is on the quarantine list: the job needs a review."""

    shard: Text
    failures: Count
    ranks: list[Count] = []
    attempts: list[Count] = []
    error: Text = ""


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


class ServiceStarted(Record, frozen=True, kw_only=True, tag="ServiceStarted"):
    """A process that serves requests began to record: a server, an engine's worker, or a client. `job` is the service's name.

    Attributes:
        role: whether it answers requests (`server`), works on them (`engine`), or sends them (`client`).
        process_time: Unix seconds at which the operating system started the process; 0: not known.
        model, version: what it serves, as far as it is known by then.
    """

    pid: Count
    role: Literal["server", "engine", "client"] = "server"
    process_time: UnixSeconds = 0.0
    model: Text = ""
    version: Text = ""
    device: Name = "cpu"
    device_name: Name = ""
    gpu_uuid: Name = ""
    pod_uid: Name = ""


class RequestDone(Record, frozen=True, kw_only=True, tag="RequestDone"):
    """One inference request, written when it ended, at `time`; it arrived `wall_seconds` before.

    Attributes:
        request: id of the request, made by who recorded it.
        phase_seconds: by ledger state (`queued`, `prefill`, `decode`, `preempted`, `cold_start`); what they lack of `wall_seconds`
            is unexplained. Empty where nobody said in which state the request was.
        outcome: one of `tachoscope_core.metrics.serving.OUTCOMES`. status: of the HTTP answer; 0: there was none.
        first_token_seconds: from arrival to the first token (TTFT); None: there was none, or it was not seen.
        inter_token_seconds: sum of the times from one token to the next; inter_token_count: how many these are;
            inter_token_max_seconds: the longest. inter_token_buckets: how many are in each bucket of
            `serving_metrics.INTER_TOKEN_BUCKETS`, not cumulative, the last for above all bounds; zeros at the end are left out.
        preemptions: how often it was put back in the queue.
        side: who saw it so: the server, or the client that sent it.
    """

    request: Name
    wall_seconds: Seconds
    phase_seconds: dict[Name, Seconds]
    outcome: Name
    status: Count = 0
    tokens_in: Count = 0
    tokens_out: Count = 0
    model: Text = ""
    version: Text = ""
    first_token_seconds: Seconds | None = None
    inter_token_seconds: Seconds = 0.0
    inter_token_count: Count = 0
    inter_token_max_seconds: Seconds = 0.0
    inter_token_buckets: list[Count] = []
    preemptions: Count = 0
    side: Literal["server", "client"] = "server"


class EngineWindow(Record, frozen=True, kw_only=True, tag="EngineWindow"):
    """What an engine did since its last such record, a second or so; written by the process that it runs in.

    Attributes:
        engine: its name within the process. window_seconds: length of the window, which ends at `monotonic_ns`.
        capacity: most requests that it works on at once; 0: not known.
        state_seconds: by `serving_metrics.ENGINE_STATES`; they sum to `window_seconds`.
        iterations: forward passes. prompt_tokens, generation_tokens: that they computed.
        iteration_seconds: what they took together.
        running_mean, waiting_mean: requests, over the window; None: not said. kv_cache_usage_ratio: at its end; None: not said.
        preemptions: requests put back in the queue.
    """

    engine: Name = "0"
    model: Text = ""
    capacity: Count = 0
    window_seconds: Seconds
    state_seconds: dict[Name, Seconds]
    iterations: Count = 0
    iteration_seconds: Seconds = 0.0
    prompt_tokens: Count = 0
    generation_tokens: Count = 0
    running_mean: Amount | None = None
    waiting_mean: Amount | None = None
    kv_cache_usage_ratio: Amount | None = None
    preemptions: Count = 0


class ServiceEnded(Record, frozen=True, kw_only=True, tag="ServiceEnded"):
    """A process that serves requests ended in order. `in_flight`: requests that it did not finish."""

    in_flight: Count = 0
    dropped_total: Count = 0


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


class JobEnded(Record, frozen=True, kw_only=True, tag="JobEnded"):
    """A process of the job ended in order, or the launcher saw the command end.

    Attributes:
        status: `completed`, `failed`, or `left` (the process ended and cannot say how; the launcher's word decides).
        dropped_total: records that this process could not write.
        lineage: what became known after the process's `JobStarted`, as there.
        loaded: of the launcher: what its processes loaded, by `spool.LOADED`; None: not known.
    """

    status: Literal["completed", "failed", "left"]
    reason: Text = ""
    exit_code: ExitCode | None = None
    steps: Count = 0
    dropped_total: Count = 0
    lineage: dict[Name, Text] = {}
    loaded: list[Name] | None = None


AnyRecord = (
    JobStarted
    | StepDone
    | Heartbeat
    | CheckpointSaved
    | CheckpointManifest
    | CheckpointVerified
    | CheckpointRestored
    | CollectiveDone
    | ShardRead
    | ShardFailed
    | WorkerFailed
    | WorkerHung
    | WorkerRestarted
    | PreemptionNotice
    | ShardQuarantined
    | IntegrityEvent
    | UpdatesApplied
    | ServiceStarted
    | RequestDone
    | EngineWindow
    | ServiceEnded
    | TraceCaptured
    | JobEnded
)

_decoder: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
KINDS = frozenset(cls.__struct_config__.tag for cls in AnyRecord.__args__)


class _Kind(msgspec.Struct):
    kind: str


_kind_decoder = msgspec.json.Decoder(_Kind)


class UnknownKindError(ValueError):
    """The line is a sound record of a kind that this version does not know."""


class MalformedRecordError(ValueError):
    """The line is not a record."""


def decode(line: bytes) -> AnyRecord:
    """Decode one JSON line.

    Raises:
        UnknownKindError: a record of a kind from another version.
        MalformedRecordError: anything else that is not a record, with the field that is wrong.
    """
    if len(line) > MAX_LINE_BYTES:
        raise MalformedRecordError(f"line of {len(line)} bytes, longer than {MAX_LINE_BYTES}")
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            kind = _kind_decoder.decode(line).kind
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise MalformedRecordError(str(error)) from None
        if kind not in KINDS:
            raise UnknownKindError(kind) from None
        raise MalformedRecordError(str(error)) from None


_encoder = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """Encode a record as one JSON line, newline included; what is not Unicode in its texts, such as in a path, becomes `?`.

    Raises:
        TypeError, ValueError, OverflowError: a field holds what is not of its type.
    """
    try:
        return _encoder.encode(record) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(_unicode(msgspec.to_builtins(record))) + b"\n"


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_unicode(key): _unicode(one) for key, one in value.items()}
    return [_unicode(one) for one in value] if isinstance(value, list | tuple) else value
