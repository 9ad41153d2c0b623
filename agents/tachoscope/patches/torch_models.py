"""What is wrapped of models: those that are replicated over ranks are compared, see `training.integrity`."""

from __future__ import annotations

from typing import Any

from tachoscope.patches.wrap import wrap


def watch_models(checks_of: Any, torch: Any) -> None:
    """Have each `DistributedDataParallel` that is made from now on looked at, if `checks_of()` returns checks then."""

    def init_of(original: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            checks = checks_of()
            if checks is not None:
                checks.add(self)

        return init

    wrap(torch.nn.parallel.DistributedDataParallel, "__init__", init_of)
