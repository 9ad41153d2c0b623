"""What compiling again costs, told apart from first compilations: planted steps and records."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from making import beat, envelope
from synchronous import planted, signal
from tachoscope_analyzers.job.report import analyze
from tachoscope_core.records import records
from tachoscope_core.report.report import Finding, Report

STEPS = 60
STEP_SECONDS = 0.066
"""`BASE` and the transfer."""


def compiled(step: int, seconds: float, end: float, *, rank: int = 0, **fields: Any) -> records.CompilationDone:
    """A compilation that ends at a time, in seconds."""
    place = {"place": "model.py:88 forward", "compile_id": f"0/{step}", "seconds": seconds}
    return records.CompilationDone(**envelope(rank, 30_000 + step, monotonic_ns=round(end * 1e9)), **place | fields)


def report(tmp_path: Path, seconds: float, every: int, *, ranks: int = 1, only: int | None = None, **fields: Any) -> Report:
    """A job that compiles in each n-th step, on one rank or on all."""
    columns = [only] if only is not None else list(range(ranks))
    compiling = np.zeros((STEPS, ranks))
    compiling[::every, columns] = seconds
    ends = np.cumsum(np.full(STEPS, STEP_SECONDS) + compiling.max(axis=1))
    beats = [beat(rank, signals={records.COMPILATIONS: 1.0}) for rank in range(ranks)]
    rows = [
        compiled(step + 1, seconds, ends[step] - STEP_SECONDS / 2, rank=rank, **fields)
        for step in range(0, STEPS, every)
        for rank in columns
    ]
    return analyze(planted(tmp_path, {"compile": compiling}, [*beats, *rows]))


def the(found: Report) -> Finding:
    (one,) = [finding for finding in found.findings if finding.class_ == "recompilation"]
    return one


def mismatch(size: int) -> str:
    return f"0/0: tensor 'x' size mismatch at index 1. expected 128, actual {size}"


def test_compiling_again_is_found_with_its_share_its_code_and_the_guard(tmp_path: Path) -> None:
    found = report(tmp_path, 0.1, 5, recompiled=True, reason=mismatch(131))
    finding = the(found)

    assert finding.share == pytest.approx(0.02 / (STEP_SECONDS + 0.02), rel=0.1)
    assert finding.severity == "critical"
    assert finding.where == "model.py:88 forward"
    assert signal(finding, "compilations of code that was compiled before") == 12
    assert signal(finding, "they took") == pytest.approx(1.2)
    assert signal(finding, "guard that failed: size of x at dimension 1; sizes seen: 128, 131") == 2
    assert "mark_dynamic(x, 1)" in finding.action
    assert found.ledgers[0].states["compile"] == pytest.approx(0.1 * 11, rel=0.1)
    assert found.goodput is not None
    assert found.goodput < 0.8


def test_first_compilations_are_in_the_ledger_and_no_finding(tmp_path: Path) -> None:
    found = report(tmp_path, 0.1, 5, recompiled=False)

    assert "recompilation" not in {finding.class_ for finding in found.findings}
    assert "recompilation" not in {row.class_ for row in found.not_measured}
    assert found.ledgers[0].states["compile"] > 0.0


def test_where_one_rank_compiles_and_the_others_wait_it_is_named(tmp_path: Path) -> None:
    finding = the(report(tmp_path, 0.1, 5, ranks=4, only=2, recompiled=True, reason=mismatch(131)))

    assert finding.ranks == [2]


def test_a_limit_that_was_hit_is_a_warning_whatever_it_cost(tmp_path: Path) -> None:
    row = compiled(1, 0.001, 0.01, limit="recompile_limit (8)", failure="Unsupported", recompiled=True, reason=mismatch(140))
    beats = [beat(0, signals={records.COMPILATIONS: 9.0})]
    finding = the(analyze(planted(tmp_path, {"forward": np.zeros((STEPS, 1))}, [*beats, row])))

    assert (finding.severity, finding.cause) == ("warning", "limit")
    assert any("recompile_limit (8) was hit by model.py:88 forward" in row.signal for row in finding.evidence)
    assert "torch._dynamo.config.recompile_limit" in finding.action


def test_graph_breaks_are_told_with_their_lines(tmp_path: Path) -> None:
    finding = the(report(tmp_path, 0.1, 5, recompiled=True, graph_breaks={"model.py:90 forward": "print"}))

    assert signal(finding, "lines with a graph break: model.py:90 forward (print)") == 1


def test_a_guard_that_torch_does_not_tell_is_said_to_be_unknown(tmp_path: Path) -> None:
    assert signal(the(report(tmp_path, 0.1, 5, recompiled=True)), "guard that failed: this version of torch does not tell") == 12


def test_records_of_a_probe_that_does_not_watch_compilations_leave_the_class_unmeasured(tmp_path: Path) -> None:
    found = analyze(planted(tmp_path, {"forward": np.zeros((STEPS, 1))}))

    assert "recompilation" in {row.class_ for row in found.not_measured}


def test_a_process_that_no_longer_knows_what_was_compiled_leaves_the_class_unmeasured(tmp_path: Path) -> None:
    beats = [beat(0, signals={records.COMPILATIONS: 0.0}), beat(0, 10_001)]
    found = analyze(planted(tmp_path, {"forward": np.zeros((STEPS, 1))}, beats))

    assert "recompilation" in {row.class_ for row in found.not_measured}


def test_compilations_that_were_counted_and_not_written_are_taken_to_be_like_the_others(tmp_path: Path) -> None:
    whole = report(tmp_path, 0.1, 5, recompiled=True)
    compiling = np.zeros((STEPS, 1))
    compiling[::5] = 0.1
    ends = np.cumsum(np.full(STEPS, STEP_SECONDS) + compiling[:, 0])
    rows = [compiled(step + 1, 0.1, ends[step] - STEP_SECONDS / 2, recompiled=True) for step in range(0, STEPS // 2, 5)]
    found = analyze(planted(tmp_path, {"compile": compiling}, [beat(0, signals={records.COMPILATIONS: 12.0}), *rows]))

    assert the(found).share == pytest.approx(the(whole).share, rel=0.01)
    assert signal(the(found), "compilations without a record, taken to be like the others") == 6


def test_code_that_torch_was_made_to_forget_is_told_as_that(tmp_path: Path) -> None:
    finding = the(report(tmp_path, 0.1, 5, recompiled=True, reason=records.DYNAMO_RESET))

    assert signal(finding, "torch._dynamo.reset made torch forget what it had compiled") == 12
    assert "torch._dynamo.reset" in finding.action


def test_a_compilation_of_a_minute_on_one_rank_is_no_hang(tmp_path: Path) -> None:
    compiling = np.zeros((STEPS, 2))
    compiling[30, 0] = 60.0
    row = compiled(31, 60.0, 30 * STEP_SECONDS + 60.0, recompiled=True, reason=mismatch(131))
    found = analyze(planted(tmp_path, {"compile": compiling}, [row]))

    assert "hang" not in {finding.class_ for finding in found.findings}
    assert the(found).ranks == [0]
