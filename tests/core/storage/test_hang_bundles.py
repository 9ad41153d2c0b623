"""What was found at hangs, in the store: written once a node, read as one hang."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import hang_bundles
from tachoscope_core.storage.hang_bundles import (
    MOST_BYTES,
    SCHEMA,
    FoundHang,
    HangBundle,
    ProcessEvidence,
    ThreadEvidence,
    hangs,
    last_hang,
    parse,
    read,
    write,
    write_dump,
)
from tachoscope_core.storage.store import Store


def bundle(node: str, since: float, attempt: int = 0) -> HangBundle:
    return HangBundle(job="job", attempt=attempt, node=node, since=since, noticed=since + 11, processes=[ProcessEvidence(0, 7)])


def test_what_the_nodes_found_at_one_hang_is_read_together_the_newest_hang_first(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for one in (bundle("one", 1000.2), bundle("two/odd", 1003.9), bundle("one", 2000.0), bundle("one", 2000.0, attempt=1)):
        write(store, one)

    assert [(hang.attempt, hang.since, len(hang.paths)) for hang in hangs(store, "job")] == [
        (1, 2000, 1),
        (0, 2000, 1),
        (0, 1000, 2),
    ]
    assert [one.attempt for one in last_hang(store, "job").bundles.values()] == [1]
    assert last_hang(store, "job", attempt=2) == FoundHang()
    assert hangs(store, "other") == []


def test_what_a_node_found_again_within_a_minute_is_another_hang(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for one in (bundle("one", 1000.0), bundle("two", 1001.0), bundle("one", 1040.0), bundle("two", 1041.0)):
        write(store, one)

    assert sorted(one.since for one in last_hang(store, "job").bundles.values()) == [1040.0, 1041.0]


def damaged(store: Store) -> dict[str, str]:
    """Write one sound object and those that cannot be used; return by the name of each what is to be said of it."""
    write(store, bundle("good", 1000.0))
    (folder,) = Path(store.url.removeprefix("file://")).glob("jobs/job/hangs/0-1000")
    whole = (folder / "good.json.gz").read_bytes()
    for name, content in {
        "no-gzip": b"no gzip",
        "cut": whole[: len(whole) // 2],
        "bomb": gzip.compress(bytes(MOST_BYTES + 1)),
        "large": os.urandom(MOST_BYTES + 1),
        "deep": gzip.compress(b'{"schema":1,"x":' + b"[" * 200_000),
        "times": gzip.compress(msgspec.json.encode(bundle("times", 1000.0)).replace(b"1000.0", b"-1e300")),
    }.items():
        (folder / f"{name}.json.gz").write_bytes(content)
    write(store, msgspec.structs.replace(bundle("other-job", 1000.0), job="else"))
    (folder.parents[2] / "else/hangs/0-1000/other-job.json.gz").rename(folder / "other-job.json.gz")
    os.mkfifo(folder / "pipe.json.gz")
    (folder / "link.json.gz").symlink_to(folder / "good.json.gz")
    return {
        "no-gzip": "not gzip",
        "cut": "cut short",
        "bomb": "larger than 8 MiB",
        "large": "larger than 8 MiB",
        "deep": "not the evidence of a hang",
        "times": "not the evidence of a hang",
        "other-job": "is of job 'else'",
        "pipe": "not a regular file",
        "link": "",
    }


def test_an_object_that_cannot_be_used_is_refused_by_its_name_and_costs_no_other(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    says = damaged(store)
    found = last_hang(store, "job")

    assert [one.node for one in found.bundles.values()] == ["good"]
    refused = {Path(path).name.removesuffix(".json.gz"): why for path, why in found.refused.items()}
    for name in says.keys() - {"link"} | refused.keys():
        assert says[name] in refused[name] and f"{name}.json.gz" in refused[name]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"{}", "not the evidence of a hang"),
        (b"[1]", "not the evidence of a hang"),
        (b'{"schema": %d}' % (SCHEMA + 1), "newer than the schema"),
    ],
)
def test_what_is_no_bundle_or_a_newer_one_is_refused(document: bytes, says: str) -> None:
    with pytest.raises(TachoscopeError, match=says):
        parse(document, "here")


def test_a_bundle_of_very_many_threads_loses_those_that_matter_least_and_can_be_read(tmp_path: Path) -> None:
    thread = ThreadEvidence(1, "python", frames=["f" * 300] * 40)
    processes = [ProcessEvidence(rank, 7, threads=[thread] * 100) for rank in range(64)]
    large = msgspec.structs.replace(bundle("one", 1000.0), processes=processes)
    found = read(Store(str(tmp_path)), write(Store(str(tmp_path)), large))

    assert {len(process.threads) for process in found.processes} == {4}
    assert "all but the first 4" in found.missing["threads"]


def test_whatever_makes_a_bundle_large_it_is_stored_so_that_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang_bundles, "MOST_BYTES", 20_000)
    thread = ThreadEvidence(1, "python", frames=["f" * 400] * 4)
    kinds: tuple[Literal["rank", "child"], ...] = ("rank", "child")
    processes = [ProcessEvidence(rank, 7, kind, threads=[thread], py_spy="p" * 3000) for rank in range(64) for kind in kinds]
    large = msgspec.structs.replace(bundle("one", 1000.0), processes=processes, ras="r" * 20_000)
    found = read(Store(str(tmp_path)), write(Store(str(tmp_path)), large))

    assert {process.rank for process in found.processes} == set(range(64))
    assert found.missing.keys() == {"ras", "threads", "children"}


def test_a_dump_lies_beside_the_evidence_and_is_no_hang_of_its_own(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, bundle("one", 1000.0))
    name = write_dump(store, bundle("one", 1000.0), 3, b"dump")

    assert (tmp_path / "jobs/job/hangs/0-1000" / name).read_bytes() == b"dump"
    assert len(hangs(store, "job")[0].paths) == 1
