"""What docs/guides/advice.md shows is what the code says."""

from helpers import REPOSITORY
from tachoscope_analyzers.advice import drain, interval, workers
from tachoscope_analyzers.advice.drain import LateRanks, RankPlacement
from tachoscope_analyzers.advice.workers import Input
from tachoscope_analyzers.checkpoint_policy.cost_model import SaveCost
from tachoscope_analyzers.job import advice as of_job
from tachoscope_analyzers.records.cores import Cores
from tachoscope_analyzers.trace.findings import advice as of_traces

PAGE = " ".join((REPOSITORY / "docs" / "guides" / "advice.md").read_text().split())


def test_every_class_with_advice_stands_in_the_page() -> None:
    for slug in {*of_job._BY_SLUG, *of_traces._BY_SLUG}:
        assert f"`{slug}`" in PAGE


def test_the_examples_are_the_codes_own_words() -> None:
    loads = workers.advice(
        Input(step=0.175, rest=0.095, making=0.08, workers=0, cores=Cores(2.0, 14.0, 16), handover=0.0015, splits=True)
    ).text
    saves = interval.of_attempt(SaveCost(0.6, step=0.1), 1.62, 0.38, "resnet", failed=False).text
    places = {rank: RankPlacement(f"node-{rank // 2}", rank % 2, "...") for rank in range(8)}
    late = drain.advice(LateRanks([3], 8, places, 0.08, 0.18, 9, 10))

    for words, start, end in ((loads, "a step's input", "a rank"), (saves, "training", "assumed)"), (late, "rank 3", "an hour")):
        assert words[words.index(start) : words.index(end) + len(end)] in PAGE
