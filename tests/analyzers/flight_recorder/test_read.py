"""Dumps are read as PyTorch writes them, old and new, pickle and JSON; what is none is one clear error."""

import json
import pickle
import random
from pathlib import Path

import pytest

from recorder_dumps import PlantedDump, world
from tachoscope_analyzers.flight_recorder import read as reading
from tachoscope_analyzers.flight_recorder.dump import Progress
from tachoscope_analyzers.flight_recorder.read import dumps_in, rank_of, read, read_all
from tachoscope_analyzers.flight_recorder.verdict import verdict
from tachoscope_core.errors import TachoscopeError


def planted() -> PlantedDump:
    dump = PlantedDump(3, {"0": ("default_pg", [0, 1, 2, 3]), "7": ("PIPELINE", [1, 3])})
    dump.enqueue("0", done=True)
    dump.enqueue("0", "broadcast", sizes=((2, 3), (4,)))
    dump.message("7", "send 1->0", 5)
    return dump


def test_operations_groups_and_progress_come_back(tmp_path: Path) -> None:
    found = read(planted().write(tmp_path))

    assert (found.rank, found.version) == (3, "2.9")
    assert found.groups["7"].ranks == (1, 3)
    assert found.progress[0] == Progress(2, 1)
    collective, message = found.operations
    assert (collective.name, collective.sequence, collective.sizes, collective.peer) == ("broadcast", 2, ((2, 3), (4,)), None)
    assert (message.peer, message.sends, message.sequence) == (1, True, 5)
    assert collective.stack == ("train.py:12 step",)


def test_the_json_of_the_debug_server_says_the_same(tmp_path: Path) -> None:
    document = planted().document()
    for status in document["pg_status"].values():
        status.update({key: str(value) for key, value in status.items()})
    for entry in document["entries"]:
        entry["time_discovered_started_ns"] = 0
    path = tmp_path / "comm_lib_trace_rank_3.json"
    path.write_text(json.dumps(document))

    assert read(path) == read(planted().write(tmp_path))


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_0", 0), ("comm_lib_trace_rank_12", 12), ("_dump_7", 7), ("mine-2-31.pickle", 31), ("mine_4", 4)],
)
def test_the_rank_stands_at_the_end_of_the_name(name: str, rank: int) -> None:
    assert rank_of(Path(name)) == rank


def test_a_name_without_a_rank_and_two_files_of_one_rank_are_errors(tmp_path: Path) -> None:
    first = planted().write(tmp_path / "a")
    with pytest.raises(TachoscopeError, match="does not end with a rank"):
        read(first.rename(first.with_name("dump")))
    with pytest.raises(TachoscopeError, match="both of rank 3"):
        read_all([planted().write(tmp_path / "a"), planted().write(tmp_path / "b")])


def test_folders_and_files_of_dumps_are_known_and_others_are_not(tmp_path: Path) -> None:
    files = [dump.write(tmp_path / "dumps") for dump in world(3).values()]
    (tmp_path / "dumps" / "fault.log").write_text("x")
    odd = files[0].rename(tmp_path / "dumps" / "prefix_0")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "step_1").write_text("{}")

    assert dumps_in([str(tmp_path / "dumps")]) == [*files[1:], odd]
    assert dumps_in([str(tmp_path / "other")]) == []
    assert dumps_in([str(tmp_path / "other"), str(tmp_path / "dumps")]) == []
    assert dumps_in([str(tmp_path / "nowhere")]) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a sound dump"),
        (b"hello", "not a sound dump|refused"),
        (pickle.dumps([1, 2]), "not a sound dump"),
        (pickle.dumps({"version": "2.9"}), "entries"),
        (pickle.dumps({"version": "2.9", "entries": [{"state": 5}]}), "not a sound dump"),
        (b'{"version": 3, "entries": "all"}', "not a sound dump"),
        (pickle.dumps({"version": "2.9", "entries": [Path("x")]}), "was refused"),
    ],
)
def test_what_is_no_dump_is_an_error_that_names_the_file(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(content)

    with pytest.raises(TachoscopeError, match=says) as told:
        read(path)
    assert str(path) in str(told.value)


def test_a_small_file_that_is_large_in_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = planted().document()
    many = [[1]] * 10_000
    document["entries"] = [document["entries"][0] | {"input_sizes": many}] * 1_000
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(pickle.dumps(document))

    with pytest.raises(TachoscopeError, match="more sizes than"):
        read(path)
    monkeypatch.setattr(reading, "MOST_BYTES", 1000)
    with pytest.raises(TachoscopeError, match="a dump has at most"):
        read(path)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return a dump with some bytes changed, cut out or doubled."""
    text = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        place = chance.randrange(len(text))
        what = chance.randrange(4)
        if what == 0:
            text[place] = chance.randrange(256)
        elif what == 1:
            del text[place : place + chance.randint(1, 64)]
        elif what == 2:
            text[place:place] = text[place : place + chance.randint(1, 64)]
        else:
            del text[place:]
        if not text:
            break
    return bytes(text)


def refused_or_judged(folder: Path, count: int, seed: int) -> int:
    """Judge mutated dumps beside sound ones; return how many were refused."""
    chance, refused = random.Random(seed), 0
    dumps = world(4)
    for rank in (0, 1, 3):
        dumps[rank].enqueue("0")
    sound = read_all(dump.write(folder) for dump in dumps.values())
    data = (folder / "nccl_trace_rank_1").read_bytes()
    path = folder / "mutated" / "nccl_trace_rank_1"
    path.parent.mkdir()
    for _ in range(count):
        path.write_bytes(mutated(data, chance))
        try:
            found = read(path)
        except TachoscopeError:
            refused += 1
        else:
            verdict(sound | {1: found})
    return refused


def test_mutated_dumps_are_refused_or_judged(tmp_path: Path) -> None:
    assert refused_or_judged(tmp_path, 400, 1) > 100


@pytest.mark.bar
def test_ten_thousand_mutated_dumps_are_refused_or_judged(tmp_path: Path) -> None:
    assert refused_or_judged(tmp_path, 10_000, 2) > 1_000
