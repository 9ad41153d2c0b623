"""What `squeue` and `sinfo` print of a cluster; lines as a real Slurm 22.05 printed them unless it says otherwise."""

import pytest

from tachoscope_analyzers.schedulers.slurm import queue_table
from tachoscope_core.errors import TachoscopeError

QUEUE = """\
17_[1-400:3%2]|17|N/A|train|physics|PENDING|1795942533|N/A|cpu=1,mem=4000M,node=1,billing=1,gres/gpu=1|
18_[1,5,7-9]|18|N/A|urgent,train|root|PENDING|1795942533|N/A|cpu=1,node=1,billing=1,gres/gpu=1|
6|6|N/A|train|root|PENDING|N/A|N/A|cpu=1,mem=4000M,node=1,billing=1,gres/gpu=1|
9+1|10|9|train|root|COMPLETING|1795942434|1795942434|cpu=1,node=1,billing=1,gres/gpu:h100=4|
"""
NODES = """\
node1|train|mixed|gpu:2|gpu:2|
node1|urgent|mixed|gpu:2|gpu:2|
node3|train|down|gpu:2|gpu:0|
node4|train|draining|gpu:2|gpu:1|
"""


def test_a_row_of_an_array_counts_as_its_tasks_and_a_component_as_the_job_its_processes_know() -> None:
    first, second, held, component = queue_table.jobs(QUEUE)

    assert (first.tasks, first.accelerators, first.pending, first.eligible) == (134, 1, True, 1795942533.0)
    assert (second.tasks, second.partition) == (5, "urgent,train")
    assert held.eligible is None
    assert (component.job, component.pending, component.accelerators) == ("9", False, 4)


def test_a_node_of_two_partitions_is_one_node() -> None:
    nodes = queue_table.nodes(NODES)

    assert [(node.node, node.state, node.total, node.used) for node in nodes] == [
        ("node1", "usable", 2, 2),
        ("node3", "down", 2, 0),
        ("node4", "drained", 2, 1),
    ]
    assert nodes[0].partitions == ("train", "urgent")


@pytest.mark.parametrize(  # by the sources of Slurm: types, sockets and indices
    ("gres", "used", "counts"),
    [
        ("gpu:h100:8(S:0-1)", "gpu:h100:5(IDX:0,2-5)", (8, 5)),
        ("gpu:a100:2,gpu:v100:2,shard:16", "gpu:a100:1(IDX:0),gpu:v100:0(IDX:N/A),shard:3", (4, 1)),
        ("(null)", "gpu:0", (0, 0)),
        ("gpu:(null):4(S:0)", "gpu:(null):3(IDX:0-2)", (4, 3)),
    ],
)
def test_gpus_are_counted_whatever_is_said_of_their_types_and_places(gres: str, used: str, counts: tuple[int, int]) -> None:
    (node,) = queue_table.nodes(f"node1|train|idle*|{gres}|{used}|\n")

    assert (node.total, node.used) == counts
    assert node.state == "down"  # it does not respond


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("7|7|N/A|train|root|PENDING|2026-11-29T08:53:54|N/A|gres/gpu=1|", "EligibleTime"),
        ("7_[1-9...]|7|N/A|train|root|PENDING|1|N/A|gres/gpu=1|", "JobArrayID"),
        ("7|7|N/A|train|", "line 1: 4 fields, not 9: JobArrayID"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_name_of_its_field(line: str, named: str) -> None:
    with pytest.raises(TachoscopeError, match=named):
        queue_table.jobs(line)
