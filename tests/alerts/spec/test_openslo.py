"""OpenSLO v1 files become objectives; every mistake names its file, line and key, and nothing else is ever raised."""

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.slo import AtMost, Gate, MoreThan, Ratio, Selector, Slices, Slo
from tachoscope_core import yaml_text
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.metric import IDENTITY

RATIO = """\
apiVersion: openslo/v1
kind: SLO
metadata:
  name: chat-errors
  displayName: Errors of the chat
  labels: {team: [a, b]}
  annotations:
    tachoscope.dev/area: inference
    tachoscope.dev/owner: inference-serving
    tachoscope.dev/target-source: judgement
    example.com/other: whatever
spec:
  service: chat
  description: >-
    Answers
    that were none.
  budgetingMethod: Occurrences
  timeWindow: [{duration: 4w, isRolling: true}]
  indicator:
    metadata: {name: errors}
    spec:
      ratioMetric:
        counter: true
        bad: {metricSource: {type: tachoscope, spec: {metric: requests_total, labels: {code: [500, "503"]}}}}
        total: {metricSource: {spec: {metric: requests_total, excluding: {code: 404, met: no}}}}
  objectives:
    - target: 0.99
"""
HISTOGRAM = RATIO.replace(
    RATIO[RATIO.index("      ratioMetric:") : RATIO.index("  objectives:")],
    "      thresholdMetric:\n        metricSource: {type: Prometheus, spec: {metric: chat_seconds}}\n",
).replace("    - target: 0.99", "    - {op: lte, value: 0.5, target: 0.99}")
SLICES = (
    HISTOGRAM.replace("Occurrences", "Timeslices")
    .replace(
        "spec: {metric: chat_seconds}",
        "spec: {metric: saved, by: [job], age: true, reduce: min, while: {metric: running, on: [job], for: 1h}, missing: bad}",
    )
    .replace("target: 0.99}", "targetPercent: 99.9, timeSliceTarget: 1, timeSliceWindow: 1m}")
)


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "spec.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def only(path: Path) -> Slo:
    (slo,) = slo_files.read(path)
    return slo


# --- what is read -------------------------------------------------------------------------------------------------------------


def test_a_ratio_of_counters_is_read_with_all_that_its_document_says(written):
    path = written(RATIO)

    assert only(path) == Slo(
        name="chat-errors",
        title="Errors of the chat",
        description="Answers that were none.",
        area="inference",
        indicator=Ratio(
            total=Selector("requests_total", excluding={"code": ("404",), "met": ("no",)}),
            bad=Selector("requests_total", labels={"code": ("500", "503")}),
        ),
        by=IDENTITY,
        target=0.99,
        period_days=28.0,
        alert="ChatErrorsBurn",
        pages=True,
        owner="inference-serving",
        target_source="judgement",
        dashboard="slos",
        path=str(path),
        line=RATIO.splitlines().index("    - target: 0.99") + 1,
    )


def test_a_threshold_on_occurrences_is_a_bucket_of_a_histogram(written):
    assert only(written(HISTOGRAM)).indicator == AtMost(Selector("chat_seconds"), 0.5)


def test_a_threshold_that_good_events_exceed_is_the_same_bucket_the_other_way(written):
    assert only(written(HISTOGRAM.replace("op: lte", "op: gt"))).indicator == MoreThan(Selector("chat_seconds"), 0.5)


def test_a_threshold_on_slices_is_a_gauge_of_entities_and_on_is_a_word_there(written):
    slo = only(written(SLICES))

    gate = Gate(Selector("running"), on=(*IDENTITY, "job"), since_seconds=3600.0)
    assert slo.indicator == Slices(
        Selector("saved"), (*IDENTITY, "job"), "lte", 0.5, reduce="min", age=True, gate=gate, missing="bad"
    )
    assert slo.target == 0.999


