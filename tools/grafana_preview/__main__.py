"""`python tools/grafana_preview`, in a clone, in which `make test` or `pip install -e '.[all]'` installed what it needs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])  # not this folder: modules of it have names of the standard library's

from grafana_preview.command import call  # noqa: E402
from tachoscope_cli.main import main  # noqa: E402

main(run=call)
