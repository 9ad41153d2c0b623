import json
import math
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tachoscope_analyzers.trace.analyses.operator_costs import UNKNOWN, OperatorCost, cost_of, has_model

FLOAT, HALF = "float", "c10::BFloat16"


def cost(name: str, shapes: list[Any], types: list[Any] | None = None, values: list[Any] | None = None) -> OperatorCost:
    kinds = [FLOAT if shape else "Scalar" for shape in shapes] if types is None else types
    return cost_of(name, json.dumps(shapes), json.dumps(kinds), "" if values is None else json.dumps(values))


def counted(call: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()


def test_matrix_products_have_the_flops_that_pytorch_counts() -> None:
    make = torch.rand
    left, right, batch, other, bias = make(5, 7), make(7, 11), make(3, 5, 7), make(3, 7, 11), make(11)
    assert cost("aten::mm", [[5, 7], [7, 11]]).flops == counted(lambda: left @ right)
    assert cost("aten::addmm", [[11], [5, 7], [7, 11], [], []]).flops == counted(lambda: torch.addmm(bias, left, right))
    assert cost("aten::bmm", [[3, 5, 7], [3, 7, 11]]).flops == counted(lambda: torch.bmm(batch, other))
    assert cost("aten::matmul", [[3, 5, 7], [7, 11]]).flops == counted(lambda: batch @ right)
    linear = counted(lambda: torch.nn.functional.linear(batch, right.T, bias))
    assert cost("aten::linear", [[3, 5, 7], [11, 7], [11]]).flops == linear


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_have_the_flops_that_pytorch_counts(stride: int, padding: int, dilation: int, groups: int) -> None:
    image, weight = torch.rand(2, 4, 9, 11), torch.rand(6, 4 // groups, 3, 3)
    expected = counted(lambda: torch.conv2d(image, weight, None, stride, padding, dilation, groups))
    values = ["", "", "", f"[{stride}, {stride}]", f"[{padding}]", f"[{dilation}, {dilation}]", "False", "[0, 0]", str(groups)]
    shapes = [list(image.shape), list(weight.shape), [], [], [], [], [], [], []]
    assert cost("aten::convolution", shapes, None, values).flops == expected


def test_the_backward_pass_of_a_convolution_has_the_flops_that_pytorch_counts() -> None:
    image, weight = torch.rand(2, 4, 9, 11, requires_grad=True), torch.rand(6, 4, 3, 3, requires_grad=True)
    forward = counted(lambda: torch.conv2d(image, weight))
    whole = counted(lambda: torch.conv2d(image, weight).sum().backward())
    shapes = [[2, 6, 7, 9], [2, 4, 9, 11], [6, 4, 3, 3], [], [], [], [], [], [], [], []]
    values = ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    assert cost("aten::convolution_backward", shapes, None, values).flops == whole - forward


def test_transposed_convolutions_have_the_flops_that_pytorch_counts() -> None:
    image, weight = torch.rand(2, 4, 9, 11), torch.rand(4, 6, 3, 3)
    values = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"]
    shapes = [list(image.shape), list(weight.shape), [], [], [], [], [], [], []]
    expected = counted(lambda: torch.conv_transpose2d(image, weight, stride=2, padding=1))
    assert cost("aten::convolution", shapes, None, values).flops == expected


def test_attention_has_the_flops_of_its_two_products_and_half_of_them_when_causal() -> None:
    shapes = [[2, 3, 5, 8], [2, 3, 7, 8], [2, 3, 7, 8], [], [], []]
    full = cost("aten::scaled_dot_product_attention", shapes, None, ["", "", "", "", "0.", "False"])
    causal = cost("aten::scaled_dot_product_attention", shapes, None, ["", "", "", "", "0.", "True"])
    assert full.flops == 2 * 2 * 3 * 5 * 7 * (8 + 8)
    assert causal.flops == full.flops / 2
    shapes = [[2, 5, 3, 8], [2, 7, 3, 8], [2, 7, 3, 8], [], [], [], [], [], []]
    flash = cost("aten::_flash_attention_forward", shapes, None, ["", "", "", "", "", "5", "7", "0.", "False"])
    assert flash.flops == full.flops
    assert flash.bytes == full.bytes == 4 * 2 * 3 * (2 * 5 * 8 + 2 * 7 * 8)


def test_the_backward_pass_of_attention_has_five_products_for_two() -> None:
    shapes = [[2, 3, 5, 8]] * 4 + [[]] * 8
    backward = cost("aten::_scaled_dot_product_flash_attention_backward", shapes, None, [""] * 11 + ["False"])
    assert backward.flops == 5 * 2 * 2 * 3 * 5 * 5 * 8


@pytest.mark.parametrize(
    ("name", "shapes", "elements"),
    [
        ("aten::mm", [[5, 7], [7, 11]], 5 * 7 + 7 * 11 + 5 * 11),
        ("aten::add", [[4, 1], [1, 6], []], 4 + 6 + 24),
        ("aten::add_", [[4, 6], [4, 6], []], 3 * 24),
        ("aten::copy_", [[4, 6], [6]], 24 + 6),
        ("aten::sum", [[4, 6], [], []], 24),
        ("aten::native_layer_norm", [[4, 6], [], [6], [6], []], 2 * 24 + 12),
        ("aten::_softmax", [[4, 6], [], []], 2 * 24),
    ],
)
@pytest.mark.parametrize(("dtype", "size"), [(FLOAT, 4), (HALF, 2)])
def test_bytes_are_those_of_the_inputs_and_the_output(name: str, shapes: list[Any], elements: int, dtype: str, size: int) -> None:
    types = [dtype if shape else "Scalar" for shape in shapes]
    assert cost(name, shapes, types).bytes == elements * size


def test_what_compares_writes_one_byte_an_element() -> None:
    assert cost("aten::eq", [[4, 6], []]).bytes == 24 * 4 + 24


def test_an_embedding_moves_the_rows_that_it_looks_up() -> None:
    assert cost("aten::embedding", [[1000, 8], [3, 2], []], [FLOAT, "long int", "Scalar"]).bytes == 2 * 6 * 8 * 4 + 6 * 8


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values"),
    [
        ("aten::my_operator", [[4]], [FLOAT], None),
        ("aten::mm", [], [], None),
        ("aten::mm", [[5, 7]], [FLOAT], None),
        ("aten::mm", [[5, 7], [8, 11]], [FLOAT, FLOAT], None),
        ("aten::mm", [[5, 7], [7, 11]], ["strange", "strange"], None),
        ("aten::mm", [[[5, 7]], [7, 11]], ["TensorList", FLOAT], None),
        ("aten::add", [[4], [5], []], [FLOAT, FLOAT, "Scalar"], None),
        ("aten::convolution", [[2, 4, 9, 9], [6, 4, 3, 3], []], [FLOAT, FLOAT, ""], None),
        ("aten::scaled_dot_product_attention", [[2, 3, 5, 8]] * 3, [FLOAT] * 3, None),
        ("aten::_flash_attention_forward", [[9, 3, 8]] * 3 + [[4]] * 2, [FLOAT] * 3 + ["int"] * 2, [""] * 9),
        ("aten::fill_", [[], []], ["", "Scalar"], None),
    ],
)
def test_what_the_trace_does_not_tell_stays_unknown(
    name: str, shapes: list[Any], types: list[Any], values: list[Any] | None
) -> None:
    found = cost(name, shapes, types, values)
    assert found == UNKNOWN or (math.isnan(found.flops) and math.isnan(found.bytes))
    assert not found.known


def test_text_that_is_no_list_is_unknown() -> None:
    for text in ("", "{}", "[", "7", '"x"', "[[5, 7], [7, 11]"):
        assert not cost_of("aten::mm", text, '["float", "float"]', "").known


def test_the_table_names_operators_once() -> None:
    assert has_model("aten::mm")
    assert has_model("aten::relu_")
    assert not has_model("aten::conv_of_my_own")
