"""What values.schema.json has to say of `config`: every key of the agent's configuration, its type and its range."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from tachoscope_node.config.device_filter import DEFAULT_FILTERS
from tachoscope_node.config.load import RANGES

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def schema(hint: Any, key: str = "") -> dict[str, Any]:
    """Return the JSON schema of a type of the configuration; `key` is its dotted path."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _object({name: schema(part, f"{key}.{name}".strip(".")) for name, part in get_type_hints(hint).items()})
    if hint in _TYPES:
        low_high = zip(("minimum", "maximum"), RANGES.get(key, ()), strict=False)
        return {"type": _TYPES[hint], **dict(low_high)}
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if get_origin(hint) is dict:
        inner = schema(get_args(hint)[1])
        return (
            _object(dict.fromkeys(DEFAULT_FILTERS, inner))
            if key == "devices"
            else {"type": "object", "additionalProperties": inner}
        )
    if get_origin(hint) is list:
        return {"type": "array", "items": schema(get_args(hint)[0])}
    parts = [part for part in get_args(hint) if part is not type(None)]
    if bool in parts:  # as which YAML reads a plain `on` and `off`
        return {"enum": [*get_args(parts[0]), True, False]}
    (part,) = parts
    return schema(part, key)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
