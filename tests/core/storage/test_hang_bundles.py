"""What was found at hangs, in the store: written once a node, read as one hang."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.hang_bundles import (
    SCHEMA,
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
    assert [one.attempt for one in last_hang(store, "job")[0]] == [1]
    assert last_hang(store, "job", attempt=2) == ([], [])
    assert hangs(store, "other") == []


def test_a_damaged_object_costs_no_other_and_alone_is_an_error_that_names_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, bundle("good", 1000.0))
    damaged = Path(write(store, bundle("bad", 1000.0)))
    damaged.write_bytes(b"no gzip")

    assert [one.node for one in last_hang(store, "job")[0]] == ["good"]
    Path(last_hang(store, "job")[1][0]).unlink()
    with pytest.raises(TachoscopeError, match=r"bad\.json\.gz"):
        last_hang(store, "job")


@pytest.mark.parametrize(
    ("document", "says"),
    [(b"{}", "not what was found"), (b"[1]", "not what was found"), (b'{"schema": %d}' % (SCHEMA + 1), "newer than the schema")],
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


def test_a_dump_lies_beside_the_evidence_and_is_no_hang_of_its_own(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write(store, bundle("one", 1000.0))
    name = write_dump(store, bundle("one", 1000.0), 3, b"dump")

    assert (tmp_path / "jobs/job/hangs/0-1000" / name).read_bytes() == b"dump"
    assert len(hangs(store, "job")[0].paths) == 1
