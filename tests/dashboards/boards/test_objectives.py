"""Boards of objectives of one's own: which are read, and what is said of those that boards need and do not have."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from board_making import POLICY
from helpers import REPOSITORY
from planted import made, panel, steps
from tachoscope_alerts.spec.slo import AtMost
from tachoscope_core.errors import TachoscopeError
from tachoscope_dashboards.boards.all import boards
from tachoscope_dashboards.boards.fleet import board as fleet
from tachoscope_dashboards.parts import slo_objectives

SHIPPED = REPOSITORY / "alerts" / "slos"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a copy of all objectives."""
    shutil.copytree(SHIPPED, tmp_path / "own")
    return tmp_path / "own"


def removed(folder: Path) -> None:
    (folder / "training-recovery.yaml").unlink()


def renamed(folder: Path) -> None:
    path = folder / "training-recovery.yaml"
    path.write_text(path.read_text().replace("name: training-recovery", "name: our-recovery"))


def of_another_kind(folder: Path) -> None:
    """Plant: time to the first token is measured as availability is."""
    events = (folder / "inference-availability.yaml").read_text()
    kind = re.search(r"^  indicator:\n(?:    .*\n)+", events, re.MULTILINE)
    path = folder / "inference-admission.yaml"
    assert kind is not None
    text = re.sub(r"^  indicator:\n(?:    .*\n)+", lambda _: kind[0], path.read_text(), flags=re.MULTILINE)
    path.write_text(re.sub(r"op: \w+, value: [\d.]+, |\bop: .*\n +value: .*\n +", "", text))


@pytest.mark.parametrize(
    ("damage", "name"),
    [(removed, "training-recovery"), (renamed, "training-recovery"), (of_another_kind, "inference-admission")],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_boards_that_lack_an_objective_name_it_and_the_way_out(own: Path, damage: Callable[[Path], None], name: str) -> None:
    damage(own)
    with slo_objectives.specs_of([own]), pytest.raises(TachoscopeError, match=f"the objective {name}.*keep ") as raised:
        boards(POLICY)
    assert "\n" not in str(raised.value)


def test_each_objective_that_is_missing_is_said_and_none_is_a_traceback(own: Path) -> None:
    for spec in sorted(own.glob("*.yaml")):
        kept = spec.read_text()
        spec.unlink()
        with slo_objectives.specs_of([own]):
            try:
                boards(POLICY)
            except TachoscopeError as error:
                assert spec.stem in str(error) or f"{spec.stem}-p" in str(error)
        spec.write_text(kept)


def test_thresholds_are_those_of_the_specs_that_are_named_and_of_no_others_afterwards(own: Path) -> None:
    path = own / "training-goodput.yaml"
    path.write_text(re.sub(r"target: 0\.\d+", "target: 0.5", path.read_text()))
    with slo_objectives.specs_of([own]):
        ours = steps(panel(made(fleet.board(POLICY)), "ETTR"))

    assert [at for at, _ in ours] == [None, 0.5]
    assert [at for at, _ in steps(panel(made(fleet.board(POLICY)), "ETTR"))] != [None, 0.5]


def test_a_bound_is_asked_of_an_objective_that_has_one() -> None:
    assert slo_objectives.bound("inference-ttft-p95") == slo_objectives.indicator("inference-ttft-p95", AtMost).bound
    with pytest.raises(
        TachoscopeError, match=r"the objective inference-availability counts events; its panels need one with a bound"
    ):
        slo_objectives.bound("inference-availability")
