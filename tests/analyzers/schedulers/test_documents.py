"""The objects that the tests read are what the APIs define: judged by the schemas of Kubernetes and of Kubeflow's packages."""

from __future__ import annotations

import json
import re

import pytest

import cluster_making as make
from cluster_making import Object, condition, indexed, of_jobset, of_pytorchjob, pod
from helpers import REPOSITORY
from kubernetes_rules import schema_faults
from tachoscope_cli.sources.kubernetes import CUSTOM
from tachoscope_core import yaml_text

VERSION = "1.34"
JOB = make.job("train", 0, condition("Complete", 900), completionTime=make.when(900))
JOBSET = make.jobset("train", 0, condition("Completed", 901), restarts=1)
WORKLOAD = make.workload(JOB, 0, condition("QuotaReserved", 40), flavor="h100", evictions=1)
OBJECTS = [
    JOB,
    make.pytorchjob("train", 0),
    pod("t-0", 0, owner=JOB, labels=indexed(0)),
    pod("t-0", 0, owner=JOBSET, scheduled=1, ran=2, ended=3, exit_code=1, disrupted="PreemptionByScheduler", labels=of_jobset(0)),
    pod("t-0", 0, scheduled=1, ran=2, restarts=1, labels=of_pytorchjob("master", 0)),
    make.event(JOB, "Started", 0),
    make.event(WORKLOAD, "QuotaReserved", 0, newer=True),
]


@pytest.mark.parametrize("document", OBJECTS, ids=lambda document: document["kind"])
def test_each_made_object_is_valid(document: Object) -> None:
    if document["kind"] == "PyTorchJob":
        document = {key: value for key, value in document.items() if key != "status"}
    assert schema_faults(document, VERSION) == []


def test_a_made_jobset_and_trainjob_have_the_fields_that_kubeflow_publishes() -> None:
    from kubeflow_trainer_api.models import JobsetV1alpha2JobSet, TrainerV1alpha1TrainJob  # it takes 2 s, once

    trainjob = make.trainjob("train", 0, condition("Complete", 900))
    for document, model in (JOBSET, JobsetV1alpha2JobSet), (trainjob, TrainerV1alpha1TrainJob):
        # What the package does not know it drops; times come back as times.
        kept = json.dumps(model.from_dict(document).to_dict(), default=lambda time: time.strftime("%Y-%m-%dT%H:%M:%SZ"))
        assert json.loads(kept) == document


PAGE = (REPOSITORY / "docs" / "guides" / "schedulers.md").read_text()
(ROLE,) = (yaml_text.load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL))


def test_the_rights_in_the_documentation_are_valid_and_only_to_look() -> None:
    assert schema_faults(ROLE, VERSION) == []
    assert {verb for rule in ROLE["rules"] for verb in rule["verbs"]} == {"get", "list"}


def test_the_rights_in_the_documentation_are_those_that_are_used() -> None:
    granted = {(group, plural) for rule in ROLE["rules"] for group in rule["apiGroups"] for plural in rule["resources"]}

    assert granted == {("", "pods"), ("", "events"), ("batch", "jobs")} | {(group, plural) for group, _, plural in CUSTOM}
