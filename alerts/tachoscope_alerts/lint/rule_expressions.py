"""What is wrong with the expressions of rules: names, labels, windows that read raw series for too long, thresholds above all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tachoscope_alerts import promql
from tachoscope_alerts.compile import sli_expressions
from tachoscope_alerts.lint.catalogue import Catalogue
from tachoscope_alerts.lint.label_flow import KEEPING, LabelFault, faults, labels_of_absent
from tachoscope_alerts.promql import Aggregation, Binary, Call, Constant, Series
from tachoscope_alerts.spec.burn_rate_windows import FEASIBLE, RAW_LIMIT_SECONDS, duration
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value, documents
from tachoscope_core.metrics.metric import IDENTITY, WORKLOADS


@dataclass(frozen=True, slots=True)
class RuleFault:
    """A fault in a rule of a file; `rule` is the name of its alert or of what it records."""

    path: str
    line: int
    rule: str
    fault: LabelFault


def faults_of(expression: str, known: Catalogue) -> list[LabelFault]:
    """Return what is wrong with an expression of a rule: all that is wrong with a query, and labels that a rule has to keep.

    Raises:
        TachoscopeError: it cannot be read.
    """
    return [*faults_of_query(expression, known), *_identity(promql.parse(expression))]


def merged_workloads(expression: str) -> list[LabelFault]:
    """Return where an expression that people look at groups or joins by a job's or service's name, and drops what tells it apart.

    Raises:
        TachoscopeError: it cannot be read.
    """
    found: list[LabelFault] = []
    for node in promql.walk(promql.parse(expression)):
        if isinstance(node, Aggregation) and not node.without and set(WORKLOADS) & set(node.labels or ()):
            # A `topk by` keeps labels, and yet chooses among all jobs of one name.
            found += _dropped(node.function, node.labels or (), listed_are_dropped=False)
        elif isinstance(node, Aggregation) and node.without and node.function not in KEEPING:
            found += _dropped(node.function, node.labels or (), listed_are_dropped=True)
        elif isinstance(node, Binary) and (node.ignoring or set(WORKLOADS) & set(node.matching or ())):
            found += _dropped(f"`{node.operator}`", node.matching or (), listed_are_dropped=node.ignoring)
    return list(dict.fromkeys(found))


def faults_of_query(expression: str, known: Catalogue) -> list[LabelFault]:
    """Return what is wrong with an expression that people look at, such as a board's.

    Raises:
        TachoscopeError: it cannot be read.
    """
    tree = promql.parse(expression)
    return [*faults(expression, known), *_long_windows(tree, known), *_impossible(tree)]


def check(folder: Path, known: Catalogue) -> list[RuleFault]:
    """Return what is wrong with the rules below a folder, of Prometheus's files and of PrometheusRule manifests.

    Raises:
        TachoscopeError: a file cannot be read.
    """
    return [fault for path in sorted(folder.rglob("*.y*ml")) for fault in _of_file(path, known)]


def _of_file(path: Path, known: Catalogue) -> Iterator[RuleFault]:
    for document in documents(path):
        if document.is_list:
            continue
        for rule in _rules(document.section()):
            expression = rule.required("expr", "add expr")
            name = rule.get("alert") or rule.required("record", "add alert or record")
            try:
                found = faults_of(expression.word(), known)
            except TachoscopeError as error:
                found = [LabelFault(str(error), "correct the expression")]
            for fault in found:
                yield RuleFault(str(path), rule.place.line, name.word(), fault)


def _rules(document: Section) -> Iterator[Section]:
    spec = document.get("spec")
    groups: Value | None = document.get("groups") or (spec.section().get("groups") if spec else None)
    for group in groups.items() if groups else []:
        rules = group.section().get("rules")
        for rule in rules.items() if rules else []:
            yield rule.section()


def _long_windows(tree: promql.Expression, known: Catalogue) -> Iterator[LabelFault]:
    """Yield raw series read over more than `RAW_LIMIT_SECONDS`: with 10,000 GPUs each evaluation takes minutes."""
    for series, seconds in promql.read(tree):
        of = known.get(series.metric)
        if seconds > RAW_LIMIT_SECONDS and not (of is not None and of.recorded):
            what = f"raw series {series.metric or 'without a name'} over {duration(seconds)}"
            yield LabelFault(
                what, f"record it over a shorter window: above {duration(RAW_LIMIT_SECONDS)} only recorded series are read"
            )


def _identity(tree: promql.Expression) -> Iterator[LabelFault]:
    """Yield dropped labels that separate workloads of one name: a healthy one would hide another's fault."""
    for node in promql.walk(tree):
        if isinstance(node, Aggregation) and not (node.without and node.function in KEEPING):
            # A `topk` keeps labels, and yet chooses among the clusters.
            yield from _dropped(node.function, node.labels or (), listed_are_dropped=node.without)
        elif isinstance(node, Call):
            yield from _hidden(node)
        elif isinstance(node, Binary) and node.matching is not None:
            yield from _dropped(f"`{node.operator}`", node.matching, listed_are_dropped=node.ignoring)


def _dropped(where: str, labels: tuple[str, ...], *, listed_are_dropped: bool) -> Iterator[LabelFault]:
    if listed_are_dropped:
        dropped = [label for label in IDENTITY if label in labels]
    else:
        wanted = IDENTITY if set(WORKLOADS) & set(labels) else IDENTITY[:1]
        dropped = [label for label in wanted if label not in labels]
    if dropped:
        what = f"{where} ({', '.join(labels)}) drops {', '.join(dropped)}: jobs or services of one name hide each other"
        yield LabelFault(what, f"keep {', '.join(IDENTITY)}; of nodes {IDENTITY[0]} (docs/guides/alerting.md)")


def _hidden(call: Call) -> Iterator[LabelFault]:
    """Yield `absent` over all clusters, which one cluster's series ends, and labels that are overwritten."""
    function = call.function.lower()
    if function in {"absent", "absent_over_time"} and IDENTITY[0] not in labels_of_absent(call.arguments[0]):
        what = f"{function} covers all clusters: it returns nothing while one of them has a series"
        yield LabelFault(what, f'select one cluster: {IDENTITY[0]}="a", or {IDENTITY[0]}="" for series without the label')
    if function in {"label_replace", "label_join"} and len(call.arguments) > 1:
        written = call.arguments[1]
        if isinstance(written, Constant) and written.text in IDENTITY:
            what = f"{function} overwrites {written.text}: jobs or services of one name hide each other"
            yield LabelFault(what, "write another label")


def _impossible(tree: promql.Expression) -> Iterator[LabelFault]:
    """Yield comparisons of an error ratio with impossible values."""
    for node in promql.walk(tree):
        if not (isinstance(node, Binary) and node.operator in {">", ">="} and isinstance(node.right, Constant)):
            continue
        if isinstance(node.left, Series) and node.left.metric == sli_expressions.ERROR_RATIO and node.right.number > FEASIBLE:
            yield LabelFault(f"an error ratio above {node.right.text} hardly is or never", f"compare with at most {FEASIBLE:g}")
