"""The closed list of bottleneck classes, from `taxonomy.yaml`, which explains its keys."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tachoscope_core import yaml_text


class Bottleneck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of the taxonomy; see `taxonomy.yaml`."""

    title: str
    state: str
    fix: str
    sentence: str
    causes: dict[str, str] = {}
    slug: str = ""
    family: str = ""

    @property
    def runbook(self) -> str:
        """Path of its page in the repository and, below the command-line package, in an installation."""
        return f"runbooks/{self.slug}.md"

    def sentence_of(self, cause: str) -> str:
        """Return the template of the sentence that says what was found; `cause`: empty if the class has one only."""
        return self.causes.get(cause, self.sentence)


def _read() -> dict[str, Bottleneck]:
    data = yaml_text.load_shipped(Path(__file__).with_name("taxonomy.yaml").read_bytes())
    families = msgspec.convert(data, dict[str, dict[str, Bottleneck]])
    return {
        slug: msgspec.structs.replace(entry, slug=slug, family=family)
        for family, entries in families.items()
        for slug, entry in entries.items()
    }


HEALTHY = ("compute_bound", "decode_bandwidth")
"""Of these the time goes where it should: a finding of one is not a fault."""
CORES_USED = {
    "loader_workers": "cores used by the loader workers of these ranks",
    "other_processes": "cores used by other processes",
}
"""By cause of `cpu_contention`: the signal of its evidence, whose threshold is the host's cores."""
FULL_IN = "full in"
"""Signal of the evidence of `out_of_memory` that says in how many seconds memory will be full."""
BY_SLUG = _read()
"""Every class by its slug, in the order of the file."""
