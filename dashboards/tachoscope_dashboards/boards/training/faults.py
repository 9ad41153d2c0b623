"""What stops a training job or spoils its work: ranks that hang or fail, wrong numbers, checkpoints, GPUs that are not used."""

from __future__ import annotations

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared.expressions import JOB_KEPT, KEPT
from tachoscope_dashboards.boards.training.expressions import JOB, NO_JOB, RANKS, mean, quantile, share
from tachoscope_dashboards.parts import links, slo_objectives
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import (
    ColorStep,
    Link,
    PanelText,
    PlacedPanel,
    Query,
    bars,
    happened,
    happenings,
    heatmap,
    stat,
    timeseries,
)

_AGE, _ACTIVE = "training-checkpoint-age", "gpu-efficiency"
_VERIFIED = f"time() - min(tachoscope_checkpoint_verified_timestamp_seconds{{{JOB}}})"
_SM = "tachoscope_job_sm_active_ratio"
_NO_CHECKPOINT = "no checkpoint was saved in this time"
_NO_GPM = "its GPUs do not tell: only those from Hopper on do"
_STATES = {"working": palette.OK, "silent": palette.WARN, "hung": palette.BAD}


def status_panels(policy: Policy) -> list[PlacedPanel]:
    """Return the numbers that say whether it runs at all, what a failure would cost, and whether its GPUs are used."""
    return [*_running(policy), _sound(policy), _active(policy)]


def _running(policy: Policy) -> list[PlacedPanel]:
    return [
        stat(
            "Ranks",
            PanelText("Ranks that have not left.", "all that were started", "see which are missing below", NO_JOB),
            Query(f"sum(tachoscope_job_ranks{{{JOB}}})"),
            unit="short",
            width=3,
            links=[runbook(policy, "TrainingNoProgress")],
        ),
        stat(
            "Hung, silent",
            PanelText(
                "Ranks that do no step for far longer than one takes, or wrote nothing for a minute.",
                "0",
                "all at once: a collective hangs. A few: their processes or their node",
                NO_JOB,
            ),
            Query(f'sum(tachoscope_job_ranks{{{JOB}, state=~"hung|silent"}})'),
            unit="short",
            width=3,
            steps=(ColorStep(1.0, palette.BAD),),
            links=[runbook(policy, "CollectiveHang"), runbook(policy, "hang")],
        ),
        stat(
            "Restarts",
            PanelText(
                "Attempts within the time range that followed another one.",
                "0",
                "the row of faults says on which host processes failed",
                NO_JOB,
            ),
            Query(f"round(max(increase(tachoscope_restarts_total{{{JOB}}}[$__range])))", instant=True),
            unit="short",
            width=3,
            steps=(ColorStep(1.0, palette.WARN),),
            links=[runbook(policy, "TrainingWorkersFailing")],
        ),
    ]


def _sound(policy: Policy) -> PlacedPanel:
    return stat(
        "Checkpoint",
        PanelText(
            "Age of the newest checkpoint that was read back and found sound: what a failure now would undo.",
            f"at most {slo_objectives.bound(_AGE) / 60:g} minutes, as the objective asks",
            "see the row of checkpoints: none saved, or none verified?",
            "none was read back yet",
        ),
        Query(_VERIFIED),
        unit="s",
        width=3,
        steps=slo_objectives.above(_AGE),
        links=[runbook(policy, slo_objectives.objective(_AGE).alert), runbook(policy, "TrainingCheckpointTooOld")],
    )


def _active(policy: Policy) -> PlacedPanel:
    return stat(
        "SM activity",
        PanelText(
            "Share of the cycles in which the multiprocessors of its GPUs are active, the mean of all while it does steps.",
            f"{slo_objectives.bound(_ACTIVE):.0%} or more",
            "low though the ledger says compute: small kernels, small batches, or a host that does not keep up",
            _NO_GPM,
        ),
        Query(mean(_SM)),
        unit="percentunit",
        width=3,
        steps=slo_objectives.colors_below(_ACTIVE),
        links=[runbook(policy, slo_objectives.objective(_ACTIVE).alert)],
    )


def of_ranks(policy: Policy) -> list[PlacedPanel]:
    """Return what happens to its ranks, and to its numbers."""
    return [*_states(policy), *_failures(policy)]


def _states(policy: Policy) -> list[PlacedPanel]:
    return [
        timeseries(
            "Ranks by state",
            PanelText(
                "Ranks that have not left, by what they do: working, silent for a minute, or hung.",
                "all are working, and their number does not change",
                "hung: all wait in a collective for one that does not come. Silent: the process is gone or stopped",
                NO_JOB,
            ),
            [Query(f"sum by (state) (tachoscope_job_ranks{{{JOB}}})", "{{state}}")],
            unit="short",
            stacked=True,
            colors=_STATES,
            links=[runbook(policy, "CollectiveHang"), runbook(policy, "TrainingNoProgress")],
        ),
        bars(
            "Since the last record",
            PanelText(
                "Time since a rank last wrote anything: the ten that are silent for longest.",
                "seconds",
                "a rank that is silent for longer than the others is where to look first: its process, its node, its GPU",
                NO_JOB,
            ),
            Query(f"topk(10, max by (rank) (tachoscope_heartbeat_age_seconds{{{RANKS}}}))", "rank {{rank}}"),
            unit="s",
            width=12,
            links=[runbook(policy, "TrainingNoProgress")],
        ),
    ]