def test_several_objectives_are_told_apart_by_their_names_alerts_and_whether_they_page(written):
    text = HISTOGRAM.replace(
        "    - {op: lte, value: 0.5, target: 0.99}",
        "    - {displayName: chat-p99, op: lte, value: 0.5, target: 0.99}\n"
        "    - {displayName: chat-p95, op: lte, value: 0.1, target: 0.95}",
    ).replace(
        "    example.com/other: whatever",
        '    tachoscope.dev/alert: "SlowBurn, SlowerBurn"\n    tachoscope.dev/pages: "true,false"\n'
        '    tachoscope.dev/by: "service, model"\n    tachoscope.dev/least-bad-events: "5"',
    )
    first, second = slo_files.read(written(text))

    assert [(one.name, one.alert, one.pages, one.target, one.by, one.least_bad_events) for one in (first, second)] == [
        ("chat-p99", "SlowBurn", True, 0.99, (*IDENTITY, "service", "model"), 5.0),
        ("chat-p95", "SlowerBurn", False, 0.95, (*IDENTITY, "service", "model"), 5.0),
    ]
    assert second.line == first.line + 1


def test_other_documents_of_the_file_are_skipped_and_a_list_of_documents_is_read(written):
    source = "apiVersion: openslo/v1\nkind: DataSource\nmetadata: {name: p}\nspec: {type: Prometheus, connectionDetails: {a: 1}}\n"
    service = "apiVersion: openslo/v1\nkind: Service\nmetadata: {name: chat}\n"
    listed = "- " + RATIO.replace("\n", "\n  ").rstrip() + "\n"

    slos = [one.name for one in slo_files.read(written("---\n".join([source, RATIO, service, "", listed])))]
    assert slos == ["chat-errors", "chat-errors"]


def test_an_indicator_may_be_a_document_of_its_own(written):
    begin, end = RATIO.index("    spec:\n      ratioMetric"), RATIO.index("  objectives:")
    spec = "\n".join(line[4:] for line in RATIO[begin:end].splitlines())
    sli = f"apiVersion: openslo/v1\nkind: SLI\nmetadata: {{name: errors}}\n{spec}\n"
    slo = RATIO[: RATIO.index("  indicator:")] + "  indicatorRef: errors\n" + RATIO[end:]

    assert only(written(f"{slo}---\n{sli}")).indicator == only(written(RATIO, "inline.yaml")).indicator


def test_a_folder_means_the_yaml_files_in_it_by_name(written, tmp_path: Path):
    written(RATIO.replace("chat-errors", "second"), "b.yml")
    written(RATIO.replace("chat-errors", "first"), "a.yaml")
    written("no objective", "notes.txt")

    assert [slo.name for slo in slo_files.load([tmp_path])] == ["first", "second"]


def test_a_folder_without_specs_and_a_path_that_is_not_there_are_said_to_be_so(tmp_path: Path):
    with pytest.raises(TachoscopeError, match=r"contains no \*\.yaml"):
        slo_files.load([tmp_path])
    with pytest.raises(TachoscopeError, match="does not exist"):
        slo_files.load([tmp_path / "none.yaml"])


# --- mistakes -----------------------------------------------------------------------------------------------------------------

