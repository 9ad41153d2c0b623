"""What is read of the compilations that torch keeps: records as versions of torch write them, and no torch."""

from types import SimpleNamespace
from typing import Any

import pytest

from tachoscope.compilation.dynamo_metrics import DynamoMetrics
from tachoscope_core.records.records import DYNAMO_RESET

MISMATCH = "0/0: tensor 'x' size mismatch at index 1. expected 128, actual 131\nUser stack trace:\n  File ..."
LIMIT = "Dynamo recompile limit exceeded\n  Explanation: ... exceeding the recompile_limit cache size limit (currently set to 8)."


def kept(*rows: Any, breaks: list[Any] | None = None) -> SimpleNamespace:
    return SimpleNamespace(_compilation_metrics=list(rows), graph_break_reasons=breaks or [])


def forward(compile_id: str, **changes: Any) -> SimpleNamespace:
    code = {"co_filename": "/job/model.py", "co_firstlineno": 88, "co_name": "forward"}
    times = {"start_time_us": 1_000_000, "end_time_us": 3_500_000, "entire_frame_compile_time_s": 2.0}
    more = {"recompile_reason": None, "cache_size": 0, "is_forward": True, "fail_type": None, "fail_reason": None}
    return SimpleNamespace(compile_id=compile_id, **{**code, **times, **more, **changes})


def break_at(line: int, file: str = "/job/model.py") -> SimpleNamespace:
    return SimpleNamespace(
        reason="Data-dependent branching\n more", user_stack=[SimpleNamespace(filename=file, lineno=line, name="f")]
    )


def test_a_compilation_has_its_code_its_seconds_and_its_end() -> None:
    (found,) = DynamoMetrics(kept(forward("0/0"))).new_compilations()

    assert (found.place, found.compile_id, found.seconds, found.end_seconds) == ("model.py:88 forward", "0/0", 2.0, 3.5)
    assert (found.recompiled, found.reason, found.limit, found.failure, found.backward) == (False, "", "", "", False)


def test_each_compilation_is_returned_once_also_where_torch_has_dropped_the_last_known_one() -> None:
    utils = kept(forward("0/0"))
    metrics = DynamoMetrics(utils)

    assert len(metrics.new_compilations()) == 1
    assert metrics.new_compilations() == []
    utils._compilation_metrics = [forward("0/1"), forward("0/2")]
    assert not metrics.missed
    assert [one.compile_id for one in metrics.new_compilations()] == ["0/1", "0/2"]
    assert metrics.missed


def test_of_a_recompilation_the_guard_is_told_and_its_backward_is_one_too() -> None:
    backward = SimpleNamespace(
        compile_id="0/1", is_forward=False, backward_cumulative_compile_time_us=500_000, end_time_us=9_000_000
    )
    rows = DynamoMetrics(kept(forward("0/0"), forward("0/1", recompile_reason=MISMATCH, cache_size=1), backward)).new_compilations()

    assert [one.recompiled for one in rows] == [False, True, True]
    assert rows[1].reason == "0/0: tensor 'x' size mismatch at index 1. expected 128, actual 131"
    assert (rows[2].place, rows[2].seconds, rows[2].backward) == ("model.py:88 forward", 0.5, True)


def test_a_limit_that_was_hit_is_told_with_its_value_and_the_code() -> None:
    hit = SimpleNamespace(compile_id="0/8", recompile_reason=MISMATCH, fail_type="Unsupported", fail_reason=LIMIT, end_time_us=1)
    rows = DynamoMetrics(kept(forward("0/0"), hit)).new_compilations()

    assert (rows[1].limit, rows[1].place, rows[1].failure) == ("recompile_limit (8)", "model.py:88 forward", "Unsupported")


@pytest.mark.parametrize(("cache_size", "recompiled"), [(0, False), (1, True)])
def test_a_version_without_reasons_and_ids_still_tells_what_was_compiled_again(cache_size: int, recompiled: bool) -> None:
    row = SimpleNamespace(
        co_filename="/job/model.py",
        co_firstlineno=88,
        co_name="forward",
        cache_size=cache_size,
        start_time=10.0,
        entire_frame_compile_time_s=1.5,
        fail_type=None,
        fail_reason=None,
    )
    (found,) = DynamoMetrics(kept(row)).new_compilations()

    assert (found.recompiled, found.reason, found.seconds, found.end_seconds) == (recompiled, "", 1.5, 11.5)


def test_what_is_compiled_after_a_reset_of_torch_is_compiled_again_and_numbers_mean_other_code_since() -> None:
    other = {"co_firstlineno": 5, "co_name": "loss"}
    backward = SimpleNamespace(compile_id="1/0", is_forward=False)
    hit = SimpleNamespace(compile_id="0/8", recompile_reason=MISMATCH, fail_type="Unsupported", fail_reason=LIMIT)
    utils = kept(forward("0/0"), forward("1/0", **other))
    metrics = DynamoMetrics(utils)
    before = metrics.new_compilations()
    utils._compilation_metrics += [forward("0/0", co_name="new"), forward("1/0"), backward, forward("2/0", **other), hit]
    after = metrics.new_compilations()

    assert [one.recompiled for one in before] == [False, False]
    assert [(one.recompiled, one.reason) for one in after[:4]] == [
        (False, ""),
        (True, DYNAMO_RESET),
        (True, ""),
        (True, DYNAMO_RESET),
    ]
    assert [one.place for one in after[1:]] == ["model.py:88 forward"] * 2 + ["model.py:5 loss", "model.py:88 new"]


def test_what_is_tuned_when_code_first_runs_is_no_compilation() -> None:
    assert DynamoMetrics(kept(SimpleNamespace(compile_id="0/0", is_runtime=True))).new_compilations() == []


def test_graph_breaks_are_told_once_a_line_with_the_innermost_line_of_the_users() -> None:
    import json

    inner = break_at(7)
    inner.user_stack.append(SimpleNamespace(filename=json.__file__, lineno=1, name="loads"))
    metrics = DynamoMetrics(kept(breaks=[inner, break_at(9), break_at(9)]))

    assert metrics.new_graph_breaks() == {"model.py:7 f": "Data-dependent branching", "model.py:9 f": "Data-dependent branching"}
    assert metrics.new_graph_breaks() == {}


def test_a_version_that_keeps_nothing_is_known_as_such() -> None:
    assert not DynamoMetrics(SimpleNamespace()).is_kept
    assert DynamoMetrics(SimpleNamespace()).new_compilations() == []
    assert DynamoMetrics(SimpleNamespace()).new_graph_breaks() == {}
