"""What is recorded of checkpoints: saves, their checksums, verification and restores."""

from __future__ import annotations

import msgspec

from tachoscope_core.records.base import Count, Name, Place, Record, Seconds, Text


class CheckpointSaved(Record, frozen=True, kw_only=True, tag="CheckpointSaved"):
    """A checkpoint was written, or is complete if it was asynchronous: `time` is when.

    Attributes:
        step: last finished step of the process.
        blocking_seconds: the training thread stood still for so long. background_seconds: from then until it was complete.
        bytes: what this rank wrote; 0: not known.
        reference: path or URL of the file or folder, secrets redacted; empty: not known.
        asynchronous: saved in the background. after_notice: saved after a notice that the process will be ended.
    """

    step: Count
    blocking_seconds: Seconds
    background_seconds: Seconds = 0.0
    bytes: Count = 0
    checksum: Name = ""
    reference: Text = ""
    asynchronous: bool = False
    after_notice: bool = False


class ShardSum(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint: path below the checkpoint's reference (empty: the reference is the file), and its checksum."""

    path: Text = ""
    bytes: Count
    checksum: Name
    """`<algorithm>:<hexadecimal digits>`."""


class CheckpointManifest(Record, frozen=True, kw_only=True, tag="CheckpointManifest"):
    """The files that this rank wrote of a checkpoint, with their checksums, taken right after it was complete.

    Attributes:
        step: as in the `CheckpointSaved` of the same reference. seconds: what taking them took.
    """

    step: Count
    reference: Text
    shards: list[ShardSum]
    seconds: Seconds = 0.0


class CheckpointVerified(Record, frozen=True, kw_only=True, tag="CheckpointVerified"):
    """A checkpoint was read back and compared with its manifests.

    Attributes:
        step: as in its `CheckpointSaved`. attempt_saved: the attempt that saved it.
        sound: all files are there and their checksums agree. fault: else what is wrong, naming the file.
        seconds: what reading back took, for `bytes`.
        ranks: whose files were read, where it was not those of all ranks: each node reads what its own ranks wrote.
    """

    step: Count
    reference: Text = ""
    attempt_saved: Count = 0
    sound: bool = True
    fault: Text = ""
    bytes: Count = 0
    checksum: Name = ""
    seconds: Seconds = 0.0
    ranks: list[Count] = []


class CheckpointRestored(Record, frozen=True, kw_only=True, tag="CheckpointRestored"):
    """A process continued from a checkpoint; `time` is when it was read.

    Attributes:
        step: step of the whole job that the checkpoint is of, where the job says it; -1: the save of the same reference tells it.
        blocking_seconds: what reading it took.
    """

    step: Place = -1
    blocking_seconds: Seconds
    bytes: Count = 0
    reference: Text = ""
