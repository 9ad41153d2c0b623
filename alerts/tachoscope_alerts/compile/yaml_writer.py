"""YAML that people and other tools read: in the order in which it was made, without anchors, texts of several lines as they are."""

from __future__ import annotations

from typing import Any

import yaml

from tachoscope_core import yaml_text


def to_yaml(document: Any) -> str:
    """Return a document as YAML; the same document gives the same text."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


class _Dumper(yaml_text.DUMPER):  # type: ignore[misc]  # libyaml's, or Python's
    """Writes each value where it belongs, though it may be elsewhere too."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the base class's signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
