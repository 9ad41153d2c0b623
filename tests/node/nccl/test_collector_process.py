"""A real agent beside files as NCCL's Inspector writes them: what /metrics and the store then say."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fake_ras import communicator, fake_ras
from inspecting import Inspector
from processes import agent_process, wait_for
from spool_writing import Process
from tachoscope_core.records.records import CollectiveDone, decode
from tachoscope_core.storage.store import Store


def number(page: str, series: str) -> float:
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, flags=re.MULTILINE)
    return float(found[1]) if found else -1.0


def test_lines_of_the_inspector_become_metrics_and_records_of_their_job(tmp_path: Path) -> None:
    inspector = Inspector(tmp_path / "inspector" / "nccl-inspector-17")
    nccl = {"inspector": [str(tmp_path / "inspector")], "record_one_in": 1}
    with agent_process(tmp_path, nccl=nccl) as agent:
        process = Process(agent.spool / "run", world_size=4)
        process.start(pid=os.getpid())
        wait_for(lambda: 'training_job="job"' in agent.get("/metrics"))
        inspector.operation(count=23, microseconds=2000)
        labels = '{collective="all_reduce",group="all",size_class="<=16MiB",training_job="job"}'
        seconds = "tachoscope_nccl_collective_seconds"
        wait_for(lambda: number(agent.get("/metrics"), f"{seconds}_count{labels}") == 23)
        page = agent.get("/metrics")

        def records() -> list[CollectiveDone]:
            store = Store(str(agent.settings["store"]))
            lines = [line for segment in store.segments("job") for line in store.read(segment).splitlines()]
            return [record for record in map(decode, lines) if isinstance(record, CollectiveDone)]

        wait_for(lambda: len(records()) == 23)
        found = records()

    assert round(number(page, f"{seconds}_sum{labels}"), 9) == 0.046
    assert number(page, f"tachoscope_nccl_bus_bytes_total{labels}") == 23 * 1.5 * (1 << 24)
    assert number(page, 'tachoscope_nccl_lines_total{outcome="counted"}') == 23
    assert number(page, 'tachoscope_agent_rejected_total{reason="identity"}') == 0, "what the agent wrote is not a rank's own word"
    assert {(one.rank, one.group, one.group_size, one.seconds, one.communicator) for one in found} == {
        (0, "", 4, 0.002, "0x9e17999afaa87dbb")
    }
    assert sorted(one.sequence for one in found) == list(range(23))


def test_ras_is_asked_by_the_node_of_rank_0_once_its_job_has_made_a_step_and_a_hang_is_told(tmp_path: Path) -> None:
    with fake_ras() as server:
        server.communicators = [communicator(41, 40)]
        nccl = {"ras": f"127.0.0.1:{server.address[1]}", "ras_interval_seconds": 1, "hung_polls": 2}
        process = Process(tmp_path / "spool" / "run", world_size=2)
        process.start(pid=os.getpid())
        with agent_process(tmp_path, nccl=nccl) as agent:
            wait_for(lambda: "nccl_ras: no_data: a rank has not finished its first step" in agent.log.read_text())
            assert server.commands == []
            process.step()
            hung = 'tachoscope_nccl_communicators{state="hung"}'
            wait_for(lambda: number(agent.get("/metrics"), hung) == 1)
            page = agent.get("/metrics")
            log = agent.log.read_text()

    assert number(page, "tachoscope_nccl_ras_up") == 1
    assert "WARNING" in next(row for row in log.splitlines() if "hangs: none of its ranks launched anything" in row)
    assert "rank 1 (process 1001 on 172.16.64.245) launched 40 AllReduce where others launched 41" in log
    assert server.most_open == 1


def test_a_node_without_rank_0_leaves_the_asking_to_the_one_that_has_it(tmp_path: Path) -> None:
    process = Process(tmp_path / "spool" / "run", rank=1, world_size=2)
    process.start(pid=os.getpid())
    process.step()
    with fake_ras() as server, agent_process(tmp_path, nccl={"ras": f"localhost:{server.address[1]}"}) as agent:
        wait_for(lambda: "nccl_ras: no_data: the node of rank 0 asks" in agent.log.read_text())

        assert server.commands == []
