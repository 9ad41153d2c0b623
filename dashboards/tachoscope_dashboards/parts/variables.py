"""Variables of the boards. Links carry them from board to board by name, so a name means the same on each.

Most take several values, and all: `.*`, which matches series without the label too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tachoscope_core.metrics.metric import NAMESPACE as WORKLOAD_NAMESPACE

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
WHERE = 'cluster=~"$cluster", namespace=~"$namespace"'
"""Matchers of every expression on raw series: a board's scope."""
CHOSEN_PLACE = f'cluster=~"$cluster", {WORKLOAD_NAMESPACE}=~"${WORKLOAD_NAMESPACE}"'
"""Matchers of what rules record by job or service: the namespace of the agents is not left there."""
OF_WORKLOADS = f'{WHERE}, {WORKLOAD_NAMESPACE}=~"${WORKLOAD_NAMESPACE}"'
"""Matchers of every expression on raw series of jobs or services, on boards that have one of the variables below."""

JOB_NAMESPACE = Variable(WORKLOAD_NAMESPACE, WORKLOAD_NAMESPACE, f"tachoscope_job_active{{{WHERE}}}", "Namespaces of jobs")
SERVICE_NAMESPACE = Variable(
    WORKLOAD_NAMESPACE, WORKLOAD_NAMESPACE, f"tachoscope_requests_total{{{WHERE}}}", "Namespaces of services"
)
TRAINING_JOB = Variable("training_job", "training_job", f"tachoscope_job_active{{{OF_WORKLOADS}}}", "Training job")

_OF_JOB = f'tachoscope_job_active{{{OF_WORKLOADS}, training_job=~"$training_job"%s}}'
_JOB_CLUSTER, _JOB_NAMESPACE = ', cluster=~"$job_cluster"', f', {WORKLOAD_NAMESPACE}=~"$job_namespace"'
ONE_JOB = (
    replace(TRAINING_JOB, one=True),
    Variable("job_cluster", "cluster", _OF_JOB % "", "Cluster of the job", one=True),
    Variable("job_namespace", WORKLOAD_NAMESPACE, _OF_JOB % _JOB_CLUSTER, "Namespace of the job", one=True),
    Variable("job_team", "team", _OF_JOB % f"{_JOB_CLUSTER}{_JOB_NAMESPACE}", "Team of the job", one=True),
)
"""The job of a board of one job, whose panels sum over all that they read. Where several have its name the first is chosen, and
others can be. `cluster` only narrows what can be chosen: a link may bring several, or all."""
JOB_CLUSTER = 'cluster=~"$job_cluster", namespace=~"$namespace"'
"""Matchers of raw series of nodes on boards of one job."""
THIS_JOB = f'{JOB_CLUSTER}{_JOB_NAMESPACE}, team=~"$job_team", training_job=~"$training_job"'
"""Matchers of raw series of the one job."""
THIS_JOB_RECORDED = f'cluster=~"$job_cluster"{_JOB_NAMESPACE}, team=~"$job_team", training_job=~"$training_job"'
"""Matchers of what rules record of the one job."""
RANK = Variable("rank", "rank", f"tachoscope_steps_total{{{THIS_JOB}}}", "Rank")
SERVICE = Variable("service", "service", f"tachoscope_requests_total{{{OF_WORKLOADS}}}", "Service")
MODEL = Variable("model", "model", f'tachoscope_requests_total{{{OF_WORKLOADS}, service=~"$service"}}', "Model")
SLO = Variable("slo", "slo", "slo:objective:ratio", "Objective")
