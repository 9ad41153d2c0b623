"""Documents of the store that are acted on: in a directory only those of root and of this process's user count."""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store

MAX_BYTES = 1 << 20
"""A longer document is not read, unless the reader allows it."""
_T = TypeVar("_T")


def read_document(store: Store, path: str, kind: type[_T], *, most_bytes: int = MAX_BYTES) -> _T | None:
    """Return a document of JSON; None: there is none at this path.

    Raises:
        TachoscopeError: it cannot be read, is not valid, or belongs to another user.
    """
    try:
        uid, data = store.files.with_owner(path) if store.local else (os.geteuid(), store.files.cat_file(path))
    except FileNotFoundError:
        return None
    except Exception as error:
        raise TachoscopeError(f"could not read {path} in store {store.url}: {error}") from None
    if uid not in {0, os.geteuid()}:
        raise TachoscopeError(f"{path} in store {store.url} belongs to user {uid}, and is not used", fix="use your own store")
    try:
        return msgspec.json.decode(data[: most_bytes + 1], type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TachoscopeError(f"{path} in store {store.url} is not a valid document: {error}") from None
