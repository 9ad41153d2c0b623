"""Pictures of all boards, drawn from the recorded demo: docs/pictures/board-<uid>.png.

make boards
python tests/dashboards/board_pictures.py --theme dark --out /tmp/pictures fleet training
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
FOLDERS = ("generators", "servers", "support", "node", "dashboards")
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "tools"), *(str(HERE.parent / name) for name in FOLDERS)]

import planted_watch  # noqa: E402
import recorded_series  # noqa: E402
from grafana_preview.api import Preview  # noqa: E402
from grafana_preview.loading import load  # noqa: E402
from grafana_preview.screenshots import shots  # noqa: E402
from small_png import shrink  # noqa: E402

PICTURES = HERE.parent.parent / "docs" / "pictures"
SECONDS = 540
"""Of the demo that are drawn: without the beginning of all jobs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("boards", nargs="*", help="uids; default: all")
    parser.add_argument("--out", type=Path, default=PICTURES)
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    parser.add_argument("--recorded", type=Path, default=recorded_series.RECORDED)
    options = parser.parse_args()
    series = planted_watch.added(recorded_series.read(options.recorded))
    _, end = recorded_series.span(series)
    with tempfile.TemporaryDirectory() as folder, recorded_series.served(Path(folder), series) as url:
        preview = Preview(load(options.boards), url, f"now-{SECONDS}s", end)
        made = [replace(shot, path=_named(shot.path)) for shot in shots(preview, options.out, options.theme, None)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        for shot in made:
            shrink(browser.new_page(), shot.path)
            print(f"{shot.path}: {shot.panels} panels, {shot.empty} of them empty, {shot.path.stat().st_size} bytes", *shot.errors)
        browser.close()
    raise SystemExit(any(shot.errors for shot in made))


def _named(path: Path) -> Path:
    return path.rename(path.with_name(f"board-{path.name}"))


if __name__ == "__main__":
    main()
