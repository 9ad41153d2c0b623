"""What can be set of an agent, with its defaults; `config.load` reads it from a file."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Literal

import msgspec

from tachoscope_core.storage import spool, store
from tachoscope_node.config.inference_servers import Server
from tachoscope_node.config.nccl import Nccl
from tachoscope_service.metrics.otlp.push import OtlpSettings
from tachoscope_service.metrics.zero_start import SCRAPE_SECONDS

DEFAULT_PORT = 9465


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one node may ask of the agent: a spool is foreign input. What is beyond a limit is counted.

    Where several users could be, none may have all jobs, ranks, directories and open files: see `shares`.

    Attributes:
        jobs, ranks: that have series at a time; the others are shipped all the same.
        directories: of the spool that are followed at a time; the others wait in the spool.
        segments: files of one directory that are followed at a time. bytes_per_second: read of one directory;
            all together may have four times that.
    """

    jobs: int = 32
    ranks: int = 128
    directories: int = 256
    segments: int = 256
    bytes_per_second: int = 4 << 20


class Flush(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When records go to the store. 0: every 5 seconds to a directory, 5 minutes to an object store.

    Attributes:
        seconds: oldest that a record may be. bytes: that may wait, whichever comes first.
    """

    seconds: float = 0.0
    bytes: int = 8 << 20


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which devices a collector reports: a regular expression for those wanted, or for those not wanted."""

    include: str = ""
    exclude: str = ""


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is collected of GPUs. Each right that a part needs beyond the driver is asked for only once its key is set.

    Attributes:
        enabled: whether NVML is asked; auto: where its library can be loaded. YAML reads a plain `on` and `off` as booleans.
        expected: GPUs that the node should have; 0: the most that were ever seen.
        kernel_log: path of the kernel log, such as /dev/kmsg, for Xid errors and out-of-memory kills; empty: not read.
        dcgm_url: page of a dcgm-exporter to read; empty: none. dcgm_names: also expose readings under its names.
        pod_resources: path of the kubelet's pod-resources socket; empty: not asked.
        interval_seconds: between two readings of what changes fast.
    """

    enabled: Literal["auto", "on", "off"] | bool = "auto"
    expected: int = 0
    kernel_log: str = ""
    dcgm_url: str = ""
    dcgm_names: bool = False
    pod_resources: str = ""
    interval_seconds: float = 1.0

    @property
    def nvml(self) -> Literal["auto", "on", "off"]:
        """Whether NVML is asked, however it was written."""
        if isinstance(self.enabled, bool):
            return "on" if self.enabled else "off"
        return self.enabled


class Checkpoints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How checkpoints are read back; each only with the rights of the user whose job wrote it.

    Attributes:
        verify: whether they are. paths: where a folder as the jobs see it is on this machine.
        roots: folders outside of which nothing is read; empty: any, but none in Kubernetes.
        bytes_per_second: most that is read, so that training is not slowed; 0: no limit.
        max_bytes: largest checkpoint that is read.
        verify_again_seconds: how often the newest two are read again.
    """

    verify: bool = True
    paths: dict[str, str] = {}
    roots: list[str] = []
    bytes_per_second: int = 64 << 20
    max_bytes: int = 1 << 42
    verify_again_seconds: float = 3600.0


class Preemption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to ask whether this machine will be taken away.

    Attributes:
        provider: whose machine it is. YAML reads a plain `off` as a boolean.
        url: of its metadata service; empty: the usual. interval_seconds: between two questions.
    """

    provider: Literal["off", "aws", "gcp", "azure"] | bool = "off"
    url: str = ""
    interval_seconds: float = 5.0


class Profiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Profiles on demand of processes under the probe, and of those that have KINETO_USE_DAEMON set.

    Attributes:
        enabled: whether the agent answers them. automatic: whether it also profiles a job whose steps became slower, or whose GPUs
            have little to do.
        sockets: directories to answer in beside the abstract socket, each the KINETO_IPC_SOCKET_DIR of pods that share it.
        directory: where processes write their traces; empty: /var/lib/tachoscope-profiles for root, else in the state directory.
        interval_seconds: least time between two profiles of a job. most_seconds: longest that is recorded.
        trace_bytes: largest trace of a rank. job_bytes: that all traces of a job may have in the store.
    """

    enabled: bool = True
    automatic: bool = True
    sockets: list[str] = []
    directory: str = ""
    interval_seconds: float = 600.0
    most_seconds: float = 60.0
    trace_bytes: int = 1 << 30
    job_bytes: int = 20 << 30

    def directory_path(self, state: Path) -> Path:
        """Where processes that ask at the abstract socket write their traces: others must be able to go through it."""
        if self.directory:
            return Path(self.directory)
        return Path("/var/lib/tachoscope-profiles") if os.geteuid() == 0 else state / "profiles"


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's configuration; every key has a default.

    Attributes:
        spool: directory that jobs write to. store: directory or s3:// URL. state: directory for what must outlive a restart.
        node: this machine's name in the store. address, port: where metrics are served; 0: any free port.
        web_config: file in the format of Prometheus's web configuration (TLS, users, tokens).
        tick_seconds: how often the spool is looked at. retention_seconds: how long an ended job keeps its series.
        sample_seconds: how often metrics are written to the store; 0: never.
        scrape_seconds: how often Prometheus reads them: a new counter is at 0 for two of these.
        spool_retention_seconds: after which a segment that nobody writes and that cannot be shipped is removed.
        stop_seconds: how long a stop may take to ship what is left.
        proc, sys: where the host's /proc and /sys are mounted.
        preemption: whom to ask for notices that the machine will be taken away.
        devices: device filters by collector (disk, network, infiniband). gpu: what is collected of GPUs.
        checkpoints: how they are read back. servers: inference servers whose metrics are read.
        nccl: what is collected of NCCL's own telemetry.
        profiles: of jobs that run, on demand.
    """

    spool: str = ""
    store: str = ""
    state: str = ""
    node: str = ""
    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    web_config: str = ""
    tick_seconds: float = 1.0
    retention_seconds: float = 300.0
    sample_seconds: float = 15.0
    scrape_seconds: float = SCRAPE_SECONDS
    spool_retention_seconds: float = 7 * 86400.0
    stop_seconds: float = 20.0
    proc: str = "/proc"
    sys: str = "/sys"
    flush: Flush = Flush()
    limits: Limits = Limits()
    devices: dict[str, Filter] = {}
    gpu: Gpu = Gpu()
    checkpoints: Checkpoints = Checkpoints()
    preemption: Preemption = Preemption()
    servers: list[Server] = []
    nccl: Nccl = Nccl()
    profiles: Profiles = Profiles()
    otlp: OtlpSettings | None = None

    @property
    def spool_path(self) -> Path:
        return Path(self.spool) if self.spool else spool.default_root()

    @property
    def store_url(self) -> str:
        return self.store or store.default_url()

    @property
    def state_path(self) -> Path:
        """State directory: /var/lib/tachoscope for root, else the user's own."""
        if self.state:
            return Path(self.state)
        if os.geteuid() == 0:
            return Path("/var/lib/tachoscope")
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tachoscope"

    @property
    def node_name(self) -> str:
        """The name of this machine: as configured, else $NODE_NAME (the Downward API's), else the host's."""
        return self.node or os.environ.get("NODE_NAME") or socket.gethostname()

    @property
    def flush_seconds(self) -> float:
        """Maximum age of a record before it is in the store, in seconds."""
        return self.flush.seconds or (300.0 if "://" in self.store_url else 5.0)
