"""`tachoscope slo backtest`: what an objective would have told over recorded time, with another target or threshold."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli.common.options import TEXT, JsonOption, StoreOption, needs_analysis
from tachoscope_cli.common.output import draw, write_json
from tachoscope_cli.common.verdict import OutputOption
from tachoscope_cli.slo.shared import ForOption, PrometheusOption, SlosOption, days_of, default_slos, samples
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from tachoscope_alerts.report.backtest import Backtest
    from tachoscope_alerts.spec.slo import Slo

EPILOG = (
    "Examples: `tachoscope slo backtest inference-ttft-p99 --target 99.9%`, "
    "`tachoscope slo backtest inference-ttft-p99 --threshold 1 --for 7d`, "
    "`tachoscope slo backtest training-goodput --target 0.9 --prometheus http://127.0.0.1:9090 --format json`"
)


def slo_backtest(
    objective: Annotated[str, typer.Argument(metavar="OBJECTIVE", help="Name of the objective, such as inference-ttft-p99.")],
    target: Annotated[str | None, typer.Option(metavar="RATIO", help="Target to try: 99.5% or 0.995.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="VALUE", help="Threshold to try, in the metric's unit; of a histogram a bucket boundary."),
    ] = None,
    slos: SlosOption = None,
    store: StoreOption = None,
    prometheus: PrometheusOption = None,
    for_: ForOption = None,
    format_: JsonOption = TEXT,
    output: OutputOption = None,
) -> None:
    """Compare attainment, budget, pages and tickets with another target or threshold to the committed ones.

    The alerts' conditions are replayed on what was recorded. See docs/guides/slo-report.md.
    """
    needs_analysis()
    from tachoscope_show.slo import backtest_words

    slo = _named(objective, slos)
    ratio = None if target is None else backtest_words.target_of(target)
    days = days_of(for_) if for_ else slo.period_days
    found = _backtest(slo, ratio, threshold, store, prometheus, days)
    if format_.value == "json":
        write_json(found, output)
        return
    draw(lambda out: backtest_words.render(found, out), output)


def _named(name: str, slos: list[Path] | None) -> Slo:
    from tachoscope_alerts.spec import slo_files

    known = {one.name: one for one in slo_files.load(slos or default_slos())}
    if name not in known:
        raise TachoscopeError(f"unknown objective {name!r}", fix=f"available: {', '.join(known)}")
    return known[name]


def _backtest(
    slo: Slo, target: float | None, threshold: float | None, store: str | None, prometheus: str | None, days: float
) -> Backtest:
    from tachoscope_alerts.report import backtest
    from tachoscope_alerts.spec.burn_rate_windows import Timing

    backtest.changed(slo, target=target, threshold=threshold)  # what is wrong with it is said before the reading
    start, end = backtest.window(time.time(), days, Timing())
    with samples(store, prometheus) as source:
        return backtest.backtest(slo, source, start, end, target=target, threshold=threshold)
