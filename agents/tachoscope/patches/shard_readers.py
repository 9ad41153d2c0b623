"""What libraries that stream shards read, and what of it fails: webdataset and mosaicml-streaming.

Only what they look up again at each call is wrapped, never a function that a pipeline holds: that one would be pickled for a
spawned loader worker, and the wrapped one is another. Where a version lacks a name, nothing is wrapped.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import stat
import weakref
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from tachoscope.data import shards
from tachoscope.patches.wrap import Function, wrap
from tachoscope.process.import_hook import after_import
from tachoscope.spool import process_outbox

_installed: list[str] = []
_urls: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The URL that each open stream of webdataset is of."""
NAME = "_tachoscope_shard"
"""On a reader of mosaicml-streaming: what its shard is called wherever it is read. It goes with the reader to spawned workers."""


def install() -> None:
    """Wrap each library when it is imported; once a process."""
    if _installed:
        return
    _installed.append("")
    after_import("torch.utils.data.dataloader", _loader_workers)
    after_import("webdataset.tariterators", _webdataset)
    after_import("webdataset.cache", _webdataset_openers)
    after_import("streaming.base.stream", _streaming)
    after_import("streaming.base.format.base.reader", _streaming_reader)


def _loader_workers(module: ModuleType) -> None:
    def init_of(original: Function) -> Function:
        def init(*args: Any, **kwargs: Any) -> Any:
            os.environ[process_outbox.WORKER_RANK] = str(process_outbox.rank())  # a worker that is spawned knows no more than this
            return original(*args, **kwargs)

        return init

    wrap(getattr(module, "_MultiProcessingDataLoaderIter", None), "__init__", init_of)


# --- webdataset ----------------------------------------------------------------------------------------------------------


def _webdataset(module: ModuleType) -> None:
    from tachoscope.data import tar_truncation  # not before: most processes need no tarfile

    tar_truncation.watch(module)
    wrap(module, "url_opener", _opening)
    wrap(module, "tar_file_iterator", _reading)


def _webdataset_openers(module: ModuleType) -> None:
    for name in ("StreamingOpen", "FileCache"):
        wrap(getattr(module, name, None), "__call__", _opening_as_object)


class _Opening:
    """Follows which URL an opener is at, and takes note of those that it cannot open."""

    def __init__(self) -> None:
        self.url = ""

    def follow(self, data: Iterable[Any]) -> Iterator[Any]:
        for one in data:
            self.url = str(one["url"] if isinstance(one, dict) else one)
            yield one

    def handler(self, original: Function) -> Function:
        def handle(error: Exception) -> Any:
            shards.Reading(self.url).failed(error)
            return original(error)

        return handle


def _opened(sources: Iterable[Any]) -> Iterator[Any]:
    for source in sources:
        with contextlib.suppress(KeyError, TypeError):  # a stream that cannot be referred to weakly says itself what it is
            _urls[source["stream"]] = source["url"]
        yield source


def _opening(original: Function) -> Function:
    def url_opener(data: Iterable[Any], handler: Function = _reraise, **options: Any) -> Iterator[Any]:
        opening = _Opening()
        return _opened(original(opening.follow(data), handler=opening.handler(handler), **options))

    return url_opener


def _reraise(error: Exception) -> Any:
    raise error


def _opening_as_object(original: Function) -> Function:
    def call(self: Any, urls: Iterable[Any]) -> Iterator[Any]:
        opening = _Opening()
        watched = copy.copy(self)
        watched.handler = opening.handler(self.handler)
        return _opened(original(watched, opening.follow(urls)))

    return call


def _reading(original: Function) -> Function:
    from tachoscope.data import tar_truncation

    def tar_file_iterator(fileobj: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with shards.Reading(_url_of(fileobj), size_bytes=_size_of(fileobj)) as reading:
            own: list[BaseException] = []
            for name in ("select_files", "rename_files"):
                if kwargs.get(name) is not None:
                    kwargs[name] = _noting(kwargs[name], own)
            if kwargs.get("handler") is not None:
                kwargs["handler"] = _telling(kwargs["handler"], reading, own)
            with tar_truncation.noting_truncation(fileobj) as broken:
                yield from original(fileobj, *args, **kwargs)
            if broken:
                reading.failed(broken[0])

    return tar_file_iterator


def _noting(function: Function, own: list[BaseException]) -> Function:
    """Wrap the user's function, noting its exceptions, which are not the shard's fault."""

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            own[:] = [error]
            raise

    return call


def _telling(handler: Function, reading: shards.Reading, own: list[BaseException]) -> Function:
    """Wrap the user's error handler, noting the errors passed to it."""

    def handle(error: Exception) -> Any:
        if error in own:
            reading.set_aside()
        else:
            reading.failed(error)
        return handler(error)

    return handle


def _url_of(stream: Any) -> str:
    try:
        url = _urls.get(stream)
    except TypeError:
        url = None
    if url is not None:
        return url
    name = getattr(stream, "name", None)
    command = getattr(stream, "args", None)  # of webdataset's own pipe: what Popen was called with
    if command:
        return f"pipe:{command[0][0]}"
    return name if isinstance(name, str) else type(stream).__name__


def _size_of(stream: Any) -> int:
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


# --- mosaicml-streaming ----------------------------------------------------------------------------------------------------


def _streaming(module: ModuleType) -> None:
    stream = getattr(module, "Stream", None)
    wrap(stream, "get_shards", _naming)
    wrap(stream, "prepare_shard", _preparing)


def _streaming_reader(module: ModuleType) -> None:
    wrap(getattr(module, "Reader", None), "get_item", _item)


def _naming(original: Function) -> Function:
    def get_shards(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(self, *args, **kwargs)
        for shard in found:
            setattr(shard, NAME, _path_of(self, shard))
        return found

    return get_shards


def _path_of(stream: Any, shard: Any) -> str:
    return _path(getattr(stream, "remote", None) or stream.local, stream.split, shard)


def _path(folder: str, split: str | None, shard: Any) -> str:
    raw = shard.file_pairs[-1][0]  # of two files, the second is the data
    return os.path.join(folder, split or "", raw.basename)


def _preparing(original: Function) -> Function:
    """Downloading, decompressing and validating a shard reads all of it."""

    def prepare_shard(self: Any, shard: Any) -> Any:
        with shards.Reading(_path_of(self, shard), size_bytes=_bytes_to_get(shard)) as reading:
            change = original(self, shard)
            if not change:  # it was there already
                reading.set_aside()
            return change

    return prepare_shard


def _bytes_to_get(shard: Any) -> int:
    return sum(int((packed or raw).bytes) for raw, packed in shard.file_pairs)


def _item(original: Function) -> Function:
    def get_item(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except FileNotFoundError:  # how the data set learns that it has to fetch the shard
            raise
        except Exception as error:
            shards.Reading(getattr(self, NAME, None) or _path(self.dirname, self.split, self)).failed(error)
            raise

    return functools.wraps(original)(get_item)