def _failures(policy: Policy) -> list[PlacedPanel]:
    return [
        happenings(
            "Processes that fail, by host",
            PanelText(
                "Processes of the job that failed, by the host on which they ran.",
                "none",
                "the same host again and again: take it out. Others each time: the code, the data or the memory",
                NO_JOB,
            ),
            [Query(f"sum by (host) (rate(tachoscope_worker_failures_total{{{JOB}}}[$__rate_interval]))", "{{host}}")],
            links=[runbook(policy, "TrainingWorkersFailing"), runbook(policy, "TrainingJobStuckInRecovery")],
        ),
        happenings(
            "Wrong numbers",
            PanelText(
                "Checked steps in which numbers were wrong, by kind: not finite in loss, gradients or parameters, or replicas that "
                "no longer agree (checksum).",
                "none",
                "checksum: a device computes wrong numbers. Others: the data, the learning rate, or a device",
                "this job is not checked",
            ),
            [Query(f"sum by (kind) (rate(tachoscope_integrity_events_total{{{JOB}}}[$__rate_interval]))", "{{kind}}")],
            links=[runbook(policy, "IntegrityEvent"), runbook(policy, "IntegrityEventRepeated")],
        ),
    ]


def checkpoints(policy: Policy) -> list[PlacedPanel]:
    """Return what its checkpoints cost, and what they would save."""
    storage = links.board("storage", "Checkpoints and recovery", JOB_KEPT)
    return [
        timeseries(
            "Time lost to checkpoints",
            PanelText(
                "Share of the job's time in which training stands still for a checkpoint.",
                "a few percent at most",
                "save asynchronously, less often, or to faster storage; the runbook has the best interval",
                NO_JOB,
            ),
            [Query(share("checkpoint"), "checkpoint")],
            unit="percentunit",
            width=8,
            colors={"checkpoint": palette.STATE_COLORS["checkpoint"]},
            links=[runbook(policy, "checkpoint_stall"), runbook(policy, "CheckpointStorageSlow"), storage],
        ),
        timeseries(
            "Age of checkpoints",
            PanelText(
                "Time since the last checkpoint was saved, and since the newest one that was read back and found sound.",
                "saw-teeth below the line, which the objective draws for sound ones",
                "only the sound one grows: nothing reads them back, or they are corrupt. Both grow: saving fails",
                "none was saved",
            ),
            [Query(f"max(tachoscope_checkpoint_age_seconds{{{JOB}}})", "saved"), Query(_VERIFIED, "sound")],
            unit="s",
            width=8,
            steps=slo_objectives.above(_AGE),
            links=[runbook(policy, slo_objectives.objective(_AGE).alert), runbook(policy, "TrainingCheckpointCorrupt"), storage],
        ),
        *_lengths(policy),
    ]


def _lengths(policy: Policy) -> list[PlacedPanel]:
    kinds = (
        ("Blocking", "training stands still for", "save asynchronously, or to faster storage"),
        ("In the background", "goes on beside training for", "longer than the interval: the next one waits for it"),
    )
    return [
        stat(
            f"{title}, each",
            PanelText(
                f"What a checkpoint {does}: the mean of those in the time range.",
                "seconds, and the same as yesterday",
                otherwise,
                _NO_CHECKPOINT,
            ),
            Query(mean(f"tachoscope_checkpoint_{name}_seconds", "$__range"), instant=True),
            unit="s",
            height=8,
            links=[runbook(policy, "CheckpointStorageSlow")],
        )
        for name, (title, does, otherwise) in zip(("blocking", "background"), kinds, strict=True)
    ]


def gpus(policy: Policy) -> list[PlacedPanel]:
    """Return how busy its GPUs are."""
    node = links.board("gpu-node", "Nodes and GPUs", KEPT)
    return [_activity(policy, node), _looks(policy, node)]


def _activity(policy: Policy, node: Link) -> PlacedPanel:
    bound = slo_objectives.bound(_ACTIVE)
    return timeseries(
        "SM activity of its GPUs",
        PanelText(
            "Share of the cycles in which the multiprocessors of its GPUs are active, at the looks of each node's agent while "
            "the job does steps: the mean, and what nine of ten looks exceed.",
            f"{bound:.0%} or more, and both lines close together",
            "a low mean: the job, see the ledger. A low second line alone: some GPUs or some phases, see the map beside",
            _NO_GPM,
        ),
        [Query(mean(_SM), "mean"), Query(quantile(0.1, _SM), "nine of ten exceed")],
        unit="percentunit",
        maximum=1.0,
        steps=slo_objectives.colors_below(_ACTIVE),
        links=[runbook(policy, slo_objectives.objective(_ACTIVE).alert), runbook(policy, "GpuUnderused"), node],
    )


def _looks(policy: Policy, node: Link) -> PlacedPanel:
    return heatmap(
        "Samples of its GPUs by SM activity",
        PanelText(
            "How many looks found an SM activity within each band, over time.",
            "one band at the top",
            "two bands: some GPUs do less than others, or phases alternate. A band at the bottom: GPUs that do nothing",
            _NO_GPM,
        ),
        Query(happened(f"sum by (le) (rate({_SM}_bucket{{{JOB}}}[$__rate_interval]))"), "{{le}}"),
        unit="percentunit",
        width=12,
        height=8,
        is_histogram=True,
        links=[runbook(policy, "GpuUnderused"), node],
    )
