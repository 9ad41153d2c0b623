"""PrometheusRule resources, judged by types made from the operator's own CRDs (package cloudcoil-models-prometheus-operator)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sample_slos import PLACES, SAMPLES
from tachoscope_alerts.build import LABELS, prometheus_rule
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.slo import Slo


def refused(document: dict[str, Any]) -> list[str]:
    """Return what the operator's types find wrong with a resource, or lose of it."""
    import pydantic
    from cloudcoil.models.prometheus_operator import v1

    try:
        model = v1.PrometheusRule.model_validate(document)
    except pydantic.ValidationError as error:
        return [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
    kept = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return [] if kept == document else [f"became {kept}"]


def made_of(slo: Slo) -> dict[str, Any]:
    return prometheus_rule(slo.name, groups(slo, PLACES, Timing()))


@pytest.mark.parametrize("slo", SAMPLES, ids=lambda slo: slo.name)
def test_the_operator_takes_a_manifest_and_loses_no_field_of_it(slo: Slo) -> None:
    assert refused(made_of(slo)) == []


@pytest.mark.parametrize(
    ("place", "key"),
    [((), "spek"), (("spec",), "rules"), (("spec", "groups", 0), "every"), (("spec", "groups", 0, "rules", 0), "expression")],
)
def test_a_field_that_the_operator_does_not_know_would_be_found(place: tuple[Any, ...], key: str) -> None:
    document = copy.deepcopy(made_of(SAMPLES[0]))
    at: Any = document
    for step in place:
        at = at[step]
    at[key] = "1m"

    assert refused(document) != []


def test_a_manifest_has_the_labels_by_which_a_prometheus_chooses_its_rules() -> None:
    document = prometheus_rule("goodput", [], {"release": "kube-prometheus-stack"})

    assert document["metadata"]["labels"] == {**LABELS, "release": "kube-prometheus-stack"}
    assert "release" not in prometheus_rule("goodput", [])["metadata"]["labels"]


def test_the_rules_of_a_manifest_are_those_of_the_file() -> None:
    slo = SAMPLES[0]
    document = made_of(slo)

    assert document["spec"]["groups"] == groups(slo, PLACES, Timing())
    assert document["metadata"]["name"] == f"tachoscope-{slo.name}"
