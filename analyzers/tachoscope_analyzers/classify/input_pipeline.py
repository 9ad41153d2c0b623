"""Input: is the step waiting for data, and is that storage, computing, too few workers, or one rank?

Told apart by what the loader does while the training thread waits: it computes (preprocess), it waits in a read (fetch), or it
sleeps while cores and disk are idle, which more batches made ahead would hide (workers). See DS-Analyzer's prep and fetch stalls,
https://www.vldb.org/pvldb/vol14/p771-mohan.pdf.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.blamed_ranks import against_others, culprits
from tachoscope_analyzers.findings.evidence import compared, measured
from tachoscope_analyzers.findings.make import SEEN_AT, Candidate
from tachoscope_analyzers.ledger.losses import Losses
from tachoscope_analyzers.records.activity import seen_for_input
from tachoscope_analyzers.records.beat_table import in_order_sum
from tachoscope_analyzers.records.cores import cores_of
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.records.steps import Steps, lines_seen
from tachoscope_core.records.records import LoaderSettings
from tachoscope_core.report.report import Evidence
from tachoscope_core.report.taxonomy import BY_SLUG

LOADER_WORKERS = "loader workers"
"""Signal of the evidence of each finding on input."""
_READING = ("disk", "file", "pipe", "socket")
_READING_IN_PROCESS = (
    *_READING,
    "poll",
)  # a worker polls its index queue when idle; the training thread only what it reads
_NOT_WAITING = ("cpu", "unknown", "lock")  # the sampler itself holds the interpreter lock when it looks


@dataclass(frozen=True, slots=True)
class Loader:
    """What the loaders of the given ranks were seen doing.

    Attributes:
        workers: largest number of worker processes of a rank, 0: loading in the training process.
        busy: CPU seconds over wall seconds of loading, None: not measured.
        reading: share of the waiting samples that were in a read. samples: number of waiting samples.
        idle: of all looks at workers while the training thread waited, the share at which one waited for work itself, or for an
            answer of the network (both `poll`); None: no workers, or too few looks.
        settings: of the loader that was seen last, None: the probe did not say.
    """

    workers: int
    busy: float | None
    reading: float
    samples: int
    kinds: Counter[str]
    idle: float | None = None
    settings: LoaderSettings | None = None


def observe(job: JobRecords, steps: Steps, ranks: list[int]) -> Loader:
    """Sum up what some ranks' loaders were seen doing: by the heartbeats, and by the training thread's own CPU clock."""
    writers = {writer for writer, rank in zip(steps.writers, steps.ranks, strict=True) if rank in ranks}
    beats = job.heartbeats.of_writers(writers)
    workers = int(beats.most("workers"))
    kinds = beats.samples("wait_samples", "data_wait")
    kinds.update(seen_for_input(beats))
    if workers:
        cpu, wall = (in_order_sum(np.maximum(beats.signal(name), 0.0)) for name in ("worker_cpu_seconds", "worker_seconds"))
        busy = cpu / wall if wall else None
    else:
        columns = [steps.ranks.index(rank) for rank in ranks]
        ratio = float(steps.data_cpu[:, columns].sum() / max(steps.own["data_wait"][:, columns].sum(), 1e-12))
        told = bool(beats.has("workers").any())  # else workers may compute where this thread does not
        busy = None if np.isnan(ratio) or not (told or ratio >= threshold("loader_busy_ratio")) else ratio
    waiting = {kind: count for kind, count in kinds.items() if kind not in _NOT_WAITING}
    waits = sum(waiting.values())
    reading = sum(waiting.get(kind, 0) for kind in (_READING if workers else _READING_IN_PROCESS))
    return Loader(
        workers,
        busy,
        reading / waits if waits else 0.0,
        waits,
        kinds,
        kinds["poll"] / kinds.total() if workers and kinds.total() >= threshold("minimum_samples") else None,
        next((loader for code in reversed(beats.column("seen").tolist()) if (loader := beats.seen[code].loader) is not None), None),
    )


def classify(loader: Loader) -> tuple[str, float, tuple[str, float]]:
    """Return the class of an input stall, how certain it is (0 to 1), and the runner-up with its margin."""
    if loader.busy is None:
        return "unknown", 0.5, ("input_fetch", 0.0)
    busy_margin = loader.busy - threshold("loader_busy_ratio")
    if busy_margin >= 0:
        return "input_preprocess", _certainty(busy_margin), ("input_workers", busy_margin)
    if loader.samples < threshold("minimum_samples"):
        return "unknown", 0.5, ("input_workers", 0.0)
    read_margin = loader.reading - threshold("fetch_sample_ratio")
    certainty = _certainty(min(-busy_margin, abs(read_margin))) * loader.samples / (loader.samples + 2)
    if read_margin >= 0:
        return "input_fetch", certainty, ("input_workers", read_margin)
    return "input_workers", certainty, ("input_fetch", -read_margin)


def _certainty(margin: float) -> float:
    """Return 0.5 on the threshold and 1 at the signal's maximum (thresholds are one half)."""
    return min(1.0, 0.5 + 2 * margin)


