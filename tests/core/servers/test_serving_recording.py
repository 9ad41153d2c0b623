"""A recording gives back what was seen; one that is damaged gives what is whole, or says why not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import serving_pages as pages
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.servers import SERVERS, catalogue, metrics_page
from tachoscope_core.servers import recording as serving_recording
from tachoscope_core.servers.recording import is_recording, read, write
from tachoscope_core.servers.snapshot import Snapshot


def record(path: Path, *looks: tuple[Snapshot, str], server: str = "sglang") -> list[Snapshot]:
    write(path, looks, catalogue(server))
    return read(path)


def test_looks_come_back_with_their_times_and_faults(tmp_path: Path) -> None:
    file = tmp_path / "a.serving.gz"
    found = record(
        file,
        (Snapshot(time=1.25, seconds=0.5), pages.SGLANG),
        (Snapshot(time=2.25, seconds=0.1, fault="refused\n# look 9 9"), ""),
        (Snapshot(time=3.25, seconds=0.5), pages.SGLANG.replace(" 162.0", " 163.0")),
    )

    assert is_recording(file)
    assert [(look.time, look.seconds, look.fault) for look in found] == [
        (1.25, 0.5, ""),
        (2.25, 0.1, "refused # look 9 9"),
        (3.25, 0.5, ""),
    ]
    assert found[0].engines == metrics_page.read(pages.SGLANG, 0.0).engines
    assert found[2].engines[0].gauges["requests_running"] == 163.0


@pytest.mark.parametrize("server", SERVERS)
def test_a_page_without_any_metric_of_its_server_is_a_look_at_a_server_without_engines(tmp_path: Path, server: str) -> None:
    (look,) = record(tmp_path / "a.serving.gz", (Snapshot(time=1.0), "up 1\n"), server=server)

    assert (look.server, look.engines, look.fault) == (server, (), "")


def test_a_recording_that_does_not_say_whose_it_is_is_looked_at(tmp_path: Path) -> None:
    for number, head in enumerate(("", "# server of-the-future\n")):
        with gzip.open(file := tmp_path / f"{number}.gz", "wt") as out:
            out.write(f"{serving_recording.MAGIC}\n{head}# look 1.0 0.1\n{pages.TGI}")
        assert read(file)[0].server == "tgi"


def test_of_a_recording_that_is_cut_off_the_looks_that_are_whole_count(tmp_path: Path) -> None:
    file = tmp_path / "a.serving.gz"
    whole = record(file, *((Snapshot(time=float(n)), pages.SGLANG.replace(" 162.0", f" {n}")) for n in range(200)))
    content = file.read_bytes()
    lengths = set()
    for share in (0.3, 0.6, 0.9):
        file.write_bytes(content[: int(len(content) * share)])
        found = read(file)
        assert found == whole[: len(found)]
        lengths.add(len(found))
    assert len(lengths) == 3


def test_what_is_no_recording_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a.serving.gz"
    file.write_text(pages.SGLANG)
    with pytest.raises(TachoscopeError, match=r"could not read .*a\.serving\.gz"):
        read(file)
    assert not is_recording(file)
    with pytest.raises(TachoscopeError, match="could not read"):
        read(tmp_path / "none")
    for text, why in (
        ("a\nb\n", "not a recording"),
        ("", "contains no samples"),
        ("# look soon 1\n", "not the head of a look"),
        ("# look nan 1\n", "not the head of a look"),
        ("# look 5.0 1\nvllm:num_requests_running x\n", "the reading of 5.000: not a line"),
    ):
        file.write_bytes(gzip.compress(text.encode()))
        with pytest.raises(TachoscopeError, match=why) as raised:
            read(file)
        assert str(file) in str(raised.value)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_recording, "MAX_BYTES", 5 << 20)
    for bomb in (b"# look 1.0 1.0\n" + b"a" * (20 << 20), b"# look 1.0 1.0\n" + b"a 1\n" * (3 << 20)):
        (tmp_path / "a.gz").write_bytes(gzip.compress(bomb))
        with pytest.raises(TachoscopeError, match="unpacks to more than 5 MiB"):
            read(tmp_path / "a.gz")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_recording_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "a.serving.gz"
    write(file, [(Snapshot(time=1.0), pages.TGI), (Snapshot(time=2.0), pages.TGI)], catalogue("tgi"))
    content = bytearray(file.read_bytes() if data.draw(st.booleans()) else gzip.decompress(file.read_bytes()))
    for _ in range(3):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content if content[:2] == b"\x1f\x8b" else gzip.compress(bytes(content)))
    try:
        found = read(file)
    except TachoscopeError:
        return
    assert len(found) <= 3  # a damaged line may look like a head
