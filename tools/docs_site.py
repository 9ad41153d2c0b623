"""Builds the documentation as a site with search: `make site`. Pages lie in it as they do in the repository, so that links hold."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "site"
FOLDERS = ("start", "guides", "agent", "concepts", "reference", "develop")
TITLES = {"agent": "Node agent"}
ALONE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "llms.txt", "examples/README.md", "tests/dashboards/recorded/README.md")


def main() -> int:
    """Build the site into build/site/html; return the exit code of mkdocs."""
    source = BUILD / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "runbooks", source / "runbooks")
    shutil.copy(ROOT / "README.md", source / "index.md")
    for name in ALONE:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    (BUILD / "mkdocs.yml").write_text(yaml.safe_dump(_configuration(), sort_keys=False))
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", BUILD / "mkdocs.yml"], check=False).returncode


def _configuration() -> dict[str, object]:
    pages = {folder: sorted((ROOT / "docs" / folder).glob("*.md")) for folder in FOLDERS}
    nav = [{TITLES.get(folder, folder.capitalize()): [f"docs/{folder}/{path.name}" for path in of]} for folder, of in pages.items()]
    runbooks = [f"runbooks/{path.name}" for path in sorted((ROOT / "runbooks").glob("*.md"))]
    return {
        "site_name": "tachoscope",
        "docs_dir": "source",
        "site_dir": "html",
        "theme": {"name": "material", "features": ["navigation.indexes", "navigation.top", "content.code.copy"], "font": False},
        "plugins": ["search"],
        "markdown_extensions": ["admonition", "tables", "fenced_code", "toc"],
        "nav": [{"tachoscope": "index.md"}, *nav, {"Runbooks": runbooks}, {"Changes": "CHANGELOG.md"}, {"Security": "SECURITY.md"}],
        "validation": {"links": {"not_found": "ignore", "unrecognized_links": "ignore"}, "omitted_files": "ignore"},
    }


if __name__ == "__main__":
    sys.exit(main())
