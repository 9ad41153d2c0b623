"""`tachoscope agent`: the node agent in the foreground, its log on stderr."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.storage.store import absolute_url


def serve(
    config: Path | None, *, store: str | None, spool: str | None, port: int | None, dcgm_names: bool, check: bool
) -> ExitCode:
    """Run the agent until SIGTERM or Ctrl-C; return its exit code: not OK if something stayed in the spool.

    Args:
        dcgm_names: also expose GPU metrics under dcgm-exporter's names. check: only say whether the configuration is sound.

    Raises:
        TachoscopeError: the configuration has faults, a package is missing, or the agent cannot start.
    """
    try:
        from tachoscope_node import service as service_module
        from tachoscope_node.config import checks, settings
        from tachoscope_node.config import load as config_module
        from tachoscope_service.common.log import Log
        from tachoscope_service.http import web_config
    except ImportError as error:
        raise TachoscopeError(f"the agent needs {error.name}", fix="pip install 'tachoscope[agent]'") from None

    def load() -> settings.Config:
        # On the command line a path is relative to where the command is typed; in the file it has to be absolute.
        places_named = {"store": store and absolute_url(store), "spool": spool and str(Path(spool).absolute())}
        return config_module.load(config, look=check, port=port, **places_named, **{"gpu.dcgm_names": dcgm_names or None})

    loaded = load()
    if check:
        if loaded.web_config:
            web_config.load(Path(loaded.web_config))
        where = f"spool {loaded.spool_path}, store {loaded.store_url}, state {loaded.state_path}"
        lines = [f"sound: {where}, {loaded.address}:{loaded.port}", *(f"WARNING: {line}" for line in checks.warnings(loaded))]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return ExitCode.OK
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    service = service_module.Service(loaded, Log(logging.getLogger("tachoscope")), reload_config=load)
    with service_module.signals(service):
        return ExitCode.from_success(service.run())
