"""Panels about checkpoints: their age, what they cost, and whether they would restore. Each takes the matchers of the jobs."""

from __future__ import annotations

from typing import get_args

from tachoscope_alerts.spec.policy import Policy
from tachoscope_core.checkpoints.verification import Result
from tachoscope_core.report import palette
from tachoscope_dashboards.boards.shared import identity
from tachoscope_dashboards.boards.shared.expressions import JOBS_KEPT, RATE, WHOLE, attained, how_many
from tachoscope_dashboards.parts import links
from tachoscope_dashboards.parts.links import runbook
from tachoscope_dashboards.parts.panels import (
    ColorStep,
    Column,
    Link,
    PanelText,
    PlacedPanel,
    Query,
    Unit,
    happenings,
    stat,
    table,
    timeseries,
)
from tachoscope_dashboards.parts.slo_objectives import above, bound
from tachoscope_dashboards.parts.variables import CHOSEN_PLACE

AGE = "training-checkpoint-age"
NO_JOB = "no job runs"
_UNREAD = "nothing was saved, or checkpoints are not read back"
_VERIFICATIONS = "tachoscope_checkpoint_verifications_total"
THIS_JOB = links.board("training", "This job", identity.job_of_row(JOBS_KEPT, "${__data.fields.Job}"))
_CHOSEN = f'{CHOSEN_PLACE}, training_job=~"$training_job"'
RESULT_COLORS: dict[str, str] = {
    "sound": palette.OK,
    "corrupt": palette.BAD,
    "unreachable": palette.WARN,
    "unverifiable": palette.UNKNOWN,
}
_WORDS: dict[Result, str] = {
    "sound": "Sound",
    "corrupt": "Corrupt",
    "unreachable": "Not reached",
    "unverifiable": "Cannot be determined",
}
_ANY = (ColorStep(1.0, palette.WARN),)
_STEPS: dict[Result, tuple[ColorStep, ...]] = {
    "corrupt": (ColorStep(1.0, palette.BAD),),
    "unreachable": (ColorStep(1.0, palette.WARN),),
}


def running(where: str) -> str:
    """Return the jobs that run."""
    return f"max by ({identity.JOB}) (tachoscope_job_active{{{where}}}) == 1"


def verified_age(where: str) -> str:
    """Return by job how old the newest sound checkpoint is; of a job on several nodes the node with the oldest counts."""
    saved = f"min by ({identity.JOB}) (tachoscope_checkpoint_verified_timestamp_seconds{{{where}}})"
    return f"(time() - {saved}) and on ({identity.JOB}) ({running(where)})"


def _saved_age(where: str) -> str:
    return f"min by ({identity.JOB}) (tachoscope_checkpoint_age_seconds{{{where}}}) and on ({identity.JOB}) ({running(where)})"


def _undone(where: str) -> str:
    """Return by job the rank-seconds that a failure now would undo."""
    ranks = f"sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{_CHOSEN}}})"
    return f"({verified_age(where)}) * on ({identity.JOB}) {ranks}"


