"""What users import in a job or a server: `watch`, `step`, `phase`, `service` and so on. Light: imports neither torch nor pandas.

    import tachoscope

    with tachoscope.watch(job="resnet"):
        train()

No call raises a fault of the probe, or of what it is given to record: that is one line on stderr. Numbers may be those of numpy or
torch, on the host. What raises is a mistake in the code itself that each run would show, such as a phase that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

from tachoscope import arguments
from tachoscope.checkpoints.due import CheckpointDue
from tachoscope.guard import QUIETLY
from tachoscope.preemption.poll import NOTICES
from tachoscope_core.records.records import PHASES, Phase

if TYPE_CHECKING:
    from tachoscope.serving.asgi_middleware import ServingMiddleware
    from tachoscope.serving.request import Request
    from tachoscope.serving.service import Service
    from tachoscope.training.probe import Probe

    __version__: str

__all__ = [
    "ServingMiddleware",
    "__version__",
    "checkpoint_due",
    "current_request",
    "describe",
    "integrity",
    "parameters_applied",
    "parameters_read",
    "phase",
    "preempted",
    "quarantined",
    "restored",
    "saved",
    "service",
    "shard",
    "step",
    "watch",
    "without_quarantined",
]

DUE = CheckpointDue(NOTICES)


@contextmanager
def watch(job: str | None = None, *, store: str | None = None) -> Iterator[None]:
    """Watch the training inside the block, explicitly instead of by `tachoscope run`.

    At the end of the block this process's records are put into the store, unless `tachoscope run` will do it. A failure of the
    probe is one line on stderr, never an exception; one of the block passes through.

    Args:
        job: name that all ranks and attempts of the job share; default: what the scheduler says.
        store: directory or URL; default: `$TACHOSCOPE_STORE`, else the user's data directory.
    """
    started = False
    with QUIETLY:
        from tachoscope import start as auto

        started = auto.start(job)
    try:
        yield
    except BaseException as error:
        with QUIETLY:
            auto.PROBE.failed(error)
        raise
    finally:
        if started:
            with QUIETLY:
                _end_watching(store)


def _end_watching(store: str | None) -> None:
    from tachoscope import start as auto
    from tachoscope.data import shards
    from tachoscope.training import staleness

    auto.PROBE.close()
    shards.RECORDS.close()
    staleness.UPDATES.close()
    if not os.environ.get("TACHOSCOPE_RUN_DIR"):
        from tachoscope.spool.ship import ship_quietly

        ship_quietly(auto.PROBE.directory, store)


def step(*, samples: int = 0, tokens: int = 0) -> None:
    """Say that a training step ends here; works without torch. From the first call on, only these calls end steps.

    Args:
        samples: samples that the step consumed. tokens: tokens that it consumed. 0: not known.
    """
    with QUIETLY:
        probe = _watching()
        if probe is not None and probe.in_watched_thread():
            probe.machine.explicit_step(
                samples=arguments.as_integer(samples, "step(samples)"), tokens=arguments.as_integer(tokens, "step(tokens)")
            )


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Account the time inside the block to a phase of the step, such as `data_wait` for input that is not a `DataLoader`.

    Raises:
        ValueError: no phase of that name; the message lists them.
    """
    if name not in PHASES:
        raise ValueError(f"unknown phase {name!r}; valid phases: {', '.join(PHASES)}")
    entered = False
    with QUIETLY:
        from tachoscope import start as auto

        _watching()
        entered = auto.PROBE.begin_phase(PHASES.index(name))
    try:
        yield
    finally:
        if entered:
            with QUIETLY:
                auto.PROBE.end_phase()


def saved(*, reference: str | os.PathLike[str] = "", seconds: float = 0.0, size_bytes: int = 0) -> None:
    """Say that a checkpoint was saved in a format of the job's own; those of torch, safetensors and frameworks are seen anyway.

    Args:
        reference: path or URL of the file or folder, the same as `restored` will be given; a file's checksum is taken.
        seconds: how long training stood still for it. size_bytes: what this process wrote; 0: the size of the file, if it is one.
    """
    with QUIETLY:
        from tachoscope.checkpoints.checkpoint_name import recordable

        probe = _watching()
        if probe is not None:
            probe.checkpoints.said_saved(
                reference=recordable(reference, "saved(reference)"),
                seconds=arguments.as_number(seconds, "saved(seconds)"),
                size_bytes=arguments.as_integer(size_bytes, "saved(size_bytes)"),
            )


