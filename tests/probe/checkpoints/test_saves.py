"""Which calls make one checkpoint, which files are its own, and when one that is named as temporary is a checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope.checkpoints.save_nesting import Calls, distributed_files
from tachoscope.checkpoints.tracker import Checkpoints
from tachoscope.preemption.poll import NoticePoll
from tachoscope.timing.phases import DATA_WAIT, Timeline
from tachoscope_core.records import records


class PlantedOutbox:
    """Keeps what is written."""

    rank = 0

    def __init__(self) -> None:
        self.rows: list[tuple[type[records.Record], dict[str, Any]]] = []

    def write(self, kind: type[records.Record], **fields: Any) -> None:
        self.rows.append((kind, fields))

    def saved(self) -> list[str]:
        return [Path(fields["reference"]).name for kind, fields in self.rows if kind is records.CheckpointSaved]


class PlantedProbe:
    """As much of a probe as checkpoints need, in its fifth step, on the test's own thread."""

    def __init__(self) -> None:
        self.on = True
        self.steps = self.steps_in_parameters = 5
        self.thread_ident = threading.get_ident()
        self.outbox: Any = PlantedOutbox()
        self.timeline = Timeline()

    def bind(self) -> None:
        raise AssertionError("only what is read before the first step moves its begin")


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> PlantedProbe:
    monkeypatch.setenv("TACHOSCOPE_MANIFESTS", "0")
    return PlantedProbe()


def save(checkpoints: Checkpoints, path: Path) -> None:
    call = checkpoints.save_begin()
    path.write_bytes(b"weights")
    call.reference, call.took_part = str(path), 1
    checkpoints.save_end(raised=False)


@given(depth=st.integers(1, 6))
def test_only_the_outermost_call_ends_a_checkpoint(depth: int) -> None:
    calls = Calls()
    opened = [calls.begin() for _ in range(depth)]
    ended = [calls.end() for _ in range(depth)]

    assert ended == [None] * (depth - 1) + [opened[0]]
    assert calls.begin() is not opened[0]


def test_a_file_with_a_temporary_name_is_no_checkpoint_until_it_is_renamed(tmp_path: Path, probe: PlantedProbe) -> None:
    checkpoints = Checkpoints(probe, NoticePoll())
    save(checkpoints, tmp_path / "model.pt.tmp")
    checkpoints.flush()
    assert probe.outbox.saved() == []
    (tmp_path / "model.pt.tmp").rename(tmp_path / "model.pt")
    checkpoints.renamed(tmp_path / "model.pt.tmp", tmp_path / "model.pt")
    checkpoints.flush()

    assert probe.outbox.saved() == ["model.pt"]


def test_one_that_is_not_renamed_until_the_step_ends_keeps_its_name(tmp_path: Path, probe: PlantedProbe) -> None:
    checkpoints = Checkpoints(probe, NoticePoll())
    save(checkpoints, tmp_path / "model.tmp")
    probe.steps = probe.steps_in_parameters = 6
    checkpoints.flush()

    assert probe.outbox.saved() == ["model.tmp"]


def test_the_end_of_the_process_writes_what_still_waits_for_its_name(tmp_path: Path, probe: PlantedProbe) -> None:
    checkpoints = Checkpoints(probe, NoticePoll())
    save(checkpoints, tmp_path / "model.tmp")
    probe.on = False
    checkpoints.close(failed=False)

    assert probe.outbox.saved() == ["model.tmp"]


def test_a_save_that_raised_is_no_checkpoint(tmp_path: Path, probe: PlantedProbe) -> None:
    checkpoints = Checkpoints(probe, NoticePoll())
    checkpoints.save_begin().took_part = 1
    checkpoints.save_end(raised=True)
    save(checkpoints, tmp_path / "sound.pt")

    assert probe.outbox.saved() == ["sound.pt"]


def test_a_rank_that_only_waits_for_the_one_that_writes_saved_nothing(probe: PlantedProbe) -> None:
    probe.outbox.rank = 1
    checkpoints = Checkpoints(probe, NoticePoll())
    checkpoints.save_begin()
    checkpoints.save_end(raised=False)

    assert probe.outbox.saved() == []


@given(ranks=st.integers(1, 12), files=st.integers(1, 4))
def test_each_file_of_a_distributed_checkpoint_is_of_one_rank(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, files: int
) -> None:
    folder = tmp_path_factory.mktemp("dcp")
    names = [".metadata"] + [f"__{rank}_{number}.distcp" for rank in range(ranks) for number in range(files)]
    for name in names:
        (folder / name).touch()
    found = [Path(file.path).name for rank in range(ranks) for file in distributed_files(str(folder), rank)]

    assert sorted(found) == sorted(names)


def test_after_the_first_step_only_what_this_process_saved_is_restored(tmp_path: Path, probe: PlantedProbe) -> None:
    checkpoints = Checkpoints(probe, NoticePoll())
    save(checkpoints, tmp_path / "own.pt")
    checkpoints.load_begin()

    assert checkpoints.counts({}, tmp_path / "own.pt")
    assert not checkpoints.counts({}, tmp_path / "other.pt")


@pytest.mark.parametrize(("loaded", "counts"), [({"model": 1}, True), ([1, 2], False), (b"data", False)])
def test_before_the_first_step_a_mapping_is_a_checkpoint_and_a_list_is_data(
    probe: PlantedProbe, loaded: object, counts: bool
) -> None:
    probe.steps = 0
    checkpoints = Checkpoints(probe, NoticePoll())
    checkpoints.load_begin()

    assert checkpoints.counts(loaded, "any.pt") is counts


def test_what_a_loader_reads_is_never_a_restore(probe: PlantedProbe) -> None:
    checkpoints = Checkpoints(probe, NoticePoll())
    assert checkpoints.may_load()
    probe.timeline.enter(DATA_WAIT)
    assert not checkpoints.may_load()
