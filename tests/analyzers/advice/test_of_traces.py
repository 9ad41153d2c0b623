"""From profiler traces to advice: what the trace of one run promises is compared with the trace of the run that was fixed."""

import re
from pathlib import Path

import numpy as np
import pytest

from planting_ranks import Group, PlantedJob
from recorded import recorded
from tachoscope_analyzers.advice.expected_step import step_without
from tachoscope_analyzers.advice.handover import handover_seconds
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.trace.analyses.inefficient_kernels import BLOCKS_SIGNAL
from tachoscope_analyzers.trace.findings.advice import advised
from tachoscope_analyzers.trace.findings.report import report
from tachoscope_analyzers.trace.losses.by_rank import LOADER_SECONDS, LOADS_IN_PROCESS
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions
from tachoscope_core.report.report import Evidence, Report
from tachoscope_core.report.taxonomy import BY_SLUG

MS = 1_000_000


def judged(*paths: Path, what_if: bool = True) -> Report:
    return report(read_job(list(paths), executor=InProcess(), wanted=SummaryOptions(what_if=what_if)), "trace")


def test_the_run_without_workers_is_told_how_many_and_its_twin_with_four_shows_that_it_holds() -> None:
    none, four = (judged(recorded(f"kineto/resnet50_{name}_a.pt.trace")) for name in ("nw0", "nw4"))

    found = none.findings[0]
    assert found.class_ == "input_workers"
    assert "= 2 workers a rank, if as many cores are free" in found.action
    promised = re.search(r"At best (\d+) ms a step instead of 178 ms", found.action)
    assert promised is not None
    without = none.step_seconds.mean / (found.speedup_if_fixed or 1)
    assert float(promised[1]) / 1e3 == pytest.approx(without + handover_seconds(0.0), abs=0.001)
    assert not [row for row in four.findings if row.class_.startswith("input") and row.severity != "info"]
    assert four.step_seconds.p50 == pytest.approx(float(promised[1]) / 1e3, rel=0.15)


def candidate(slug: str, *evidence: Evidence, seconds: float = 0.05, speedup: float | None = None) -> Candidate:
    return Candidate(slug, np.full(20, seconds), "all", list(evidence), speedup=speedup)


IN_PROCESS = (Evidence(signal=LOADS_IN_PROCESS, value=20.0), Evidence(signal=LOADER_SECONDS, value=0.08))


def test_all_that_the_loader_takes_counts_though_the_device_waits_for_a_part_only() -> None:
    (found,) = advised([candidate("input_workers", *IN_PROCESS)], 0.1, 1)

    assert "ceil((80 ms + 1.5 ms) / 51.5 ms) + 1 = 3 workers" in found.action


def test_the_expected_step_is_the_replayed_one() -> None:
    replayed = candidate("launch_bound", speedup=1.25)

    assert step_without(replayed, 0.1) == pytest.approx(0.08)
    assert "expected step: 80 ms instead of 100 ms" in advised([replayed], 0.1, 1)[0].action


def test_kernels_of_few_blocks_are_told_how_much_larger_the_batch_may_be() -> None:
    few = candidate("underfilled", Evidence(signal=BLOCKS_SIGNAL, value=0.5))

    assert advised([few], 0.1, 1)[0].action.startswith("raise the batch per device up to 1 / 0.5 = 2 times")


@pytest.mark.parametrize(
    "one", [candidate("input_workers"), candidate("h2d_copy"), candidate("input_workers", *IN_PROCESS, seconds=0.001)]
)
def test_where_a_number_is_missing_or_the_loss_is_small_the_standard_fix_stays(one: Candidate) -> None:
    assert advised([one], 0.1, 1)[0].action == ""


def test_exchange_in_the_open_is_told_how_many_batches_to_accumulate(tmp_path: Path) -> None:
    job = PlantedJob(4, [Group("0", range(4), "dp", transfer=5 * MS)], steps=12, jitter=10_000)

    found = next(row for row in judged(*job.write(tmp_path), what_if=False).findings if row.class_ == "comm_exposed")

    assert re.match(r"accumulate 3 batches an exchange \(no_sync\(\)\): ceil\(\(2 x .* - 5 ms\) / 5\.\d+ ms\) = 3 ", found.action)


def test_the_late_loader_of_one_rank_is_named(tmp_path: Path) -> None:
    def loads(rank: int, step: int) -> tuple[str, int]:
        return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12 * MS if rank == 1 else 1

    paths = PlantedJob(2, [Group("0", range(2), "default_pg")], steps=12, before=loads, jitter=10_000).write(tmp_path)
    found = next(row for row in judged(*paths, what_if=False).findings if row.class_ == "input_straggler")

    assert re.match(r"DataLoader\(num_workers=\d, persistent_workers=True\) on rank 1, if its shards", found.action)
    assert found.action != BY_SLUG["input_straggler"].fix
