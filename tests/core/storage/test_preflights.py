"""Results of preflights in the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tachoscope_core.storage import preflights
from tachoscope_core.storage.preflights import Measurement, NodeResult
from tachoscope_core.storage.store import Store


def write(store: Store, host: str, time: float) -> str:
    measured = Measurement(name="memory_copy_bytes_per_second", median=time)
    return preflights.write(store, NodeResult(host=host, time=time, measurements=[measured]))


def test_a_host_keeps_its_newest_results_and_those_of_others(tmp_path: Path) -> None:
    store, faults = Store(str(tmp_path)), list[str]()
    write(store, "other", 1.0)
    for time in range(preflights.MOST_KEPT + 3):
        write(store, "node", float(time))

    found = list(preflights.read_all(store, faults))

    assert [one.time for one in found if one.host == "node"] == [float(time) for time in range(3, preflights.MOST_KEPT + 3)]
    assert [one.time for one in found if one.host == "other"] == [1.0]
    assert not faults


def test_what_cannot_be_read_is_named_and_the_others_count(tmp_path: Path) -> None:
    store, faults = Store(str(tmp_path)), list[str]()
    write(store, "node", 1.0)
    broken = Path(write(store, "broken", 1.0))
    broken.write_bytes(b"{}")

    assert [one.host for one in preflights.read_all(store, faults)] == ["node"]
    assert [str(broken) in fault for fault in faults] == [True]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_results_do_not_count(tmp_path: Path) -> None:
    store, faults = Store(str(tmp_path)), list[str]()
    os.chown(write(store, "node", 1.0), 4321, -1)

    assert list(preflights.read_all(store, faults)) == []
    assert "belongs to user 4321" in faults[0]
