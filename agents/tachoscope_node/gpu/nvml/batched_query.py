"""Asks one GPU for the values of many sources: those that are fields in one call, of the others each function once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tachoscope_node.gpu.nvml.conversions import answer_part, converted, of_field
from tachoscope_node.gpu.nvml.driver import LOST, STOPPED, code_of, raise_if_down
from tachoscope_node.gpu.nvml.sources import ValueSource

_NOTHING = 3
"""NOT_SUPPORTED, for an answer that holds no number."""
_Call = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BatchedQuery:
    """Sources, arranged for asking. fields and ids go together; calls: function and arguments with the sources of its answer."""

    fields: tuple[ValueSource, ...]
    ids: tuple[tuple[int, int], ...]
    calls: tuple[tuple[str, tuple[int, ...], tuple[ValueSource, ...]], ...]


@dataclass(slots=True)
class QueryResult:
    """What a GPU said. values: in our units; refused: NVML's return code of each source that gave none."""

    values: list[tuple[ValueSource, float]] = field(default_factory=list)
    refused: dict[ValueSource, int] = field(default_factory=dict)


def batch(sources: Iterable[ValueSource]) -> BatchedQuery:
    """Return the sources arranged so that all fields are one call, and each function one call."""
    sources = tuple(sources)
    fields = tuple(source for source in sources if source.field)
    calls: dict[_Call, list[ValueSource]] = {}
    for source in sources:
        if source.call:
            calls.setdefault((source.call, source.arguments), []).append(source)
    ids = tuple((source.field, source.scope) for source in fields)
    return BatchedQuery(fields, ids, tuple((name, arguments, tuple(of_call)) for (name, arguments), of_call in calls.items()))


def query_gpu(nvml: Any, handle: Any, wanted: BatchedQuery) -> QueryResult:
    """Ask a GPU.

    Raises:
        NVMLError: the GPU is lost or the driver has stopped; all other errors are among the answers.
    """
    answers = QueryResult()
    if wanted.fields:
        _ask_fields(nvml, handle, wanted, answers)
    for function, arguments, sources in wanted.calls:
        try:
            answer = getattr(nvml, function)(handle, *arguments)
        except nvml.NVMLError as error:
            answers.refused.update(dict.fromkeys(sources, _code(error)))
            continue
        for source in sources:
            _store_answer(answers, source, answer_part(answer, source.take, source.item, source.bit))
    return answers


def _ask_fields(nvml: Any, handle: Any, wanted: BatchedQuery, answers: QueryResult) -> None:
    try:
        fields = nvml.nvmlDeviceGetFieldValues(handle, wanted.ids)
    except nvml.NVMLError as error:
        answers.refused.update(dict.fromkeys(wanted.fields, _code(error)))
        return
    for source, answer in zip(wanted.fields, fields, strict=True):
        if code := answer.nvmlReturn:
            if code == LOST or code in STOPPED:
                raise nvml.NVMLError(code)
            answers.refused[source] = code
        else:
            _store_answer(answers, source, of_field(answer))


def _code(error: Exception) -> int:
    """Return the code of an error after which the GPU still works."""
    raise_if_down(error)
    return code_of(error) or 0


def _store_answer(answers: QueryResult, source: ValueSource, number: float | None) -> None:
    if number is None:
        answers.refused[source] = _NOTHING
    else:
        answers.values.append((source, converted(number, source.unit)))
