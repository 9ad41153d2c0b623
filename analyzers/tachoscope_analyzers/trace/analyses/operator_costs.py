"""FLOPs and bytes of an operator's call, from the shapes, types and values of its arguments."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from math import nan, prod
from typing import Any

import msgspec

from tachoscope_analyzers.data.package_data import shipped
from tachoscope_analyzers.trace.events.dtypes import element_bytes

Shape = list[int]
Arguments = dict[str, Any]


class OperatorCost(msgspec.Struct, frozen=True):
    """Work of one call: FLOPs, bytes that must move at least, and the type of its first tensor. NaN is unknown."""

    flops: float = nan
    bytes: float = nan
    dtype: str = ""

    @property
    def known(self) -> bool:
        """Whether FLOPs or bytes are known."""
        return not (math.isnan(self.flops) and math.isnan(self.bytes))


UNKNOWN = OperatorCost()


class OperatorCall(msgspec.Struct, frozen=True):
    """Arguments of a call: shape, type and (for scalars and lists) value of each as text, empty where not recorded."""

    shapes: list[Any]
    types: list[Any]
    values: list[Any]

    def shape(self, position: int | None) -> Shape:
        """Return the shape of the tensor at a position; IndexError or TypeError where there is none."""
        if position is None:
            raise TypeError
        shape = self.shapes[position]
        if not all(isinstance(size, int) for size in shape):
            raise TypeError
        return list(shape)

    def size(self, position: int | None) -> int:
        """Return the bytes of the tensor at a position, 0 without one; ValueError for a type that is not known."""
        if position is None or position >= len(self.shapes) or not self.is_tensor(position):
            return 0
        return prod(self.shape(position)) * self.element(position)

    def is_tensor(self, position: int) -> bool:
        """Return whether the argument is one tensor (of one element, if it has no dimension)."""
        return bool(self.shapes[position]) or element_bytes(str(self.types[position])) > 0

    def element(self, position: int) -> int:
        """Return the bytes of an element of the tensor at a position; ValueError for a type that is not known."""
        found = element_bytes(str(self.types[position]))
        if found < 0:
            raise ValueError(self.types[position])
        return found

    def value(self, position: int | None) -> Any:
        """Return a number, truth value or list that was passed; IndexError or ValueError where it is not recorded."""
        if position is None:
            raise IndexError
        return json.loads(str(self.values[position]).lower())


_Models = dict[str, tuple[Callable[[OperatorCall, Arguments], tuple[float, float]], Arguments]]


@cache
def _models() -> _Models:
    table = shipped("trace/analyses/operator_costs.yaml")
    formulas = {
        "matrix_multiply": _matrix_multiply,
        "convolution": _convolution,
        "convolution_backward": _convolution_backward,
        "attention": _attention,
        "attention_backward": _attention_backward,
        "embedding": _embedding,
    }
    found: _Models = {
        name: (formula, arguments) for key, formula in formulas.items() for name, arguments in table[key]["operators"].items()
    }
    moving = table["bytes"]
    for count, names in moving["same_shape"].items():
        for name in names:
            found[f"aten::{name}"] = (_same_shape, {"count": count})
            found[f"aten::{name}_"] = (_read_and_written, {})
    for count, names in moving["boolean"].items():
        found |= {f"aten::{name}": (_same_shape, {"count": count, "element_bytes": 1}) for name in names}
    found |= {f"aten::{name}": (_first_written, {}) for name in moving["first_written"]}
    found |= {f"aten::{name}": (_read, {}) for name in moving["reduction"]}
    found |= {f"aten::{name}": (_read_and_written, {}) for name in moving["like_first"]}
    return found


def has_model(name: str) -> bool:
    """Return whether there is a formula for an operator."""
    return name in _models()


@cache
def cost_of(name: str, shapes: str, types: str, values: str) -> OperatorCost:
    """Return the work of a call of an operator, its arguments as the trace writes them (JSON); what is not recorded is unknown."""
    if not has_model(name):
        return UNKNOWN
    try:
        call = OperatorCall(*(_list(text) for text in (shapes, types, values)))
        if len(call.types) != len(call.shapes) or not any(call.is_tensor(position) for position in range(len(call.shapes))):
            return UNKNOWN
        formula, arguments = _models()[name]
        flops, moved = formula(call, arguments)
        return OperatorCost(
            float(flops), float(moved), next((str(text) for text in call.types if element_bytes(str(text)) > 0), "")
        )
    except (ArithmeticError, IndexError, TypeError, ValueError):
        return UNKNOWN  # a list where a tensor should be, shapes that do not fit, a value that was not recorded


def _list(text: str) -> list[Any]:
    found = json.loads(text) if text else []
    return found if isinstance(found, list) else []


def _inputs(call: OperatorCall) -> int:
    return sum(call.size(position) for position in range(len(call.shapes)))


def _matrix_multiply(call: OperatorCall, arguments: Arguments) -> tuple[float, float]:
    left, right = call.shape(arguments["left"]), call.shape(arguments["right"])
    if arguments.get("transposed"):
        right = [right[1], right[0]] if len(right) == 2 else [right[0], 1]
    left = left if len(left) > 1 else [1, *left]
    right = right if len(right) > 1 else [*right, 1]
    if left[-1] != right[-2]:
        raise ValueError("the inner dimensions differ")
    batch = _broadcast([left[:-2], right[:-2]])
    out = prod(batch) * left[-2] * right[-1]
    moved = call.size(arguments["left"]) + call.size(arguments["right"]) + call.size(arguments.get("added"))
    return 2 * out * left[-1], moved + out * call.element(arguments["left"])


def _convolution(call: OperatorCall, arguments: Arguments) -> tuple[float, float]:
    image, weight = call.shape(0), call.shape(1)
    space = image[2:]
    if "transposed" in arguments and call.value(arguments["transposed"]):
        return 2 * image[0] * prod(weight) * prod(space), nan
    stride, padding, dilation = (_each(call.value(arguments[name]), len(space)) for name in ("stride", "padding", "dilation"))
    out = [(space[i] + 2 * padding[i] - dilation[i] * (weight[2 + i] - 1) - 1) // stride[i] + 1 for i in range(len(space))]
    moved = call.size(0) + call.size(1) + image[0] * weight[0] * prod(out) * call.element(0)
    return 2 * image[0] * prod(weight) * prod(out), moved


def _convolution_backward(call: OperatorCall, arguments: Arguments) -> tuple[float, float]:
    gradient, image, weight = call.shape(0), call.shape(1), call.shape(2)
    space = image[2:] if call.value(arguments["transposed"]) else gradient[2:]
    asked = call.value(arguments["mask"])[:2]
    written = asked[0] * call.size(1) + asked[1] * call.size(2)
    return 2 * image[0] * prod(weight) * prod(space) * sum(asked), call.size(0) + call.size(1) + call.size(2) + written


def _each(value: Any, count: int) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [int(one) for one in (values * count if len(values) == 1 else values)]


def _attention_shape(call: OperatorCall, arguments: Arguments) -> tuple[int, int, int, int, float]:
    """Return batch x heads, queries x keys, the depths of keys and values, and the computed share."""
    first = arguments["query"]
    lengths = arguments.get("lengths")
    if lengths is not None and call.shapes[lengths]:
        raise ValueError("sequences of several lengths")
    shapes = [call.shape(first + i) for i in range(3)]
    if arguments.get("heads_last"):
        shapes = [[shape[0], shape[2], shape[1], shape[3]] for shape in shapes]
    query, key, value = shapes
    batch, heads, queries, depth = query
    keys = key[2]
    return batch * heads, queries * keys, depth, value[3], 0.5 if call.value(arguments["causal"]) else 1.0


def _attention(call: OperatorCall, arguments: Arguments) -> tuple[float, float]:
    outer, pairs, depth, value_depth, share = _attention_shape(call, arguments)
    written = outer * call.shape(0)[1 if arguments.get("heads_last") else 2] * value_depth * call.element(0)
    return 2 * outer * pairs * (depth + value_depth) * share, sum(call.size(i) for i in range(3)) + written


def _attention_backward(call: OperatorCall, arguments: Arguments) -> tuple[float, float]:
    outer, pairs, depth, value_depth, share = _attention_shape(call, arguments)
    read = sum(call.size(i) for i in range(len(call.shapes)) if call.shapes[i])
    return 2 * outer * pairs * (3 * depth + 2 * value_depth) * share, read + sum(call.size(1 + i) for i in range(3))


def _embedding(call: OperatorCall, _: Arguments) -> tuple[float, float]:
    rows = prod(call.shape(1)) * call.shape(0)[-1] * call.element(0)
    return nan, 2 * rows + call.size(1)


def _same_shape(call: OperatorCall, arguments: Arguments) -> tuple[float, float]:
    last = len(call.shapes) - 1
    into_out = last >= arguments["count"] and call.is_tensor(last)
    tensors = [position for position in range(last if into_out else last + 1) if call.is_tensor(position)]
    shaped = [position for position in tensors if call.shapes[position]] or tensors
    out = prod(_broadcast([call.shape(position) for position in shaped]))
    widest = arguments.get("element_bytes") or max(call.element(position) for position in shaped)
    return nan, sum(call.size(position) for position in tensors) + out * widest


def _first_written(call: OperatorCall, _: Arguments) -> tuple[float, float]:
    return nan, _inputs(call)


_read = _first_written


def _read_and_written(call: OperatorCall, _: Arguments) -> tuple[float, float]:
    return nan, _inputs(call) + call.size(0)


def _broadcast(shapes: list[Shape]) -> Shape:
    """Return the common broadcast shape; ValueError without one."""
    longest = max((len(shape) for shape in shapes), default=0)
    padded = [[1] * (longest - len(shape)) + shape for shape in shapes]
    sizes = [{size for size in column if size != 1} or {1} for column in zip(*padded, strict=True)]
    if any(len(size) > 1 for size in sizes):
        raise ValueError("the shapes do not fit")
    return [size.pop() for size in sizes]
