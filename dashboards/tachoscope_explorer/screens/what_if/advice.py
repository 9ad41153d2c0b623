"""Part of the page What if: the inputs of the advice with their curves, preset from what was measured."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from tachoscope_analyzers.advice.exchange import batch_seconds
from tachoscope_analyzers.advice.interval import assumed_between_failures
from tachoscope_analyzers.advice.workers import Input, expected_step, needed_workers
from tachoscope_analyzers.checkpoint_policy.cost_model import DALY, VAIDYA, SaveCost, best_interval, useful_ratio, young_interval
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.job import advice_inputs as measured
from tachoscope_analyzers.job.advice_curves import enough_batch, loss_by_interval, seconds_by_batch, steps_with_workers
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.palette import OK
from tachoscope_explorer.figures.what_if import Axis, NamedPoint, curve
from tachoscope_explorer.page.context import Context
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import chart
from tachoscope_explorer.sources import cache as sources
from tachoscope_explorer.sources import compared_runs
from tachoscope_show.text.units import counted, duration, percent, seconds, size

_MILLISECONDS = 1e3
_HOUR = 3600.0


def show(context: Context, view: View) -> None:
    """Show the curves.

    Raises:
        TachoscopeError: the job has no steps.
    """
    url = context.settings.store_url
    workers, saves, batch, exchange = st.tabs(["Loader workers", "Checkpoint interval", "Batch", "Batches an exchange"])
    form, decided = _Form(view.job), compared_runs.decided(url, view.job)
    records = sources.records(url, view.job)
    with workers:
        found = measured.of_loading(records, decided.steps, decided.losses, sources.report(url, view.job).findings)
        _workers(form, found, decided.losses.mean_step)
    with saves:
        _saves(form, _checkpoints(url, view.job, decided.losses.mean_step), decided.losses.mean_step)
    with batch:
        _batch(form, measured.of_batch(records, decided.steps, decided.losses))
    with exchange:
        exposed = float(decided.losses.transfer.mean()) if decided.steps.transfer_measured else None
        _exchange(form, decided.losses.mean_step, exposed)


@dataclass(frozen=True, slots=True)
class _Form:
    """Inputs of one job: those of another begin with what was measured there."""

    job: str

    def number(
        self,
        label: str,
        measured_: float | None,
        key: str,
        unit: str,
        *,
        assumed: float | None = None,
        least: float = 0.0,
        help_: str = "",
    ) -> float:
        """Ask for a number that was measured, or is assumed, or has to be typed; the label says which."""
        known = "measured" if measured_ is not None else "not measured: type it" if assumed is None else "not measured: assumed"
        preset = assumed if measured_ is None else float(f"{measured_:.4g}")
        return st.number_input(
            f"{label}, {unit} ({known})",
            min_value=least,
            value=max(preset or least, least),
            key=f"advice-{key}-{self.job}",
            help=help_ or None,
            format="%g",
        )

    def most(self, label: str, preset: int, key: str, least: int = 2) -> int:
        """Ask how far the curve shall reach."""
        return st.slider(label, least, 64, preset, key=f"advice-{key}-{self.job}")


def _workers(form: _Form, found: measured.Loading | None, step: float) -> None:
    if found is None:
        st.info("No `DataLoader` was seen in this run, so what its input costs is not measured. Type it to see the curve.")
    left, right = st.columns([1, 2])
    with left:
        asked, most = _loader(form, found.input if found else None, step)
    steps = steps_with_workers(asked, most)
    goal = expected_step(asked)
    enough = needed_workers(asked.making, goal) if goal > 0 and asked.making > 0 else 0
    marks = []
    if found is not None:
        marks.append(NamedPoint(f"now: {counted(asked.workers, 'worker')}, measured", asked.workers, step * _MILLISECONDS))
    if 0 < enough <= most:
        marks.append(NamedPoint(f"advised: {counted(enough, 'worker')}", enough, steps[enough] * _MILLISECONDS, OK))
    with right:
        axes = Axis("loader workers a rank"), Axis("ms a step")
        drawn = curve(list(range(most + 1)), [one * _MILLISECONDS for one in steps], axes, marks, steps=True)
        chart(drawn, "advice-workers", height=340)
    if found is not None and found.input.step - found.input.rest < threshold("warning_share") * found.input.step:
        waits = percent(1 - found.input.rest / found.input.step)
        st.caption(f"Only {waits} of the step is waiting for data: other workers change little.")
    if found is not None and found.at_most:
        st.caption("The workers keep up now: what a step's input takes is at most workers x step, and the curve is an upper bound.")
    st.caption(
        "step = max(rest, making / workers), and rest + making without workers; enough are ceil(making / step) and a spare. "
        "Bounds of operational analysis: [Denning and Buzen (1978)](https://doi.org/10.1145/356733.356735)."
    )


def _loader(form: _Form, given: Input | None, step: float) -> tuple[Input, int]:
    """Ask what input costs, and up to how many workers the curve goes."""
    bound = "With workers: at most workers x step, since they may keep up with more."
    making = form.number(
        "Making a step's input in one process", _milliseconds(given.making if given else None), "making", "ms", help_=bound
    )
    rest = form.number("The rest of the step", _milliseconds(given.rest if given else None), "rest", "ms", least=0.001)
    most = form.most("Workers a rank, up to", 16, "most-workers", least=1)
    cores = given.cores if given else None
    said = "Not measured here: idle cores are read by the probe's heartbeats."
    if cores is not None:
        said = f"{cores.used:.2g} cores are used by this job, {cores.idle:.2g} are idle."
    key = f"advice-cores-{form.job}"
    bounded = st.checkbox("Within the cores of the host", value=cores is not None, disabled=cores is None, key=key, help=said)
    asked = Input(
        step=step,
        rest=rest / _MILLISECONDS,
        making=making / _MILLISECONDS,
        workers=given.workers if given else 0,
        computing=given.computing if given else None,
        cores=cores if bounded else None,
    )
    return asked, most


def _milliseconds(value: float | None) -> float | None:
    return None if value is None else value * _MILLISECONDS


def _checkpoints(url: str, job: str, step: float) -> measured.Checkpoints | None:
    try:
        life = sources.life(url, job).life
    except TachoscopeError:  # nothing is known of its life: then all is typed
        return None
    return measured.of_checkpoints(life, step) if life else None


def _saves(form: _Form, found: measured.Checkpoints | None, step: float) -> None:
    if found is None:
        st.info("No checkpoint was seen in this run. Type what a save costs to see how often to save.")
    known = found.saving if found else None
    left, right = st.columns([1, 2])
    with left:
        blocking = form.number("Training stands still for a save", known.blocking if known else None, "blocking", "s")
        background = form.number("and it takes in the background", known.background if known else None, "background", "s")
        restarted = found.saving.restart if found and found.restarts else None
        restart = form.number("From a failure to going on", restarted, "restart", "s")
        between = _between_failures(form, found)
    _interval(SaveCost(blocking, background, restart, step), between, found.interval if found else None, right)


def _between_failures(form: _Form, found: measured.Checkpoints | None) -> float:
    """Ask for the seconds between failures; where none was seen, one a day is assumed."""
    often, daily, weekly = (one / _HOUR for one in assumed_between_failures())
    seen = found.rate.mean_seconds if found else None
    more = f"Common are {often:g} h (16,384 GPUs), {daily:g} h and {weekly:g} h (few machines)."
    hours = None if seen is None else seen / _HOUR
    between = form.number("Time between failures", hours, "between", "h", assumed=daily, least=0.001, help_=more)
    if found is not None and seen is None:
        lasted, least = duration(found.rate.life_seconds), duration(found.rate.low_seconds)
        st.caption(f"No failure in {lasted}: that is at least {least} between two (95 % confidence), a bound and no estimate.")
    return between * _HOUR


def _interval(asked: SaveCost, between: float, today: float | None, place: st.delta_generator.DeltaGenerator) -> None:
    intervals, lost = loss_by_interval(asked, between, today)
    best = best_interval(asked, between)
    loss = 1 - useful_ratio(asked, best, between)
    marks = [NamedPoint(f"best: every {duration(best)}, {percent(loss)} lost", best / 60, 100 * loss, OK)]
    if today:
        now = 1 - useful_ratio(asked, today, between)
        marks.append(NamedPoint(f"today: every {duration(today)}, {percent(now)} lost", today / 60, 100 * now))
    with place:
        axes = Axis("minutes from save to save", logarithmic=True), Axis("time lost, %")
        chart(curve((intervals / 60).tolist(), (100 * lost).tolist(), axes, marks), "advice-interval", height=380)
    st.caption(
        "Lost: saving, restarting and work done again, for failures at random. "
        f"[Daly's complete model]({DALY}); Young's sqrt(2 x {seconds(asked.blocking)} x {duration(between)}) gives "
        f"{duration(young_interval(asked.blocking, between))}. Background time costs, and leaves the best interval where it is "
        f"([Vaidya]({VAIDYA}))."
    )


def _batch(form: _Form, found: measured.BatchLimits) -> None:
    if found.idle is None:
        st.info(
            "How long the device waits for launches is not measured in this run: on CPU there is none. Type it to see the curve."
        )
    left, right = st.columns([1, 2])
    with left:
        step = form.number("Step", _milliseconds(found.step), "batch-step", "ms", least=0.001)
        idle = form.number("of it the device waits for launches", _milliseconds(found.idle), "idle", "ms")
        most = form.most("Times today's batch, up to", 8, "most-batch")
    idle = min(idle, step)
    factors = [1 + (most - 1) * place / 100 for place in range(101)]
    enough = enough_batch(step, idle)
    marks = [NamedPoint("today", 1.0, step)]
    if enough is not None and 1 < enough <= most:
        marks.append(NamedPoint(f"full: {enough:.2g} times", enough, step - idle, OK))
    axes = Axis("times today's batch"), Axis("ms for today's batch")
    with right:
        chart(curve(factors, seconds_by_batch(step, idle, factors), axes, marks), "advice-batch", height=340)
    st.caption(
        "ms for today's batch = max(step, factor x (step - idle)) / factor: the host launches as many kernels, and the device "
        "works meanwhile ([He, Making Deep Learning Go Brrrr, Overhead](https://horace.io/brrr_intro.html))."
    )
    _memory(found)


def _memory(found: measured.BatchLimits) -> None:
    if not found.used_bytes or not found.total_bytes:
        st.caption("Device memory is not measured in this run: whether a larger batch fits is not known.")
        return
    room = threshold("batch_memory_ratio")
    fits = room * found.total_bytes / found.used_bytes
    used = f"{size(found.used_bytes)} of {size(found.total_bytes)}"
    st.caption(f"{used} of the fullest device are in use: {room:g} x total / used = {fits:.2g} times today's batch fit for sure.")


def _exchange(form: _Form, step: float, exposed: float | None) -> None:
    if exposed is None:
        st.info("Exposed communication is not measured in this run. Type it to see the curve.")
    left, right = st.columns([1, 2])
    with left:
        asked = form.number("Step", _milliseconds(step), "exchange-step", "ms", least=0.001)
        share = form.number("of it exposed exchange", _milliseconds(exposed), "exposed", "ms")
        most = form.most("Batches an exchange, up to", 16, "most-batches")
    share = min(share, asked)
    counts = list(range(1, most + 1))
    with right:
        values = [batch_seconds(asked, share, count) for count in counts]
        axes = Axis("batches an exchange (gradient accumulation)"), Axis("ms a batch")
        chart(curve(counts, values, axes, [NamedPoint("today", 1, asked)], steps=True), "advice-exchange", height=340)
    st.caption(
        "ms a batch = step - exposed + exposed / batches: [Li et al. (2020), PyTorch Distributed](https://arxiv.org/abs/2006.15704)."
    )
