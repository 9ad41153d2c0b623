"""For processes that tests start: PyTorch imports large parts of itself when something asks for them, not each time.

Making an optimizer, its steps and DistributedDataParallel import `torch._dynamo` to tell torch.compile what not to trace: two
seconds of a processor in each process. And the import of torch ends with `torch._meta_registrations`, which says what shapes
operators give for tensors without data: a third of all that it takes. A profiler that begins reads one setting of
`torch._inductor`: two seconds again. Four packages that a training seldom uses, first of all `torch.export`, take a quarter of
the rest. What is here stands in the place of each until anything else of it is used; then the real one is imported. Fake tensors
use the first, and with it comes the second.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

META = "torch._meta_registrations"
SELDOM_USED = ("torch.distributions", "torch.export", "torch.masked", "torch.quantization")


class Later(ModuleType):
    """A module that is imported when something asks for anything of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of imports, and of looks at all modules
            raise AttributeError(name)
        return getattr(self.real(), name)

    def real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


class LaterPackage(Later):
    """The same of a package: an import of a module below it imports the package, too."""

    def __getattr__(self, name: str) -> Any:
        return self.real().__path__ if name == "__path__" else super().__getattr__(name)


class Inductor(LaterPackage):
    """What a profiler asks of torch._inductor."""

    config: Any = SimpleNamespace(triton=SimpleNamespace(cudagraphs=False))

    def real(self) -> ModuleType:
        if sys.modules.get("torch._inductor.config") is self.config:
            del sys.modules["torch._inductor.config"]
        return super().real()


class Dynamo(LaterPackage):
    """What PyTorch asks of torch._dynamo where nothing is compiled."""

    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    utils = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")

    @staticmethod
    def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
        return fn if fn is not None else lambda decorated: decorated

    @staticmethod
    def graph_break(msg: str = "") -> None:
        pass

    def real(self) -> ModuleType:
        if isinstance(meta := sys.modules.get(META), Later):
            meta.real()  # without it, modules of PyTorch would import each other in a circle
        return super().real()


class MetaRegistrations:
    """Finds `torch._meta_registrations` once, as a module to be imported later."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != META:
            return None
        sys.meta_path.remove(self)
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Later(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Register the metaclass of generators, the one effect of the import that PyTorch relies on without using the module."""
        torch = sys.modules["torch"]
        if hasattr(torch._C, "_set_generator_metaclass"):
            torch._C._set_generator_metaclass(importlib.import_module("torch._opaque_base").OpaqueBaseMeta)


sys.meta_path.insert(0, MetaRegistrations())
sys.modules["torch._dynamo"] = Dynamo("torch._dynamo")
sys.modules["torch._inductor"] = Inductor("torch._inductor")
sys.modules["torch._inductor.config"] = Inductor.config
for package in SELDOM_USED:
    sys.modules[package] = LaterPackage(package)
