"""What a step would be without some of its causes: invariants, and planted truth."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from course_making import TRANSFER, Extra, late, nothing, planted
from making import job
from tachoscope_analyzers.job.classify import decide
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.job.what_if import Removal, WhatIf, removal_of
from tachoscope_analyzers.ledger import losses
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_analyzers.records.steps import Steps, aligned
from tachoscope_core.errors import TachoscopeError

ALL = [Removal(state) for state in ("data_wait", "host_to_device", "host_wait", "checkpoint", "evaluation", "unexplained")]


def made(folder: Path, extra: Extra = nothing, **options: int) -> tuple[JobRecords, Steps, WhatIf]:
    records = from_spool([planted(folder, extra, **options)])
    steps = aligned(records)
    return records, steps, WhatIf(decide(records, steps), analyze(records))


def both(step: int, rank: int) -> dict[str, float]:
    """Rank 1 loads long, rank 2 computes long, and all save in every tenth step."""
    found = {"data_wait": 0.02} if rank == 1 else {"forward": 0.015} if rank == 2 else {}
    return found | ({"checkpoint": 0.05} if step % 10 == 0 else {})


def test_without_nothing_it_is_the_measured_step(tmp_path: Path) -> None:
    records, _, asked = made(tmp_path, both)
    report = analyze(records)

    found = asked.without([])

    assert found.step.seconds == pytest.approx(report.step_seconds.mean)
    assert found.saved.seconds == 0
    assert found.goodput == pytest.approx(report.goodput)
    assert found.parts == {}


def test_no_cause_that_is_taken_out_makes_a_step_longer_whatever_else_is(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, both, steps=60)
    offered = [offer.removal for offer in asked.offers()][:6]
    found = {some: asked._step_of(some) for size in range(7) for some in combinations(offered, size)}

    for some, step in found.items():
        for one in offered:
            more = tuple(other for other in offered if other in {*some, one})
            assert (found[more] <= step + 1e-12).all(), (some, one)


def test_with_everything_taken_out_work_and_transfer_are_left(tmp_path: Path) -> None:
    _, steps, asked = made(tmp_path, both)
    work = steps.own["compute"].max(axis=1)

    assert asked.without(ALL).step.seconds == pytest.approx(float(work.mean()) + TRANSFER)
    assert asked.without([*ALL, Removal("communication")]).step.seconds == pytest.approx(float(work.mean()))


def test_without_the_straggler_it_is_the_clean_run_within_noise(tmp_path: Path) -> None:
    _, _, clean = made(tmp_path / "clean", seed=1)
    _, _, asked = made(tmp_path / "late", late(2, 1, 300, 0.03), seed=2)

    found = asked.without([Removal("data_wait", 2)])

    assert asked.measured.seconds > 1.25 * clean.measured.seconds
    assert found.step.seconds == pytest.approx(clean.measured.seconds, rel=0.01)


def test_a_cause_of_one_rank_moves_the_wait_to_the_next_latest(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, lambda _, rank: {"forward": {1: 0.02, 2: 0.03}.get(rank, 0.0)}, noise=0)

    saved = {names: asked.without([Removal("compute", rank) for rank in names]).saved.seconds for names in ((1,), (2,), (1, 2))}

    assert saved == {(1,): pytest.approx(0), (2,): pytest.approx(0.01), (1, 2): pytest.approx(0.03)}


def test_mending_ranks_saves_what_the_losses_say(tmp_path: Path) -> None:
    _, steps, asked = made(tmp_path, both)

    for ranks in ([1], [2], [1, 2]):
        found = asked.without([Removal(state, rank) for rank in ranks for state in ("compute", "unexplained")])
        assert found.saved.seconds == pytest.approx(float(losses.saved(steps, ("compute", "other"), ranks).mean()))


def test_ranks_that_never_waited_save_nothing_by_mending_one(tmp_path: Path) -> None:
    records = from_spool([planted(tmp_path, late(1, 1, 300, 0.03))])
    steps = aligned(records)
    steps.waiting[:] = 0.0
    asked = WhatIf(decide(records, steps), analyze(records))

    assert asked.without([Removal("data_wait", 1)]).saved.seconds == pytest.approx(0)
    assert asked.without([Removal("data_wait")]).saved.seconds > 0


def test_the_parts_sum_to_what_is_saved_and_two_alike_have_the_same(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, lambda _, rank: {"forward": 0.02} if rank in {1, 2} else {}, noise=0)
    chosen = [Removal("compute", 1), Removal("compute", 2), Removal("data_wait")]

    found = asked.without(chosen)

    assert found.every_order
    assert sum(found.parts.values()) == pytest.approx(found.saved.seconds)
    assert found.parts[chosen[0]] == pytest.approx(found.parts[chosen[1]]) == pytest.approx(0.01)


def test_many_causes_are_taken_out_one_after_the_other_and_said_so(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, both)
    chosen = asked.known([*ALL, Removal("communication"), Removal("compute", 2)])

    found = asked.without(chosen)

    assert not found.every_order
    assert list(found.parts) == chosen
    assert sum(found.parts.values()) == pytest.approx(found.saved.seconds)


def test_goodput_rises_by_what_the_step_loses(tmp_path: Path) -> None:
    records, _, asked = made(tmp_path, late(2, 1, 300, 0.05))
    now = analyze(records).goodput
    found = asked.without([Removal("data_wait", 2)])

    assert now is not None
    assert found.goodput == pytest.approx(now * asked.measured.seconds / found.step.seconds)
    assert asked.without(ALL).goodput is not None
    assert asked.without(ALL).goodput <= 1


def test_what_costs_most_is_offered_first_and_work_of_all_ranks_never(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, late(2, 1, 300, 0.05))
    offers = asked.offers()

    assert offers[0].removal in {Removal("data_wait", 2), Removal("data_wait")}
    assert [one.saved for one in offers] == sorted((one.saved for one in offers), reverse=True)
    assert Removal("compute") not in {one.removal for one in offers}


def test_one_rank_is_late_for_nobody(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, ranks=1)

    assert all(one.removal.rank is None for one in asked.offers())
    assert Removal("communication") not in {one.removal for one in asked.offers()}


def test_a_finding_is_taken_out_by_its_state_and_ranks(tmp_path: Path) -> None:
    records, _, asked = made(tmp_path, late(2, 1, 300, 0.05))
    (finding,) = [one for one in analyze(records).findings if one.class_ == "input_straggler"]

    chosen = asked.of_finding(finding)

    assert chosen == [Removal("data_wait", 2)]
    assert finding.speedup_if_fixed == pytest.approx(asked.measured.seconds / asked.without(chosen).step.seconds, rel=0.01)


@pytest.mark.parametrize(
    ("text", "removal"),
    [
        ("data_wait", Removal("data_wait")),
        ("compute@3", Removal("compute", 3)),
        ("communication", Removal("communication")),
        ("compute@", None),
        ("<script>", None),
        ("sleep@1", None),
    ],
)
def test_addresses_name_removals(text: str, removal: Removal | None) -> None:
    assert removal_of(text) == removal
    assert removal is None or str(removal) == text


def test_what_the_job_has_not_is_not_asked(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path)

    assert asked.known([Removal("compute"), Removal("compute", 99), Removal("communication", 1), Removal("data_wait")]) == [
        Removal("data_wait")
    ]


def test_where_the_waiting_was_not_measured_nothing_is_promised(tmp_path: Path) -> None:
    row = [{"forward": 0.1, "backward": 0.1}] * 2
    (tmp_path / "0.jsonl").write_bytes(job([row] * 30, clocks_every=1000))
    records = from_spool([tmp_path])
    steps = aligned(records)
    assert steps.waiting_unmeasured

    with pytest.raises(TachoscopeError, match="the latest rank is unknown"):
        WhatIf(decide(records, steps), analyze(records))


@pytest.mark.bar  # of a thousand ranks test_rank_grid.py has an analysis
def test_a_thousand_ranks_are_no_burden(tmp_path: Path) -> None:
    _, _, asked = made(tmp_path, late(700, 1, 12, 0.05), steps=12, ranks=1000)

    offers = asked.offers()

    assert len(offers) < 30
    assert Removal("data_wait", 700) in {one.removal for one in offers}
    assert np.isfinite(asked.without([one.removal for one in offers]).step.seconds)