def candidates(job: JobRecords, steps: Steps, losses: Losses) -> list[Candidate]:
    """Return what the step loses to input that all ranks wait for, and to that of one rank."""
    found = []
    common, excess = losses.common["data_wait"], losses.excess["data_wait"]
    if _no_loader_keeps_up(job, steps):
        common, excess = common + excess.sum(axis=1), 0.0 * excess
    if common.any():
        loader = observe(job, steps, steps.ranks)
        slug, certainty, alternative = classify(loader)
        if 2 * len(steps.ranks) <= steps.world_size:  # of the others nothing is known: it may be the input of these alone
            slug, certainty, alternative = "unknown", 0.5, (slug, 0.0) if slug != "unknown" else alternative
        evidence = _evidence(loader, job, steps, steps.ranks)
        found.append(Candidate(slug, common, "all", evidence, certainty, alternative, action=_action(slug, loader)))
    if excess.any():
        who = culprits(excess, steps.ranks)
        ranks = steps.ranks if who.ranks == "all" else who.ranks
        loader = observe(job, steps, ranks)
        evidence = [
            against_others("data wait of the late rank", steps.own["data_wait"], ranks, steps.ranks, ">"),
            *_evidence(loader, job, steps, ranks),
        ]
        found.append(Candidate("input_straggler", excess.sum(axis=1), who.ranks, evidence))
    if losses.common["host_to_device"].any() or losses.excess["host_to_device"].any():
        copies = losses.common["host_to_device"] + losses.excess["host_to_device"].sum(axis=1)
        found.append(Candidate("h2d_copy", copies, "all", []))
    return found


def _no_loader_keeps_up(job: JobRecords, steps: Steps) -> bool:
    """Return whether the worker processes of every rank are too slow for the step.

    Batches then come at the workers' pace, and which rank waits longer for its own is only which loader began later: were that one
    faster, the step would last as long for the others'. A loader that keeps up has its batch ready, and its rank does not wait.
    """
    with_workers = {writer for writer, beats in job.heartbeats.by_writer().items() if beats.most("workers") > 0}
    if not with_workers.issuperset(steps.writers):
        return False  # a rank that loads in its own process waits for its own loading, however fast
    waits = steps.own["data_wait"].mean(axis=0)
    return bool(waits.min() >= threshold("starved_rank_share") * steps.wall.mean())


def _evidence(loader: Loader, job: JobRecords, steps: Steps, ranks: list[int]) -> list[Evidence]:
    rows = [measured(LOADER_WORKERS, loader.workers, "per rank", "heartbeats")]
    if loader.busy is not None:
        rows.append(
            compared(
                "CPU used by the loader",
                loader.busy,
                threshold("loader_busy_ratio"),
                "ratio",
                "step records" if loader.workers == 0 else "heartbeats",
            )
        )
    if loader.samples:
        seen = ", ".join(f"{kind} {count}" for kind, count in loader.kinds.most_common(3))
        rows.append(
            compared(
                "loader seen waiting in a read",
                loader.reading,
                threshold("fetch_sample_ratio"),
                "ratio",
                f"{loader.samples} waiting samples ({seen})",
            )
        )
    if loader.idle is not None and loader.idle >= threshold("idle_workers_ratio"):
        rows.append(
            Evidence(
                signal="loader workers waiting for work, or for the network",
                value=loader.idle,
                threshold=threshold("idle_workers_ratio"),
                comparison=">=",
                unit="ratio",
                source=f"{loader.kinds.total()} samples while training waits",
            )
        )
    cores = cores_of(job, steps)
    if cores is not None:
        rows.append(measured("idle cores of the host", cores.idle, "cores", "heartbeats"))
    rows.extend(seen_lines(job, steps, "data_wait", ranks))
    return rows


def seen_lines(job: JobRecords, steps: Steps, phase: str, ranks: list[int]) -> list[Evidence]:
    """Return the line of user code at which the thread was seen most often in a phase, as evidence, if one was."""
    lines = lines_seen(job, steps, phase, ranks)
    if not lines:
        return []
    line, count = lines.most_common(1)[0]
    return [measured(f"{SEEN_AT}{line}", count / lines.total(), "ratio", f"{lines.total()} stack samples in {phase}")]


def _action(slug: str, loader: Loader) -> str:
    if slug in {"input_workers", "input_preprocess"} and loader.workers == 0:
        beside = "prepare the input in parallel with the training, in a Dataset that a DataLoader(num_workers=2 or more) reads"
        return f"{beside}; then {BY_SLUG[slug].fix}"
    return ""