def restored(*, step: int = -1, reference: str | os.PathLike[str] = "", seconds: float = 0.0) -> None:
    """Say that this process continues from a checkpoint of the job's own format, or at which step from one of any.

    Args:
        step: the step of the whole job that it is of, over all attempts; -1: the save of the same reference tells it.
        reference: path or URL of the file or folder. seconds: how long reading it took.
    """
    with QUIETLY:
        from tachoscope.checkpoints.checkpoint_name import recordable, reference_of

        probe = _watching()
        if probe is not None:
            probe.checkpoints.said_restored(
                reference=reference_of(recordable(reference, "restored(reference)")),
                seconds=arguments.as_number(seconds, "restored(seconds)"),
                step=arguments.as_integer(step, "restored(step)", default=-1, least=-1),
            )


def describe(
    *,
    hyperparameters: Mapping[str, Any] | None = None,
    data_snapshot: str | None = None,
    image: str | None = None,
    parents: Sequence[str | os.PathLike[str]] | None = None,
    layout: Mapping[str, int] | None = None,
) -> None:
    """Say what this run is made of, best before the first step; reports show it, secrets redacted. What is left out stays.

    Args:
        hyperparameters: recorded as JSON, with a hash by which runs of the same are found.
        data_snapshot: version of the data set, such as a commit or a date; default: `$TACHOSCOPE_DATA_SNAPSHOT`.
        image: container image; default: `$TACHOSCOPE_IMAGE`, else what Slurm or Apptainer say.
        parents: references of the checkpoints that the run begins from, beside those that it was seen to load.
        layout: sizes of the parallel dimensions, outermost first, such as `{"pp": 4, "dp": 2}`; default: `$TACHOSCOPE_LAYOUT`.

    Raises:
        ValueError: the layout has another dimension than pp, dp, tp, cp and ep, or something that is not a size.
    """
    mistake: ValueError | None = None
    with QUIETLY:
        from tachoscope.lineage import collect as lineage
        from tachoscope.training import parallel_layout as parallel

        try:
            if layout is not None:
                parallel.describe(layout)
        except ValueError as error:
            mistake = error
        lineage.describe(hyperparameters=hyperparameters, data_snapshot=data_snapshot, image=image, parents=parents)
    if mistake is not None:
        raise mistake


def integrity(model: Any, *, every: int = 100, replicas: Sequence[int] | None = None) -> None:
    """Check every so many steps that loss, gradients and parameters are finite, and record a checksum that tells replicas apart.

    Called on every rank, after the model is built. `$TACHOSCOPE_INTEGRITY_EVERY` does the same without it, for each model in
    `DistributedDataParallel`, else for the optimizer's parameters. A check reads all parameters and gradients once and waits for
    the device; see docs/concepts/probe.md for what it costs.

    Args:
        model: a `torch.nn.Module`; it is not kept alive.
        every: steps from one check to the next.
        replicas: global ranks that hold the same parameters; default: those of `DistributedDataParallel`, none for other models.

    Raises:
        ValueError: `every` is less than 1.
    """
    if every < 1:
        raise ValueError(f"every={every} is not a number of steps: use 1 or more")
    with QUIETLY:
        from tachoscope.training.integrity import Checks

        probe = _watching()
        if probe is not None:
            checks = probe.integrity
            if checks is None or checks.every != every:
                checks = Checks(every)
                probe.check_integrity(checks)
            checks.add(model, replicas)


def parameters_read(version: int) -> None:
    """Say that this thread read parameters that others update, from which it will compute an update: asynchronous training.

    Args:
        version: how many updates had been applied to them.
    """
    with QUIETLY:
        from tachoscope.training.staleness import UPDATES

        UPDATES.read(arguments.as_integer(version, "parameters_read(version)"))


def parameters_applied(version: int, *, read: int | None = None, bound: int | None = None) -> None:
    """Say that an update was applied: by the worker, when it learns of it, or by the parameter server, but only by one of them.

    Its staleness is `version` less the version that was read: 0 where nobody else updated the parameters in between. It is counted,
    and written every second.

    Args:
        version: how many updates had been applied before this one.
        read: the version that it was computed from, where another process read it; default: what this thread read last.
        bound: the largest staleness that the job allows; reports hold the measured one against it.
    """
    with QUIETLY:
        from tachoscope.training.staleness import UPDATES

        UPDATES.applied(
            arguments.as_integer(version, "parameters_applied(version)"),
            read=None if read is None else arguments.as_integer(read, "parameters_applied(read)"),
            bound=None if bound is None else arguments.as_integer(bound, "parameters_applied(bound)"),
        )


