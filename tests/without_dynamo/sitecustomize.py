"""For processes that tests start: PyTorch imports torch._dynamo when something asks for it, not for each optimizer.

Making an optimizer, its steps and DistributedDataParallel import it to tell torch.compile what not to trace: two seconds of a
processor in each process. This stands in its place until anything else of it is used; then the real one is imported.
"""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any


class Dynamo(ModuleType):
    """What PyTorch asks of torch._dynamo where nothing is compiled."""

    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")

    @staticmethod
    def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
        return fn if fn is not None else lambda decorated: decorated

    @staticmethod
    def graph_break(msg: str = "") -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name in {"__spec__", "__file__", "__loader__"}:  # of looks at all modules
            raise AttributeError(name)
        if sys.modules.get("torch._dynamo") is self:
            del sys.modules["torch._dynamo"]
        return getattr(importlib.import_module("torch._dynamo"), name)


sys.modules["torch._dynamo"] = Dynamo("torch._dynamo")
