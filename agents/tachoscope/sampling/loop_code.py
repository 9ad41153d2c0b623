"""Tells from the source of a training loop what a statement is for: the model's input, or work on what the model returned.

The names that a statement reads and writes are followed through the loop that calls the model. What the model's arguments are made
of is input, also where it stands between the model and backward (nanoGPT fetches its next batch there); what is made of the model's
result is computing. Whatever else stands before the model delays it, and counts as input. In a loop that calls no model, all that
the loss is made of is computing. No value is read. Without the source, or with a very long one, nothing is known.
"""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Literal

from tachoscope.sampling.stacks import MODEL_FILES, Chain

Role = Literal["input", "model", "result", "other", ""]
"""`model`: within a call of it. `result`: works on what it returned. Empty: not known."""

MOST_LINES = 1500
MOST_FUNCTIONS = 64
MOST_CALLS = 16
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(slots=True)
class Statement:
    """A statement without others in it, or the head of one that has them: its lines, and the names that it reads and writes."""

    first: int
    last: int
    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    """Names of values whose method is called for its effect: `tokens` of `tokens.append(...)`."""


@dataclass(slots=True)
class LoopLines:
    """Lines of a function from which models are called, and gradients computed."""

    models: set[int] = field(default_factory=set)
    backwards: set[int] = field(default_factory=set)


_Function = tuple[str, int, str]


def _function(code: CodeType) -> _Function:
    """Return what identifies a function: stacks that were taken by native code have stand-ins for its code object."""
    return code.co_filename, code.co_firstlineno, code.co_name


class LoopCode:
    """What the statements of a loop are for, by where its model is called and gradients are computed."""

    def __init__(self) -> None:
        self._marks: dict[_Function, LoopLines] = {}
        self._roles: dict[_Function, dict[int, Role]] = {}

    def add_lines(self, *, models: Sequence[Chain], backward: Chain) -> None:
        """Record the source lines from which models and backward are called."""
        for chain in models:
            for code, line in chain:
                self._mark(code, "models", line)
        for code, line in backward:
            self._mark(code, "backwards", line)

    def role(self, chain: Chain) -> Role:
        """Return the role of a stack that is outside of all measured phases."""
        if any(code.co_filename.endswith(MODEL_FILES) for code, _ in chain):
            return "model"
        calling = [(code, line, marks) for code, line in chain if (marks := self._marks.get(_function(code))) is not None]
        # The innermost that calls a model; in a job without any, the innermost that computes gradients.
        for code, line, marks in sorted(calling, key=lambda row: not row[2].models):
            roles = self._roles.get(_function(code))
            if roles is None:
                roles = self._roles[_function(code)] = _roles(code, marks)
            return roles.get(line, "")
        return ""

    def _mark(self, code: CodeType, kind: Literal["models", "backwards"], line: int) -> None:
        function = _function(code)
        marks = self._marks.get(function)
        if marks is None:
            if len(self._marks) >= MOST_FUNCTIONS:
                return
            marks = self._marks[function] = LoopLines()
        lines = getattr(marks, kind)
        if line not in lines and len(lines) < MOST_CALLS:
            lines.add(line)
            self._roles.pop(function, None)


def _roles(code: CodeType, marks: LoopLines) -> dict[int, Role]:
    """Return what each line of a function, or of the loop in it that calls the model, is for."""
    tree = _parsed(code)
    if tree is None:
        return {}
    statements = list(_statements(_loop(tree, marks)))
    assigned = set().union(*(one.writes for one in statements))
    for one in statements:
        one.writes |= one.changes & assigned
    calls = [call for line in marks.models if (call := _innermost(statements, line)) is not None]
    ends = [end for line in marks.backwards if (end := _innermost(statements, line)) is not None]
    results = _results(statements, calls)
    wanted = _wanted(statements, calls, results)
    if not calls:  # then nothing tells input from computing
        results, wanted = _wanted(statements, ends, set()), set()
    found: dict[int, tuple[Statement, Role]] = {}
    # The innermost statement of a line comes last: it decides, unless it shares the line with another one.
    for one in sorted(statements, key=lambda one: one.first - one.last):
        role = _role(one, [*calls, *ends], results, wanted, of_writes=not calls)
        if role == "other" and _delays_the_model(one, ends, calls):
            role = "input"
        for line in range(one.first, one.last + 1):
            before = found.get(line)
            shared = before is not None and (before[0].first, before[0].last) == (one.first, one.last)
            found[line] = (one, "" if shared else role)
    return {line: role for line, (_, role) in found.items()}


def _innermost(statements: Sequence[Statement], line: int) -> Statement | None:
    around = [one for one in statements if one.first <= line <= one.last]
    return min(around, key=lambda one: one.last - one.first, default=None)