def at_risk(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how old checkpoints are, and what would be lost."""
    return [
        attained(policy, AGE, "Young enough, 1 day", "see below which jobs have old ones, and why they are not verified"),
        *_numbers(policy, where),
        _jobs(policy, where),
        _age(
            policy,
            ("Age of the newest sound checkpoint", "Time since the newest checkpoint was saved that was read back and found sound"),
            verified_age(where),
            "it rises beside the panel to the right: saves are not read back, or are not sound; else the job does not save",
        ),
        _age(
            policy,
            ("Age of the newest checkpoint", "Time since a job last saved a checkpoint, whether or not it was read back since"),
            _saved_age(where),
            "a job that does not save: its interval is too long, saves fail, or it stands still",
        ),
    ]


def _age(policy: Policy, words: tuple[str, str], expr: str, otherwise: str) -> PlacedPanel:
    title, shows = words
    return timeseries(
        title,
        PanelText(
            f"{shows}, of the 20 jobs with the oldest.", "a saw below the dashed line", otherwise, "no job with a checkpoint runs"
        ),
        [Query(f"topk(20, {expr})", identity.JOB_LEGEND)],
        unit="s",
        steps=above(AGE),
        links=[runbook(policy, "TrainingCheckpointAgeBurn"), runbook(policy, "TrainingCheckpointTooOld")],
    )


def _numbers(policy: Policy, where: str) -> list[PlacedPanel]:
    old, runs = runbook(policy, "TrainingCheckpointTooOld"), running(where)
    unverified = f"({runs}) unless on ({identity.JOB}) tachoscope_checkpoint_verified_timestamp_seconds{{{where}}}"
    return [
        _number(
            ("Oldest", "Age of the newest sound checkpoint of the job where it is oldest."),
            ("as the interval of saves, and the time to read one back", "the table names the job; does it save, and soundly?"),
            Query(f"max({verified_age(where)})"),
            ("s", above(AGE)),
            old,
        ),
        _number(
            ("Jobs with old ones", f"Jobs with their newest sound checkpoint older than {bound(AGE) / 60:g} minutes."),
            ("0", "see the table for whether they do not save, or what they save is not sound"),
            Query(how_many(f"({verified_age(where)}) > {bound(AGE):g}", runs)),
            ("short", _ANY),
            old,
        ),
        _number(
            ("Jobs without any", "Running jobs of which no checkpoint was found sound so far, new ones among them."),
            ("0, but for jobs that have just begun", "the job does not save, or its checkpoints cannot be read: see below"),
            Query(how_many(unverified, runs)),
            ("short", _ANY),
            old,
        ),
        _number(
            ("Work at risk", "Time of ranks that would have to be done again, were all these jobs to fail now."),
            ("half the interval of saves for each rank", "the table names the job"),
            Query(f"sum({_undone(where)})"),
            ("s", ()),
            runbook(policy, "procedure-checkpoint-policy"),
        ),
    ]


def _number(
    shows: tuple[str, str], words: tuple[str, str], query: Query, form: tuple[Unit, tuple[ColorStep, ...]], link: Link
) -> PlacedPanel:
    (title, what), (unit, steps) = shows, form
    return stat(title, PanelText(what, *words, NO_JOB), query, unit=unit, width=5, steps=steps, links=[link])


def _jobs(policy: Policy, where: str) -> PlacedPanel:
    return table(
        "Work at risk, by job",
        PanelText(
            "How old the newest checkpoint of each running job is, and the newest that was found sound; and the time of its ranks "
            "that a failure now would undo.",
            "both ages alike, and below the objective's",
            "only the second is old: it is not read back, or not sound; none at all: the job does not save, or is young",
            NO_JOB,
        ),
        [
            Query(running(where)),
            Query(_saved_age(where)),
            Query(verified_age(where)),
            Query(f"sum by ({identity.JOB}) (job:tachoscope_ranks:sum{{{_CHOSEN}}})"),
            Query(_undone(where)),
        ],
        [
            Column("training_job", "Job", link=THIS_JOB),
            *identity.COLUMNS,
            Column("B", "Newest", unit="s"),
            Column("C", "Newest sound", unit="s", steps=above(AGE)),
            Column("D", "Ranks", unit="short"),
            Column("E", "Work at risk", unit="s"),
        ],
        sort="Work at risk",
        links=[runbook(policy, "TrainingCheckpointTooOld"), runbook(policy, "procedure-checkpoint-policy")],
    )


def cost(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return how long saves take, and what part of the time goes into them."""
    slow = [runbook(policy, "CheckpointStorageSlow"), runbook(policy, "checkpoint_stall")]
    return [
        _seconds(
            "Training stands still for a save",
            PanelText(
                "Mean time that a save blocked training, by job; each save shows as points for about a minute.",
                "seconds; less with saves in the background",
                "longer than hours ago: the storage; long since ever: save in the background, from each rank its own part",
                "no save in this time",
            ),
            ("tachoscope_checkpoint_blocking_seconds", where),
            slow,
        ),
        _seconds(
            "A save goes on in the background",
            PanelText(
                "Mean time from when training went on until a save was complete, by job.",
                "well below the interval of saves, or the next one has to wait",
                "the storage, or the network to it; until it is complete the checkpoint does not count",
                "no save in the background in this time",
            ),
            ("tachoscope_checkpoint_background_seconds", where),
            slow,
        ),
        _standing_still(policy),
    ]


def _standing_still(policy: Policy) -> PlacedPanel:
    state = f"job_state:tachoscope_job_time:rate1m{{{_CHOSEN}"
    share = f'sum by ({identity.JOB}) ({state}, state="checkpoint"}}) / sum by ({identity.JOB}) ({state}}})'
    return timeseries(
        "Ranks that stand still for saves",
        PanelText(
            "Share of the time of its ranks that a job spends on saves, of the 20 with the most, of all namespaces of agents.",
            "a few hundredths at most",
            "save less often (the runbook has the best interval), or in the background",
            NO_JOB,
        ),
        [Query(f"topk(20, {share})", identity.JOB_LEGEND)],
        unit="percentunit",
        width=8,
        links=[runbook(policy, "checkpoint_stall"), runbook(policy, "procedure-checkpoint-policy")],
    )


def _seconds(title: str, about: PanelText, series: tuple[str, str], leads: list[Link]) -> PlacedPanel:
    metric, where = series
    taken, saves = (f"sum by ({identity.JOB}) (rate({metric}_{part}{{{where}}}{RATE}))" for part in ("sum", "count"))
    mean = Query(f"{taken} / ({saves} > 0)", identity.JOB_LEGEND)
    return timeseries(title, about, [mean], unit="s", width=8, style="points", links=leads)


def verified(policy: Policy, where: str) -> list[PlacedPanel]:
    """Return what reading checkpoints back has found."""
    return [_read_back(policy, where), _read_back_by_job(policy, where)]


def _read_back(policy: Policy, where: str) -> PlacedPanel:
    return happenings(
        "Checkpoints read back",
        PanelText(
            "Checkpoints that agents read back, by what they found.",
            "all sound, as often as jobs save",
            "corrupt: what is there is not what was written; unreachable: the agent lacks mount or right",
            _UNREAD,
        ),
        [Query(f"sum by (result) (rate({_VERIFICATIONS}{{{where}}}{RATE}))", "{{result}}")],
        colors=RESULT_COLORS,
        links=[runbook(policy, "TrainingCheckpointCorrupt")],
    )


def _read_back_by_job(policy: Policy, where: str) -> PlacedPanel:
    results = get_args(Result)
    columns = (
        Column(chr(ord("A") + number), _WORDS[one], unit="short", steps=_STEPS.get(one, ())) for number, one in enumerate(results)
    )
    return table(
        "Checkpoints read back, by job",
        PanelText(
            "What was found in the selected time range, by job.",
            "sound ones only",
            "the runbook says which to restore instead, and how to find out whether it is the storage",
            _UNREAD,
        ),
        [
            Query(f'round(sum by ({identity.JOB}) (increase({_VERIFICATIONS}{{{where}, result="{one}"}}{WHOLE})))')
            for one in results
        ],
        [Column("training_job", "Job", link=THIS_JOB), *identity.COLUMNS, *columns],
        width=12,
        height=8,
        sort=_WORDS["corrupt"],
        links=[runbook(policy, "TrainingCheckpointCorrupt"), runbook(policy, "procedure-silent-corruption")],
    )
