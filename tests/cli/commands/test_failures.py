"""`tachoscope store failures`, over the records of planted lives."""

import json

import pytest

from life_making import PlantedLife
from tachoscope_cli.app import call
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store, default_url


def put(life: PlantedLife) -> None:
    lines = b"".join(map(records.encode, life.rows))
    Store(default_url()).write(life.job, host="node-0", writer="0" * 36, attempt=0, offset=0, time=1.7e9, lines=lines)


def planted(job: str, *, attempts_that_fail_on_host_1: int) -> PlantedLife:
    life = PlantedLife(job)
    last = attempts_that_fail_on_host_1
    for attempt in range(last + 1):
        start = attempt * 40.0
        for rank in range(2):
            own = {"start": start, "host": f"node-{rank}"}
            life.process(rank, [1.0] * 20, attempt=attempt, begin=start + 5, left=start + 25.0 if attempt == last else None, **own)
            if attempt < last:
                life.gone(rank, start + 26.0 - rank, attempt=attempt, **own)  # rank 1 first: the other dies of it
    return life


def test_failures_of_all_jobs_are_counted_by_host_and_job(capsys: pytest.CaptureFixture[str]) -> None:
    put(planted("resnet", attempts_that_fail_on_host_1=5))
    put(planted("gpt", attempts_that_fail_on_host_1=2))
    put(planted("fine", attempts_that_fail_on_host_1=0))

    assert call(["store", "failures", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["by_job"] == {"resnet": 5, "gpt": 2}
    assert found["by_host"] == {"node-1": 7}
    assert found["by_shard"] == {}
    [suspect] = found["suspects"]
    assert (suspect["kind"], suspect["name"], suspect["expected"]) == ("host", "node-1", 3.5)
    assert suspect["confidence"] == pytest.approx(1 - 2 * 0.5**7)  # all seven on one of two hosts, and both were looked at

    assert call(["store", "failures"]) == 0
    assert "host node-1: 7 failures, 3.5 expected" in capsys.readouterr().out


def test_a_store_without_failures_says_so_and_an_empty_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TachoscopeError, match="holds no job"):
        call(["store", "failures"])

    put(planted("fine", attempts_that_fail_on_host_1=0))

    assert call(["store", "failures"]) == 0
    assert capsys.readouterr().out == "no failure\n"