def _role(one: Statement, computing: Sequence[Statement], results: set[str], wanted: set[str], *, of_writes: bool) -> Role:
    if any(one is other for other in computing) or (one.writes if of_writes else one.reads) & results:
        return "result"
    return "input" if one.writes & wanted else "other"


def _delays_the_model(one: Statement, ends: Sequence[Statement], calls: Sequence[Statement]) -> bool:
    """Return whether a statement precedes a call of the model, with no backward between them."""
    call = min((call.first for call in calls if call.first > one.last), default=None)
    return call is not None and not any(one.last < end.first < call for end in ends)


def _results(statements: Sequence[Statement], calls: Sequence[Statement]) -> set[str]:
    """Return the names of models' results, and of values derived from them."""
    names = set().union(*(call.writes for call in calls))
    while True:
        more = set().union(*(one.writes for one in statements if one.reads & names)) - names
        if not more:
            return names
        names |= more


def _wanted(statements: Sequence[Statement], calls: Sequence[Statement], results: set[str]) -> set[str]:
    """Return the names of models' arguments, and of the values that these derive from."""
    names = set().union(*(call.reads for call in calls)) - results
    while True:
        makers = [one for one in statements if one.writes & names and not one.reads & results]
        more = set().union(*(one.reads for one in makers)) - names - results
        if not more:
            return names
        names |= more


def _parsed(code: CodeType) -> ast.Module | None:
    lines = [line for _, _, line in code.co_lines() if line]
    first = 1 if code.co_name == "<module>" else code.co_firstlineno
    last = max(lines, default=first)
    source = linecache.getlines(code.co_filename)
    if code.co_name == "<module>":
        last = len(source)
    if not source or last - first >= MOST_LINES:
        return None
    try:
        tree = ast.parse(textwrap.dedent("".join(source[first - 1 : last])))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    ast.increment_lineno(tree, first - 1)
    return tree


def _loop(tree: ast.Module, marks: LoopLines) -> Sequence[ast.stmt]:
    """Return the outermost loop that calls models, and computes gradients if the function does; else the whole function."""
    body = tree.body
    if len(body) == 1 and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        body = body[0].body
    loops = [
        node for node in ast.walk(ast.Module(body=body, type_ignores=[])) if isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    ]
    for lines in (marks.models | marks.backwards, marks.models):
        around = [node for node in loops if all(node.lineno <= line <= (node.end_lineno or 0) for line in lines)]
        if around:
            return [max(around, key=_length)]
    return body


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno


def _statements(body: Sequence[ast.stmt]) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, _SCOPES):
            continue
        heads, bodies = _parts(node)
        if bodies:
            last = max((getattr(head, "end_lineno", None) or node.lineno for head in heads), default=node.lineno)
            yield _statement(node.lineno, last, heads)
            for inner in bodies:
                yield from _statements(inner)
        else:
            yield _statement(node.lineno, node.end_lineno or node.lineno, [node])


def _parts(node: ast.stmt) -> tuple[list[ast.AST], list[list[ast.stmt]]]:
    """Return what stands in the head of a compound statement, and its bodies."""
    bodies = [getattr(node, name) for name in ("body", "orelse", "finalbody") if getattr(node, name, None)]
    bodies += [handler.body for handler in getattr(node, "handlers", ())]
    bodies += [case.body for case in getattr(node, "cases", ())]
    heads = [getattr(node, name) for name in ("target", "iter", "test", "subject") if hasattr(node, name)] if bodies else []
    heads += [part for item in getattr(node, "items", ()) for part in (item.context_expr, item.optional_vars) if part is not None]
    return heads, bodies


def _statement(first: int, last: int, nodes: Sequence[ast.AST]) -> Statement:
    found = Statement(first, last)
    for node in nodes:
        _follow(node, found)
        if isinstance(node, ast.AugAssign):
            found.reads |= found.writes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            found.changes |= _names(node.value.func.value)
    return found


def _follow(node: ast.AST, found: Statement) -> None:
    """Add the names that a node reads and writes, without those of called functions."""
    if isinstance(node, ast.Name):
        (found.reads if isinstance(node.ctx, ast.Load) else found.writes).add(node.id)
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        (found.reads if isinstance(node.ctx, ast.Load) else found.writes).add(f"self.{node.attr}")
        return
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
        found.writes |= _names(node.value)
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.Call) and child is node.func and _is_function(child):
            continue
        _follow(child, found)


def _is_function(node: ast.AST) -> bool:
    """Whether a function is called, such as `model(x)` or `self.model(x)`, and not a method of a value: `batch.to(device)`."""
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def _names(node: ast.AST) -> set[str]:
    found = Statement(0, 0)
    _follow(node, found)
    return found.reads | found.writes
