"""The life cycle of nodes with its store and a scheduler: what is kept, done, logged and left alone."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from msgspec import structs

from node_world import HOUR
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import watch as names
from tachoscope_core.storage import preflights
from tachoscope_core.storage.node_status import NodeStatus, XidStatus
from tachoscope_core.storage.preflights import NodeResult
from tachoscope_core.storage.store import Store
from tachoscope_service.common.log import Log
from tachoscope_watch.nodes.lifecycle import NodeLifecycle
from tachoscope_watch.nodes.rules_file import read_rules
from tachoscope_watch.nodes.slurm import SlurmNodes
from tachoscope_watch.nodes.states import Actions, Judged, Node, Return, Rules, Seen
from tachoscope_watch.nodes.stored import Lifecycle

NOW = 1e9


class PlantedCluster:
    """A scheduler of four nodes that remembers what was done to it, or refuses."""

    name = "slurm"
    starts_tests = False

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        self.done: list[str] = []
        self.fault: TachoscopeError | None = None

    def nodes(self, now: float, out: Collection[str]) -> dict[str, Seen]:
        if self.fault is not None:
            raise self.fault
        names = [f"node{number}" for number in range(4)]
        return {
            name: Seen(name, now, _whose(self.reasons.get(name, "")), reason=self.reasons.get(name, ""))  # type: ignore[arg-type]
            for name in names
        }

    def drain(self, node: str, reason: str) -> None:
        self.done.append(f"drain {node}")
        self.reasons[node] = f"tachoscope: {reason}"

    def resume(self, node: str) -> None:
        self.done.append(f"resume {node}")
        del self.reasons[node]

    def test(self, node: str, test: str, seconds: float) -> None:
        raise AssertionError("slurmd starts the tests")


def _whose(reason: str) -> str:
    return ("us" if reason.startswith("tachoscope") else "others") if reason else ""


class Cluster:
    """A store, a planted cluster, and a watch that may be another one at each look."""

    def __init__(self, folder: Path, actions: Actions = "on") -> None:
        self.store, self.planted, self.now = Store(str(folder)), PlantedCluster(), NOW
        self.kept, self.rules = Lifecycle(self.store), Rules(scheduler="slurm", actions=actions, most_out=1)
        self.statuses: list[NodeStatus] = []

    def look(self) -> NodeLifecycle:
        self.now += 60
        log = Log(logging.getLogger("test"))
        watch = NodeLifecycle(self.store, self.rules, self.planted, log, clock=lambda: self.now)
        watch.take_jobs(self.now, [], self.statuses)
        watch.look()
        return watch

    def node(self, name: str) -> Node:
        fleet = self.kept.fleet()
        assert fleet is not None
        return fleet.nodes.get(name, Node(name))

    def plant_xid(self, name: str) -> None:
        self.statuses = [NodeStatus(name, self.now, 30.0, 30.0, [], NOW - 9 * HOUR, [XidStatus("79", "3", self.now + 30)])]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path)
    found.look()
    return found


def test_a_node_with_an_xid_is_drained_tested_and_returned_by_any_watch_and_each_action_is_in_the_audit_log(
    cluster: Cluster,
) -> None:
    cluster.plant_xid("node2.cluster.example")
    cluster.look()
    reason = dict(cluster.planted.reasons)
    cluster.look()
    asked = cluster.node("node2").test
    cluster.kept.write_test(Judged("node2", asked, cluster.now, "fit"))
    cluster.look()
    cluster.look()

    assert reason == {"node2": "tachoscope: Xid: 79 on GPU 3"} and cluster.planted.done == ["drain node2", "resume node2"]
    assert cluster.node("node2").state == "returned" and not cluster.planted.reasons
    lines = cluster.kept.audit_lines(node="node2")
    assert [line.after or f"{line.what} {line.outcome}" for line in lines] == [
        *("suspect", "quarantined", "drain begun", "drain done", "testing", "returned", "resume begun", "resume done"),
    ]
    assert lines[3].undo == "tachoscope nodes return node2"


def test_an_unfit_preflight_takes_a_node_out_and_a_person_returns_it_without_a_test(cluster: Cluster) -> None:
    preflights.write(
        cluster.store, NodeResult(host="node1", time=cluster.now + 30, measurements=[], verdict="unfit", why="storage is slow")
    )
    cluster.look()
    cluster.look()
    cluster.kept.ask(Return("node1", cluster.now, "me"))
    cluster.look()
    cluster.look()

    assert cluster.planted.done == ["drain node1", "resume node1"] and cluster.node("node1").why == "by me"


@pytest.mark.parametrize("actions", ["off", "dry-run"])
def test_unless_actions_are_on_nothing_is_done_and_a_dry_run_says_once_what_would_be(tmp_path: Path, actions: Actions) -> None:
    cluster = Cluster(tmp_path, actions)
    cluster.look()
    cluster.plant_xid("node1")
    watch = cluster.look()
    watch.look()

    assert cluster.planted.done == [] and cluster.node("node1").state == "quarantined"
    outcomes = [line.outcome for line in cluster.kept.audit_lines() if line.what != "state"]
    assert outcomes == (["dry run"] if actions == "dry-run" else [])


def test_a_node_that_somebody_else_drained_is_left_alone_and_without_an_answer_nothing_is_done(cluster: Cluster) -> None:
    cluster.planted.reasons["node1"] = "new fans"
    cluster.plant_xid("node1")
    cluster.look()
    other = cluster.node("node1")
    cluster.planted.fault = TachoscopeError("it does not answer")
    cluster.plant_xid("node3")
    cluster.look()

    assert (other.state, other.held) == ("suspect", "it is drained already: new fans") and cluster.planted.done == []
    assert cluster.node("node3").held == "slurm does not report such a node"


def test_nodes_that_a_limit_keeps_in_service_are_counted_and_others_are_not(cluster: Cluster) -> None:
    cluster.planted.reasons["node3"] = "new fans"
    xids = [
        NodeStatus(f"node{n}", cluster.now, 30.0, 30.0, [], NOW - 9 * HOUR, [XidStatus("79", "3", cluster.now + 30)])
        for n in range(4)
    ]
    cluster.rules = structs.replace(cluster.rules, breaker_most=9)
    cluster.statuses = xids
    cluster.look()

    (held,) = (family.points for family in cluster.look().families if family.metric is names.WATCH_NODES_HELD)
    assert held == [((), 2.0)]  # of four one is out, as many as may be, and one was drained by somebody else


def test_what_another_user_wrote_into_the_store_is_not_acted_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.kept.ask(Return("node1", cluster.now, "somebody"))
    (path,) = cluster.kept.requests([])
    files = cluster.store.files
    monkeypatch.setattr(type(files), "with_owner", lambda _, asked: (4711, Path(asked).read_bytes()))
    faults: list[str] = []

    assert cluster.kept.requests(faults) == {}
    assert len(faults) == 1 and faults[0].startswith(f"{path} in store {cluster.store.url} belongs to user 4711, and is not used")


def test_slurm_is_asked_for_one_node_by_argument_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "node1|idle|none|\nnode2|draining|tachoscope: Xid|\nnode3|drained|new fans|\nnode4|down*|Not responding|\n"
    for name in ("sinfo", "scontrol"):
        program = f'#!{sys.executable}\nimport sys\nopen("{tmp_path}/{name}.args", "a").write(repr(sys.argv[1:]))\n'
        (tmp_path / name).write_text(program + (f"print({said!r}, end='')" if name == "sinfo" else ""))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    slurm = SlurmNodes()

    found = slurm.nodes(NOW, ())
    slurm.drain("node1", 'Xid "79"\n; reboot')

    assert {name: (one.drained_by, one.busy) for name, one in found.items()} == {
        "node1": ("", False),
        "node2": ("us", True),
        "node3": ("others", False),
        "node4": ("", False),
    }
    arguments = ["update", "nodename=node1", "state=drain", "reason=tachoscope: Xid '79' ; reboot"]
    assert (tmp_path / "scontrol.args").read_text() == repr(arguments)
    for many in ("node[1-4]", "ALL", "node1,node2"):
        with pytest.raises(TachoscopeError, match="is not the name of one node"):
            slurm.drain(many, "")


def test_rules_have_a_limit_and_errors_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text("scheduler: slurm\nmost_out: 5%\nevidence: {killed: 0}\nbreaker: {most: 2, within: 30m}\n")
    rules = read_rules(file)

    assert (rules.actions, rules.limit(100), rules.weights["killed"], rules.breaker_seconds) == ("off", 5, 0, 1800.0)
    for text, error in (
        ("scheduler: slurm\n", "nodes.yaml:1: the document lacks most_out"),
        ("scheduler: slurm\nmost_out: 200%\n", "nodes.yaml:2: most_out is 200%"),
        ("scheduler: slurm\nmost_out: 1\nactions: yes\n", "nodes.yaml:3: actions is 'yes'"),
        ("scheduler: slurm\nmost_out: 1\ntest: {pod: {containers: []}}\n", "nodes.yaml:3: test.pod is only for kubernetes"),
        ("scheduler: kubernetes\nmost_out: 1\ntest:\n  pod: {volumes: []}\n", "nodes.yaml:4: test.pod lacks containers"),
    ):
        file.write_text(text)
        with pytest.raises(TachoscopeError, match=error):
            read_rules(file)
