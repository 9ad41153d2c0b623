"""Pickles without code: an unpickler that knows plain values only, and refuses all else by its opcode."""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar, NoReturn

_PLAIN = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINUNICODE
    BINUNICODE8 EMPTY_DICT SETITEM SETITEMS EMPTY_LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT
    LONG_BINPUT BINGET LONG_BINGET MEMOIZE
"""
"""What PyTorch's writer uses (torch/csrc/jit/serialization/pickler.h), and what Python's does for the same values."""


class RefusedError(ValueError):
    """The pickle holds more than plain values."""


_Unpickler: Any = pickle.__dict__["_Unpickler"]  # Python's own: the one in C makes room for any memo it is told of


class _Plain(_Unpickler):  # type: ignore[misc]  # which typeshed does not know
    """Has no way to a class, a function or a persistent object: their opcodes are not in its table."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: function
        for code, function in _Unpickler.dispatch.items()
        if code in {getattr(pickle, name)[0] for name in _PLAIN.split()}
    }

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise RefusedError(f"it asks for {module_name}.{global_name}")

    def load_setitems_of_plain_keys(self) -> None:
        _refuse_other_keys(self.stack[0::2])
        super().load_setitems()

    def load_setitem_of_plain_key(self) -> None:
        _refuse_other_keys(self.stack[-2:-1])
        super().load_setitem()

    dispatch[pickle.SETITEMS[0]] = load_setitems_of_plain_keys  # it is this table that is asked, not the names of methods
    dispatch[pickle.SETITEM[0]] = load_setitem_of_plain_key


def _refuse_other_keys(keys: list[Any]) -> None:
    """Refuse keys whose hash could take for ever: tuples of tuples."""
    for key in keys:
        if type(key) not in (str, int):
            raise RefusedError(f"a key of a dictionary is a {type(key).__name__}")


def plain_values(data: bytes) -> Any:
    """Return what a pickle of plain values holds: None, numbers, text, lists, tuples, dictionaries.

    Raises:
        RefusedError: it holds something else. Exception: it is damaged, or no pickle; of which kind is Python's affair.
    """
    try:
        return _Plain(io.BytesIO(data)).load()
    except KeyError as error:
        raise RefusedError(f"it holds something that is not a plain value (opcode {error.args[0]!r})") from None
