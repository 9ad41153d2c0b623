"""NVML's answers become numbers in our units."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pynvml

from tachoscope_node.gpu.nvml.conversions import answer_part, converted, link_states, margins, of_field
from trying import each


@each(
    ("raw", "unit", "ours"),
    [
        (97, "percent", 0.97),
        (613_127, "mW", 613.127),
        (9_876_543_211, "mJ", 9_876_543.211),
        (3_000_000_007, "ns", 3.000000007),
        (1755, "MHz", 1.755e9),
        (3, "KiB", 3072.0),
        (2.5, "MiB", 2_621_440.0),
        (71, "°C", 71.0),
        (1, "0 or 1", 1.0),
    ],
)
def test_each_unit_of_nvml_becomes_ours_to_the_last_digit(raw: float, unit: str, ours: float) -> None:
    assert converted(raw, unit) == ours


def field(kind: int, **member: float) -> pynvml.c_nvmlFieldValue_t:
    answer = pynvml.c_nvmlFieldValue_t()
    answer.valueType = kind
    for name, value in member.items():
        setattr(answer.value, name, value)
    return answer


@each(
    ("kind", "member", "number"),
    [
        (pynvml.NVML_VALUE_TYPE_DOUBLE, {"dVal": 2.5}, 2.5),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, {"uiVal": 4_000_000_000}, 4e9),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, {"ulVal": 1 << 40}, float(1 << 40)),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, {"ullVal": 1 << 50}, float(1 << 50)),
        (pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG, {"sllVal": -7}, -7.0),
        (pynvml.NVML_VALUE_TYPE_SIGNED_INT, {"siVal": -1}, -1.0),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT, {"usVal": 23}, 23.0),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, {"uiVal": 0xFFFFFFFF}, None),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, {"ullVal": 0xFFFFFFFFFFFFFFFF}, None),
        (pynvml.NVML_VALUE_TYPE_DOUBLE, {"dVal": math.nan}, None),
        (99, {"ullVal": 1}, None),
    ],
)
def test_a_field_is_read_by_its_type_and_one_without_a_value_is_none(kind: int, member: dict[str, float], number: float) -> None:
    assert of_field(field(kind, **member)) == number


def test_of_an_answer_a_member_an_item_a_bit_its_length_or_itself_is_taken() -> None:
    assert answer_part(SimpleNamespace(gpu=97), "gpu", None, 0) == 97.0
    assert answer_part((3, 5, 7), "", 1, 0) == 5.0
    assert answer_part(0b1010, "", None, 0b1000) == 1.0
    assert answer_part(0b1010, "", None, 0b0100) == 0.0
    assert answer_part([1, 1, 1], "length", None, 0) == 3.0
    assert answer_part(23, "", None, 0) == 23.0
    assert answer_part(math.inf, "", None, 0) is None
    assert answer_part(None, "", None, 0) is None


def test_links_are_counted_by_state() -> None:
    assert link_states([True, False, True]) == {("active",): 2.0, ("inactive",): 1.0}


def test_a_margin_is_known_where_limit_and_temperature_are() -> None:
    assert margins({"gpu": 89.0, "memory": 95.0}, {("gpu",): 90.0}) == {("gpu",): -1.0}
