"""A training job as its owner specifies it: what runs, on what, from which checkpoint, and how often."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

CHECKPOINT, NODES, MASTER = "{checkpoint}", "{nodes}", "{master}"
"""What stands in a command for the newest valid checkpoint, the number of nodes, and the first of them."""
EngineName = Literal["local", "slurm", "kubernetes", "ray"]
ENGINES: tuple[EngineName, ...] = ("local", "slurm", "kubernetes", "ray")
MOST_ATTEMPTS = 1000
ActionMode = Literal["off", "dry_run", "apply"]
ACTION_MODES: tuple[ActionMode, ...] = ("off", "dry_run", "apply")


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When an attempt that ended is followed by another one.

    Attributes:
        most_attempts: of the whole job. hung_seconds: an attempt that has hung for this long is ended; 0: never.
        delay_seconds: before an attempt that follows one without a new step; doubled each time, up to `most_delay_seconds`.
    """

    most_attempts: int = 20
    hung_seconds: float = 120.0
    delay_seconds: float = 10.0
    most_delay_seconds: float = 600.0


class ActionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor may do beside restarts; a dry run only records what it would do.

    Attributes:
        quarantine_shards: put a data shard that ended an attempt on the job's list.
        checkpoint_interval: change the interval by which `tachoscope.checkpoint_due` answers.
        most_actions: of the whole job.
    """

    quarantine_shards: ActionMode = "off"
    checkpoint_interval: ActionMode = "off"
    most_actions: int = 10


class KubernetesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a JobSet is made of a job.

    Attributes:
        python: of the image; it has tachoscope. queue: a LocalQueue of Kueue; empty: not queued. priority_class: a
            WorkloadPriorityClass of Kueue. volumes, secret_volumes: claims and Secrets by the path where they are mounted.
        gpu_resource: the name of the resource that `gpus_per_node` counts.
    """

    namespace: str
    image: str
    python: str = "python3"
    queue: str = ""
    priority_class: str = ""
    service_account: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    volumes: dict[str, str] = {}
    secret_volumes: dict[str, str] = {}


class RayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Ray cluster takes jobs.

    Attributes:
        address: of its dashboard. token_file: with the token of the cluster, where it asks for one; empty: it does not.
        python: of the cluster's nodes; it has tachoscope.
    """

    address: str
    token_file: str = ""
    python: str = "python3"


class TrainingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A training job.

    Attributes:
        command: program and arguments of one node, without a shell. resume: arguments added once there is a valid checkpoint.
        cpus_per_node, gpus_per_node: 0: the engine's default. memory_per_node: as Slurm has it, such as `64G`; empty: the default.
        time_limit_seconds: of one attempt; 0: the engine's default.
        secrets: environment variables and the files that hold their values on the node that runs the job.
        code_commit: of git, that the folder must have; empty: any. checkpoint_seconds: from save to save, as the training does it;
            0: not said. checkpoint_like: the job by whose saves and failures that is judged; empty: its own.
        snapshot, project, purpose: of the data that it reads and who reads it for what, for policies and lineage.
        slurm_options: further options of sbatch, each `--name=value`. kubernetes, ray: of these engines; unset, they are not in the
            digest.
    """

    name: str
    engine: EngineName
    command: tuple[str, ...]
    working_directory: str
    resume: tuple[str, ...] = ()
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_node: int = 0
    memory_per_node: str = ""
    time_limit_seconds: float = 0.0
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    code_commit: str = ""
    checkpoint_seconds: float = 0.0
    checkpoint_like: str = ""
    snapshot: str = ""
    project: str = ""
    purpose: str = ""
    slurm_options: tuple[str, ...] = ()
    kubernetes: KubernetesOptions | msgspec.UnsetType = msgspec.UNSET
    ray: RayOptions | msgspec.UnsetType = msgspec.UNSET
    restart: RestartPolicy = RestartPolicy()
    actions: ActionPolicy = ActionPolicy()

    @property
    def digest(self) -> str:
        """SHA-256 of all of it: an engine only runs the job that was submitted."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()