MISTAKES = {
    # what: the text that is changed, its old part, its new part, what the message says (key, offender, way out)
    "another version": (RATIO, "openslo/v1", "openslo/v2", ("apiVersion", "'openslo/v2'", "openslo/v1")),
    "an unknown kind": (RATIO, "kind: SLO", "kind: Objective", ("kind", "'Objective'", "SLO")),
    "an unknown key": (RATIO, "  service: chat", "  servise: chat", ("spec.servise", "unknown key", "service")),
    "a key twice": (RATIO, "  service: chat", "  service: chat\n  service: chat", ("spec.service", "twice", "one of the two")),
    "a name that is none": (RATIO, "name: chat-errors", "name: Chat Errors", ("metadata.name", "'Chat Errors'", "lower-case")),
    "a number as a name": (RATIO, "name: chat-errors", "name: 7", ("metadata.name", "'7'", "quotes")),
    "a target of everything": (RATIO, "target: 0.99", "target: 1", ("objectives[0].target", "is 1", "between 0 and 1")),
    "a target in percent": (RATIO, "target: 0.99", "target: 99.9", ("objectives[0].target", "is 99.9", "between 0 and 1")),
    "a target of words": (RATIO, "target: 0.99", "target: most", ("objectives[0].target", "'most'", "a number")),
    "a target in quotes": (RATIO, "target: 0.99", 'target: "0.99"', ("objectives[0].target", "'0.99'", "without quotes")),
    "a target that is not a number": (RATIO, "target: 0.99", "target: nan", ("objectives[0].target", "'nan'", "number")),
    "two targets": (
        RATIO,
        "target: 0.99",
        "{target: 0.99, targetPercent: 99}",
        ("targetPercent", "cannot be combined with target", "one of the two"),
    ),
    "an unknown annotation of ours": (RATIO, "dev/owner:", "dev/ownr:", ("tachoscope.dev/ownr", "unknown annotation", "dev/owner")),
    "no owner": (RATIO, "    tachoscope.dev/owner: inference-serving\n", "", ("metadata", "tachoscope.dev/owner", "team")),
    "an unknown area": (RATIO, "area: inference", "area: gpus", ("area", "'gpus'", "training or inference")),
    "an alert that is not a name": (
        RATIO,
        "example.com/other: whatever",
        "tachoscope.dev/alert: slow chat",
        ("alert", "'slow chat'", "like"),
    ),
    "a boolean as an annotation": (
        RATIO,
        "example.com/other: whatever",
        "tachoscope.dev/pages: true",
        ("pages", "'true'", "quotes"),
    ),
    "a calendar window": (
        RATIO,
        "{duration: 4w, isRolling: true}",
        "{duration: 4w, calendar: {startTime: 2022-01-01 12:00:00, timeZone: UTC}}",
        ("timeWindow[0].calendar", "not supported", "isRolling: true"),
    ),
    "a window that does not roll": (
        RATIO,
        "isRolling: true",
        "isRolling: false",
        ("isRolling", "not supported", "isRolling: true"),
    ),
    "a month": (RATIO, "duration: 4w", "duration: 1M", ("duration", "'1M'", "28d")),
    "an hour": (RATIO, "duration: 4w", "duration: 1h", ("duration", "'1h'", "28d")),
    "no window": (RATIO, "  timeWindow: [{duration: 4w, isRolling: true}]\n", "", ("spec", "timeWindow", "isRolling: true")),
    "two windows": (RATIO, "isRolling: true}]", "isRolling: true}, {duration: 7d}]", ("timeWindow", "2 windows", "exactly one")),
    "a mean of ratios": (RATIO, "Occurrences", "RatioTimeslices", ("budgetingMethod", "'RatioTimeslices'", "Occurrences")),
    "slices of a ratio": (RATIO, "Occurrences", "Timeslices", ("ratioMetric", "Timeslices", "Occurrences")),
    "a threshold on a ratio": (
        RATIO,
        "- target: 0.99",
        "- {value: 1, target: 0.99}",
        ("objectives[0].value", "ratioMetric", "leave it out"),
    ),
    "a ratio of gauges": (RATIO, "counter: true", "counter: false", ("counter", "is false", "Timeslices")),
    "a ratio without its part": (RATIO, "        bad:", "        bat:", ("bat", "unknown key", "bad")),
    "a query": (
        RATIO,
        "{metric: requests_total, labels",
        "{query: sum(x), labels",
        ("query", "is a query", "total"),
    ),
    "a metric with labels": (RATIO, "{metric: requests_total, labels", "{metric: 'a{b}', labels", ("metric", "'a{b}'", "labels")),
    "another source": (RATIO, "type: tachoscope", "type: Datadog", ("metricSource.type", "'Datadog'", "tachoscope")),
    "no value of a label": (RATIO, '[500, "503"]', "[]", ("labels.code", "empty list", "at least one")),
    "a mapping as a label": (RATIO, '[500, "503"]', "{a: 1}", ("labels.code", "a mapping", "text")),
    "a bucket without its bound": (HISTOGRAM, "op: lte", "op: lt", ("objectives[0].op", "is lt", "op: lte")),
    "a bucket counted from its bound on": (HISTOGRAM, "op: lte", "op: gte", ("objectives[0].op", "is gte", "op: gt")),
    "a part of a histogram": (HISTOGRAM, "chat_seconds", "chat_seconds_bucket", ("metric", "'chat_seconds_bucket'", "without")),
    "no threshold": (HISTOGRAM, "value: 0.5, ", "", ("objectives[0]", "lacks value", "threshold")),
    "an entity of occurrences": (
        HISTOGRAM,
        "{metric: chat_seconds}",
        "{metric: chat_seconds, by: [a]}",
        ("by", "Occurrences", "Timeslices"),
    ),
    "slices of nothing": (SLICES, "by: [job], ", "", ("spec", "lacks by", "entity")),
    "missing of nobody": (SLICES, "while: {metric: running, on: [job], for: 1h}, ", "", ("missing", "is bad", "while")),
    "missing of other entities": (SLICES, "by: [job]", "by: [job, rank]", ("missing", "is bad", "equals by")),
    "a gate on a foreign label": (SLICES, "on: [job]", "on: [host]", ("while.on", "host", "job")),
    "a slice that is half good": (SLICES, "timeSliceTarget: 1", "timeSliceTarget: 0.5", ("timeSliceTarget", "0.5", "write 1")),
    "a slice of an hour": (SLICES, "timeSliceWindow: 1m", "timeSliceWindow: 1h", ("timeSliceWindow", "'1h'", "1m")),
    "an unknown reduction": (SLICES, "reduce: min", "reduce: mean", ("reduce", "'mean'", "max or min")),
    "a kept label that no entity has": (
        SLICES,
        "example.com/other: whatever",
        "tachoscope.dev/by: host",
        ("tachoscope.dev/by", "host", "job"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_file_line_key_offender_and_way_out(mistake: str, written):
    text, old, new, said = MISTAKES[mistake]
    assert text.count(old) >= 1
    path = written(text.replace(old, new, 1))

    with pytest.raises(TachoscopeError) as caught:
        slo_files.read(path)
    place, _, rest = str(caught.value).partition(": ")
    file, _, line = place.rpartition(":")
    assert file == str(path)
    lines = path.read_text().splitlines()
    key = said[0].rpartition(".")[2].partition("[")[0]
    assert any(key in near or near.strip().startswith("-") for near in lines[max(int(line) - 2, 0) : int(line) + 1])
    for part in said:
        assert part in rest


def test_a_reference_to_no_indicator_names_those_that_there_are(written):
    text = RATIO[: RATIO.index("  indicator:")] + "  indicatorRef: other\n" + RATIO[RATIO.index("  objectives:") :]

    with pytest.raises(TachoscopeError, match=r"indicatorRef is 'other': no document of kind SLI .*there is none"):
        slo_files.read(written(text))


# --- nothing else is ever raised ----------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["28d", "lte", "a", "on"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
BASES = [yaml_text.load(text.replace("on: [job]", '"on": [job]')) for text in (RATIO, HISTOGRAM, SLICES)]


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def changed(value: object, path: tuple[str | int, ...], new: object) -> object:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def read_or_refused(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(content)
        file.flush()
        try:
            slos = slo_files.read(Path(file.name))
        except TachoscopeError as error:
            assert file.name in str(error)
            return
        for slo in slos:
            assert 0 < slo.target < 1
            assert slo.line > 0


@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject):
    base = data.draw(st.sampled_from(BASES))
    path = data.draw(st.sampled_from(places(base)))
    read_or_refused(yaml.safe_dump(changed(base, path, data.draw(VALUES))).encode())


@given(st.sampled_from([RATIO, HISTOGRAM, SLICES]), st.integers(0, 2000), st.integers(0, 40), st.text(max_size=12))
def test_any_damage_to_the_text_is_read_or_refused(text: str, place: int, cut: int, put: str):
    read_or_refused((text[:place] + put + text[place + cut :]).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b'a: "\\UFFFFFFFF"', b"[" * 3000, b"a: *b", b"%YAML 9.9\n---\na", b"&a [*a]", b"!!bool x"]
)
def test_what_is_no_yaml_is_refused(content: bytes):
    read_or_refused(content)
