"""Variables of the boards. Links carry them from board to board by name, so a name means the same on each.

Most take several values, and all: `.*`, which matches series without the label too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tachoscope_core.metric import NAMESPACE as WORKLOAD_NAMESPACE

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
ONE_CLUSTER = replace(CLUSTER, one=True)
NAMESPACE = Variable("namespace", "namespace", 'tachoscope_agent_info{cluster=~"$cluster"}', "Namespace of the agents")
NODE = Variable("node", "instance", 'tachoscope_agent_info{cluster=~"$cluster", namespace=~"$namespace"}', "Node")
WHERE = 'cluster=~"$cluster", namespace=~"$namespace"'
"""Matchers of every expression on raw series: a board's scope."""
CHOSEN_PLACE = f'cluster=~"$cluster", {WORKLOAD_NAMESPACE}=~"${WORKLOAD_NAMESPACE}"'
"""Matchers of what rules record by job or service: the namespace of the agents is not left there."""
OF_WORKLOADS = f'{WHERE}, {WORKLOAD_NAMESPACE}=~"${WORKLOAD_NAMESPACE}"'
"""Matchers of every expression on raw series of jobs or services, on boards that have one of the variables below."""

JOB_NAMESPACE = Variable(WORKLOAD_NAMESPACE, WORKLOAD_NAMESPACE, f"tachoscope_job_active{{{WHERE}}}", "Namespace of the job")
ONE_JOB_NAMESPACE = replace(JOB_NAMESPACE, one=True)
SERVICE_NAMESPACE = Variable(
    WORKLOAD_NAMESPACE, WORKLOAD_NAMESPACE, f"tachoscope_requests_total{{{WHERE}}}", "Namespace of the service"
)
TRAINING_JOB = Variable("training_job", "training_job", f"tachoscope_job_active{{{OF_WORKLOADS}}}", "Training job")
ONE_JOB = replace(TRAINING_JOB, one=True)
"""Its panels sum over all that they read: its board has `ONE_CLUSTER` and `ONE_JOB_NAMESPACE` too, or jobs of one name add up."""
RANK = Variable("rank", "rank", f'tachoscope_steps_total{{{OF_WORKLOADS}, training_job=~"$training_job"}}', "Rank")
SERVICE = Variable("service", "service", f"tachoscope_requests_total{{{OF_WORKLOADS}}}", "Service")
MODEL = Variable("model", "model", f'tachoscope_requests_total{{{OF_WORKLOADS}, service=~"$service"}}', "Model")
SLO = Variable("slo", "slo", "slo:objective:ratio", "Objective")
