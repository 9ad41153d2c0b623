"""Variables of the boards. Links carry them from board to board by name, so a name means the same on each.

Most take several values, and all: `.*`, which matches series without the label too.
"""

from __future__ import annotations

from dataclasses import dataclass

DATASOURCE = "datasource"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable whose values are those that a label has.

    Attributes:
        name: as `$name` in expressions. label: of the series. source: a selector of the series that have it, which may use
            variables that the board has before this one. title: for people. one: takes one value only, never all.
        some: takes several, but never all: where a fleet's would be too much. listed: all are those that `source` has, not `.*`.
    """

    name: str
    label: str
    source: str
    title: str
    one: bool = False
    some: bool = False
    listed: bool = False


CLUSTER = Variable("cluster", "cluster", "tachoscope_agent_info", "Cluster")
NAMESPACE = Variable("namespace", "namespace", 'tachoscope_agent_info{cluster=~"$cluster"}', "Namespace of the agents")
NODE = Variable("node", "instance", 'tachoscope_agent_info{cluster=~"$cluster", namespace=~"$namespace"}', "Node")
TRAINING_JOB = Variable(
    "training_job", "training_job", 'tachoscope_job_active{cluster=~"$cluster", namespace=~"$namespace"}', "Training job"
)
ONE_JOB = Variable(
    "training_job", "training_job", 'tachoscope_job_active{cluster=~"$cluster", namespace=~"$namespace"}', "Training job", one=True
)
RANK = Variable("rank", "rank", 'tachoscope_steps_total{training_job=~"$training_job"}', "Rank")
SERVICE = Variable("service", "service", 'tachoscope_requests_total{cluster=~"$cluster", namespace=~"$namespace"}', "Service")
MODEL = Variable("model", "model", 'tachoscope_requests_total{service=~"$service"}', "Model")
SLO = Variable("slo", "slo", "slo:objective:ratio", "Objective")

WHERE = 'cluster=~"$cluster", namespace=~"$namespace"'
"""Matchers of every expression on raw series: a board's scope."""