def preempted() -> bool:
    """Return whether somebody announced that this process will be ended: save a checkpoint now, and leave the loop.

    True after `tachoscope run` or the node agent saw SIGTERM or a cloud's notice; without either of them it is False. Cheap enough
    for each step: it looks twice a second at most.
    """
    with QUIETLY:
        return NOTICES.ask_for_job()
    return False


def checkpoint_due(step: int, *, every: int) -> bool:
    """Return whether to save a checkpoint at this step: every `every` steps, unless the job's supervisor wants another interval.

        if tachoscope.checkpoint_due(step, every=500):
            save()

    Ranks that ask at the same steps get the same answer. A job of `tachoscope submit` may save less often while storage is slow,
    and saves at once after a notice of preemption; see docs/guides/training-jobs.md. Cheap enough for each step.

    Args:
        step: of the whole job, the same on all ranks. every: steps between checkpoints.

    Raises:
        ValueError: `every` is less than 1.
    """
    if every < 1:
        raise ValueError(f"every={every} is not a number of steps: use 1 or more")
    with QUIETLY:
        return DUE.ask(step, every)
    return step % every == 0


def _watching() -> Probe | None:
    """Return the probe if this process is watched; in a run that never imports torch it starts here."""
    from tachoscope import start as auto

    if not auto.PROBE.on and os.environ.get("TACHOSCOPE_RUN_DIR"):
        auto.start()
    return auto.PROBE if auto.PROBE.on else None


def shard(name: str | os.PathLike[str], *, size_bytes: int = 0) -> AbstractContextManager[object]:
    """Return the context in which a shard of the data set is read, by the training process or by a loader worker.

        with tachoscope.shard(path):
            samples = read(path)

    Left in order, the shard was read to its end; an exception that can be the shard's fault is recorded as its failure, by
    type, and passes through. Only reading belongs into the block: what else raises there would be blamed on the shard.

    Args:
        name: path or URL; of a URL user, password and query are not recorded. size_bytes: 0: that of the file, if it is one.
    """
    with QUIETLY:
        from tachoscope.data.shards import Reading

        return Reading(name, size_bytes=size_bytes)
    return nullcontext()


def quarantined() -> frozenset[str]:
    """Return the shards that failed on several ranks or attempts of this job, by the name under which they were recorded.

    Read from `$TACHOSCOPE_QUARANTINE`, else from beside the spool, again every two seconds at most: cheap enough for each shard.
    Empty where nobody watches the job.
    """
    with QUIETLY:
        from tachoscope.data.shards import LIST

        return LIST.names()
    return frozenset()


def without_quarantined(shards: Iterable[str]) -> list[str]:
    """Return the paths and URLs that are not quarantined, in their order.

    Raises:
        TypeError: a single string was given, such as `part-{000..099}.tar`, which is to be expanded first.
    """
    if isinstance(shards, str):
        raise TypeError(f"{shards!r} is one string, not a list of shards: expand it first, with list(braceexpand.braceexpand(...))")
    given = list(shards)
    with QUIETLY:
        from tachoscope_core.storage.shard_quarantine import without_shards

        return without_shards(given, quarantined())
    return given


def service(name: str, *, model: str = "", version: str = "", role: Literal["server", "engine", "client"] = "server") -> Service:
    """Return the service of that name in this process: what records its requests and engines.

        service = tachoscope.service("chat", model="tiny-llama")
        with service.request(tokens_in=57) as request, request.phase("prefill"):
            ...

    Asked for again it is the same one. Processes that share a name, such as the workers of a server, are one service. Records are
    put into the store when the process ends, unless an agent or `tachoscope run` does it. A failure of the probe is one line on
    stderr, never an exception.

    Args:
        name: the job's name in the store, and the label of its metrics. model, version: what it serves.
        role: whether this process answers requests (`server`), works on them for another (`engine`), or sends them (`client`).

    Raises:
        ValueError: the name cannot be used, or there is no such role.
    """
    from tachoscope.serving import service as serving

    return serving.service(name, model=model, version=version, role=role)


def current_request() -> Request:
    """Return the request that `ServingMiddleware` made for the calling task; elsewhere one that is not recorded."""
    from tachoscope.serving.request import CURRENT, Request

    return CURRENT.get() or Request(None)


def __getattr__(name: str) -> Any:
    """Import the middleware, and what tells the version, only where they are asked for: each process of a job imports this."""
    if name == "__version__":
        return _version()
    if name != "ServingMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tachoscope.serving.asgi_middleware import ServingMiddleware

    return ServingMiddleware


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tachoscope")
    except PackageNotFoundError:  # run from a source tree
        return "0"
