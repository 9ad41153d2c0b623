"""What the records say of a job's checkpoints: which were saved last under each reference, by which ranks, and with which files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tachoscope_core.checkpoints.verification import DCP_SUFFIX, Manifest
from tachoscope_core.records import records

Said = records.JobStarted | records.CheckpointSaved | records.CheckpointManifest
_MARKS = (b'"JobStarted"', b'"CheckpointSaved"', b'"CheckpointManifest"')


def parse(lines: Iterable[bytes]) -> Iterator[Said]:
    """Yield the records among these lines that report checkpoints; the others, which are most, are not decoded."""
    lines = list(lines)
    together = b"\n".join(lines)
    marks = [mark for mark in _MARKS if mark in together]
    for line in lines if marks else ():
        if not any(mark in line for mark in marks):
            continue
        try:
            record = records.decode(line)
        except (records.UnknownKindError, records.MalformedRecordError):
            continue
        if isinstance(record, Said):
            yield record


class Checkpoint(msgspec.Struct):
    """The last save under a reference, as far as its ranks said something of it.

    Attributes:
        attempt, step: of the save; the step is counted within the process.
        saved_at: Unix seconds at which the last of its ranks had saved it.
        wrote: bytes by rank, for the ranks that took part; 0: nothing, or not known.
        manifests: by rank.
    """

    reference: str
    attempt: int
    step: int
    saved_at: float
    wrote: dict[int, int] = {}
    manifests: dict[int, Manifest] = {}

    @property
    def bytes(self) -> int:
        """Bytes of all files that its manifests name."""
        return sum(shard.bytes for manifest in self.manifests.values() for shard in manifest.shards)

    def expected_ranks(self, world_size: int = 0) -> set[int]:
        """Return the ranks that must have a manifest for the checkpoint to be whole.

        Those that wrote something; and of a `torch.distributed.checkpoint`, in whose saves all ranks take part, those of the world
        that said nothing at all.

        Args:
            world_size: of the attempt that saved it; 0: not known.
        """
        wrote = {rank for rank, size in self.wrote.items() if size}
        names = (shard.path for manifest in self.manifests.values() for shard in manifest.shards)
        if any(name.endswith(DCP_SUFFIX) for name in names):
            wrote |= set(range(world_size)) - self.wrote.keys()
        return wrote

    def add_report(self, said: records.CheckpointSaved | records.CheckpointManifest) -> None:
        """Take what one rank said of this save."""
        if isinstance(said, records.CheckpointManifest):
            self.manifests[said.rank] = Manifest(said.time, said.shards)
            return
        self.wrote[said.rank] = max(said.bytes, 0)
        self.saved_at = max(self.saved_at, said.time)
        earlier = self.manifests.get(said.rank)
        if earlier is not None and earlier.time < said.time:  # of the save before, whose files were written over
            del self.manifests[said.rank]


def add_record(checkpoints: dict[str, Checkpoint], said: records.CheckpointSaved | records.CheckpointManifest) -> Checkpoint | None:
    """Take a record into the checkpoints by reference; return the one that it is of, None if that was saved over since.

    Records of one rank come in their order.
    """
    if not said.reference or said.rank < 0:
        return None
    found = checkpoints.get(said.reference)
    if found is None or (found.attempt, found.step) != (said.attempt, said.step):
        if found is not None and said.time < found.saved_at:
            return None
        seconds = said.seconds if isinstance(said, records.CheckpointManifest) else 0.0
        found = checkpoints[said.reference] = Checkpoint(said.reference, said.attempt, said.step, said.time - seconds)
    found.add_report(said)
    return found
