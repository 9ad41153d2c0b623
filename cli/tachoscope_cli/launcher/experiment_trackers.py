"""After a run: goodput, states and findings go to the run of MLflow or Weights & Biases that the command had open.

A tracker that cannot be reached is one line, and never the command's exit code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tachoscope_cli.launcher import mlflow as mlflow_log
from tachoscope_cli.launcher import wandb as wandb_log
from tachoscope_cli.launcher.tracked_results import Results
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.redaction import redact
from tachoscope_core.report.report import Report, dump

PREFIX = "tachoscope"


Logger = Callable[[Mapping[str, str], Results], str]
_LOGGERS: dict[str, tuple[str, Logger]] = {"mlflow": ("MLflow", mlflow_log.log), "wandb": ("Weights & Biases", wandb_log.log)}


def log(store_url: str, job: str, runs: Mapping[str, str]) -> list[str]:
    """Analyse a job and log what was found to each of its trackers' runs; return a line on each.

    Args:
        runs: the part of its lineage that is about trackers, such as `mlflow_run`.
    """
    wanted = {module: (title, logger) for module, (title, logger) in _LOGGERS.items() if runs.get(f"{module}_run")}
    lines = []
    for module, (title, _) in list(wanted.items()):
        if importlib.util.find_spec(module) is None:
            del wanted[module]
            run = runs[f"{module}_run"]
            lines.append(f"not logged to {title} run {run}: {module} is not installed (pip install {module})")
    if not wanted:
        return lines
    with tempfile.TemporaryDirectory(prefix="tachoscope-") as folder:
        try:
            results = results_of(store_url, job, Path(folder))
        except Exception as error:  # records are foreign input, and the exit code is the command's
            return [*lines, f"not logged to {' and '.join(title for title, _ in wanted.values())}: {error}"]
        lines += [_line(title, runs[f"{module}_run"], logger, runs, results) for module, (title, logger) in wanted.items()]
    return lines


def _line(title: str, run: str, logger: Logger, runs: Mapping[str, str], results: Results) -> str:
    try:
        return f"goodput, findings and report are in {title} run {run} ({redact(logger(runs, results))})"
    except KeyboardInterrupt:
        return f"not logged to {title} run {run}: interrupted"
    except Exception as error:  # each tracker and each of its stores has errors of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"not logged to {title} run {run}: {redact(reason)[:300]} (--no-track: do not try)"


def results_of(store_url: str, job: str, folder: Path) -> Results:
    """Return what is to be logged about a job, its reports written into `folder`.

    Raises:
        TachoscopeError: the store cannot be read, or the job has no start of a process.
        ImportError: what analyses is not installed.
        OSError: a report could not be written.
    """
    from tachoscope_analyzers.data.prices import shipped_prices
    from tachoscope_analyzers.job.report import analyze
    from tachoscope_analyzers.life.report import analyze_life
    from tachoscope_analyzers.records.judged_part import read_part
    from tachoscope_analyzers.records.life_records import with_life
    from tachoscope_core.storage.store import Store
    from tachoscope_show.report import html as render_html

    store = Store(store_url)
    reports = {"life": with_life(store, job, lambda life: analyze_life(life, prices=shipped_prices()))}
    with contextlib.suppress(TachoscopeError):  # no step that all ranks have: then the life is all there is
        reports["report"] = analyze(read_part(store, job))
    for name, report in reports.items():
        (folder / f"{name}.json").write_bytes(dump(report))
        (folder / f"{name}.html").write_text(render_html.render(report))
    return Results(metrics(reports["life"], reports.get("report")), tags(reports["life"], reports.get("report")), folder)


def metrics(life: Report, attempt: Report | None) -> dict[str, float]:
    """Return goodput and the seconds of each state over the life, and the share of each finding.

    A finding's share is of the step of the last attempt; one that only the life shows (lost work, hangs) is of allocated time.
    """
    found = {f"{PREFIX}/goodput": life.goodput} if life.goodput is not None else {}
    found |= {f"{PREFIX}/{state}_seconds": seconds for state, seconds in life.ledgers[0].states.items()}
    if attempt is not None:
        found[f"{PREFIX}/step_seconds"] = attempt.step_seconds.mean
    for report in (life, attempt):
        found |= {f"{PREFIX}/finding/{one.class_}_share": one.share for one in report.findings} if report is not None else {}
    return found


def tags(life: Report, attempt: Report | None) -> dict[str, str]:
    """Return the job's name and its worst finding, by loss; without a finding the latter says `none`."""
    findings = [one for report in (life, attempt) if report is not None for one in report.findings if one.severity != "info"]
    worst = max(findings, key=lambda one: one.share, default=None)
    return {
        f"{PREFIX}.job": life.job,
        f"{PREFIX}.worst_finding": worst.class_ if worst else "none",
        **({f"{PREFIX}.worst_finding_severity": worst.severity} if worst else {}),
        **({f"{PREFIX}.review": "; ".join(life.review)[:400]} if life.review else {}),
    }
