"""A real Slurm on this machine, from Debian's packages, without installing one: accounting, controller and any number of nodes.

    with SlurmCluster(nodes=4, gpus=2) as cluster:
        job = cluster.run("sbatch", "--parsable", "-N2", "--gres=gpu:1", "--wrap", "sleep 5").strip()
        cluster.wait_for_state(job, "COMPLETED")
        print(cluster.run("sacct", "--json", "--jobs", job))

The packages are downloaded once (`apt-get download`) and unpacked into `~/.cache/tachoscope/slurm`. All daemons work in a directory
of their own and listen on free ports of the loopback, so that several clusters may run at once. The GPUs are files. Jobs run
as root. It needs Debian or Ubuntu, root, and 200 MB. The accounting has the whole record of a short job some seconds after its
end.

    python -m benchmarks.slurm_cluster          # starts one, runs a job, shows what sacct says, and ends it
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

PACKAGES = (
    *("munge", "libmunge2", "slurmctld", "slurmd", "slurmdbd", "slurm-client"),
    *("slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin", "libhwloc15", "libhttp-parser2.9", "libjson-c5"),
    *("mariadb-server", "mariadb-server-core", "libmariadb3", "liburing2", "libaio1", "libsnappy1v5"),
)
CLOCK_PACKAGE = "libfaketime"
"""Of the accounting's clock, see `SlurmCluster.accounting_ahead`; downloaded where that is asked for."""
# Debian makes these links when it configures the packages.
_LINKS = ("slurmctld", "slurmd", "slurmstepd")
WAIT_SECONDS = 120.0
_SOCKET_PATH_BYTES = 100  # of at most 107 that Linux takes


class SlurmUnavailableError(RuntimeError):
    """This machine cannot run one; the message says why."""


class SlurmCluster:
    """Starts the daemons on entering and ends them, with all jobs, on leaving.

    Args:
        nodes: their number; each has 4 processors. gpus: of each node.
        host_names: each node's processes see its name as their host's (a UTS namespace), which nothing resolves.
        settings: more lines of slurm.conf, such as `PreemptType=preempt/partition_prio`.
        partitions: name to its settings in slurm.conf; the first is the default. All have all nodes.

    Attributes:
        environment: of a process that shall speak with this cluster. folder: with logs, until it ends.
    """

    def __init__(
        self,
        nodes: int = 4,
        gpus: int = 2,
        *,
        host_names: bool = False,
        partitions: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
    ) -> None:
        self.nodes, self.gpus = nodes, gpus
        self._host_names = host_names
        self._partitions, self._settings = partitions or {"train": ""}, settings
        self.folder = Path()
        self.environment: dict[str, str] = {}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._node_daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._root = unpacked()
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        if len(str(self.folder / "munge.socket")) > _SOCKET_PATH_BYTES:
            shutil.rmtree(self.folder)
            raise SlurmUnavailableError(f"{self.folder} is too long for a socket: set TMPDIR to a shorter path")
        libraries = self._root / "usr/lib" / _architecture()
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "LD_LIBRARY_PATH": f"{libraries}/slurm-wlm:{libraries}",
            "PATH": f"{self._root}/usr/bin:{os.environ['PATH']}",
        }
        try:
            self._configure(libraries / "slurm-wlm")
            self._start()
        except BaseException as error:
            error.add_note(self._last_words())
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def run(self, *command: str, check: bool = True, environment: Mapping[str, str] | None = None) -> str:
        """Return what a program of Slurm prints."""
        done = subprocess.run(
            command,
            env={**self.environment, **(environment or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def signal(self, program: str, number: int) -> None:
        """Send a signal to all daemons of a program, such as `slurmctld`."""
        for daemon in self._daemons:
            if Path(str(daemon.args[0])).name == program:  # type: ignore[index]
                daemon.send_signal(number)

    def state(self, job: str) -> str:
        """Return a job's newest state by the accounting, such as RUNNING; empty where it has none, or not its whole record yet."""
        lines = self.run(
            "sacct", "--allocations", "--noheader", "--parsable2", "--jobs", job, "--format=State,ReqTRES"
        ).splitlines()
        state, _, asked = lines[-1].partition("|") if lines else ("", "", "")
        return state.partition(" ")[0] if asked else ""

    def wait_for_state(self, job: str, *states: str) -> None:
        """Wait until the accounting has one of the states."""
        self.wait_for(lambda: self.state(job) in states, f"job {job} to be {' or '.join(states)}")

    def wait_for(self, true: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:.0f} s for {what}")
            time.sleep(0.2)

    def _configure(self, plugins: Path) -> None:
        ports = _free_ports(3 + self.nodes)
        self._database_port, host = ports[2], socket.gethostname().partition(".")[0]
        common = [f"PluginDir={plugins}", "AuthType=auth/munge", f"AuthInfo=socket={self.folder}/munge.socket", "SlurmUser=root"]
        (self.folder / "slurm.conf").write_text("\n".join([*common, *self._controller(host, ports), ""]))
        gpus = [
            f"NodeName=node{node} Name=gpu File={self.folder}/gpu{node}_[0-{self.gpus - 1}]"
            for node in range(1, self.nodes + 1)
            if self.gpus
        ]
        (self.folder / "gres.conf").write_text("\n".join([*gpus, ""]))
        accounting = self.folder / "slurmdbd.conf"
        accounting.write_text("\n".join([*common, *self._accounting(ports), ""]))
        accounting.chmod(0o600)
        for node in range(1, self.nodes + 1):
            (self.folder / "spool" / f"node{node}").mkdir(parents=True)
            for gpu in range(self.gpus):
                (self.folder / f"gpu{node}_{gpu}").touch()
        for name in ("state", "log", "database"):
            (self.folder / name).mkdir()

    def _controller(self, host: str, ports: list[int]) -> list[str]:
        names = f"node[1-{self.nodes}]"
        of_node = ["NodeAddr=127.0.0.1", "CPUs=4", "RealMemory=4000", *([f"Gres=gpu:{self.gpus}"] if self.gpus else [])]
        return [
            *("ClusterName=tachoscope", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={ports[0]}", "SlurmdUser=root"),
            *("CredType=cred/munge", f"StateSaveLocation={self.folder}/state", f"SlurmdSpoolDir={self.folder}/spool/%n"),
            *(f"SlurmctldPidFile={self.folder}/controller.pid", f"SlurmdPidFile={self.folder}/%n.pid"),
            *(f"SlurmctldLogFile={self.folder}/log/controller.log", f"SlurmdLogFile={self.folder}/log/%n.log"),
            *("ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none", "SwitchType=switch/none"),
            *("SchedulerType=sched/backfill", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core"),
            *(
                "SlurmdParameters=config_overrides",
                "ReturnToService=1",
                "GresTypes=gpu",
                "JobRequeue=1",
                "KillWait=2",
                "SlurmdTimeout=60",
            ),
            *("AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1"),
            *(f"AccountingStoragePort={ports[1]}", f"AccountingStoragePass={self.folder}/munge.socket"),
            *("AccountingStorageTRES=gres/gpu", "JobAcctGatherType=jobacct_gather/linux", "JobAcctGatherFrequency=5"),
            *self._settings,
            " ".join(
                [f"NodeName={names}", f"NodeHostname={host}", f"Port=[{','.join(str(port) for port in ports[3:])}]", *of_node]
            ),
            *(
                f"PartitionName={name} Nodes={names} Default={'YES' if not place else 'NO'} MaxTime=INFINITE State=UP {more}"
                for place, (name, more) in enumerate(self._partitions.items())
            ),
        ]

    def _accounting(self, ports: list[int]) -> list[str]:
        return [
            *("DbdHost=localhost", f"DbdPort={ports[1]}", "StorageType=accounting_storage/mysql", "StorageHost=127.0.0.1"),
            *(f"StoragePort={ports[2]}", "StorageUser=root", "StorageLoc=slurm", f"PidFile={self.folder}/accounting.pid"),
            f"LogFile={self.folder}/log/accounting.log",
        ]

    def _start(self) -> None:
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o400)
        files = {"key": "munge.key", "socket": "munge.socket", "pid": "munge.pid", "seed": "munge.seed"}
        options = [f"--{name}-file={self.folder}/{path}" for name, path in files.items() if name != "socket"]
        self._daemon("munged", "--foreground", "--force", *options, f"--socket={self.folder}/munge.socket")
        self._start_database()
        self.wait_for((self.folder / "munge.socket").exists, "munged")
        self._daemon("slurmdbd", "-D")
        self.wait_for(lambda: "tachoscope" in self.run("sacctmgr", "-i", "add", "cluster", "tachoscope", check=False), "slurmdbd")
        self._daemon("slurmctld", "-D")
        # Until then the accounting may get the end of a job before its start, and has no nodes of it.
        self.wait_for(self._is_registered, "the controller in the accounting")
        for node in range(1, self.nodes + 1):
            self.start_node(f"node{node}")
        self.wait_for(self._all_idle, "all nodes to be idle")

    def accounting_ahead(self, hours: int) -> dict[str, str]:
        """Start the accounting again with a clock that is ahead, so that it sums up the usage of the hours that are over by it.

        Returns:
            The environment for clients that ask about these hours, such as `sreport`.
        """
        environment = {
            "LD_PRELOAD": str(_clock_library(self._root)),
            "FAKETIME": f"+{hours}h",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        before = next(daemon for daemon in self._daemons if Path(str(daemon.args[0])).name == "slurmdbd")  # type: ignore[index]
        before.terminate()
        before.wait(timeout=WAIT_SECONDS)
        self._daemons.remove(before)
        self._daemon("slurmdbd", "-D", environment=environment)
        return environment

    def start_node(self, name: str) -> None:
        """Start the daemon of a node, also again after `kill_node`."""
        within = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name) if self._host_names else ()
        options = ("-D", "-N", name, "-d", f"{self._root}/usr/sbin/slurmstepd")
        self._node_daemons[name] = self._daemon("slurmd", *options, within=within)

    def kill_node(self, name: str) -> None:
        """Kill a node's daemon and the processes of its jobs at once, as if it lost its power; needs `host_names`."""
        daemon = self._node_daemons.pop(name)
        space = _host_name_space(daemon.pid)
        if space == _host_name_space(os.getpid()):
            raise ValueError("the processes of a node are only known where each has its own host name")
        lost = [pid for pid in psutil.pids() if _host_name_space(pid) == space]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none reports the end of another
            for pid in lost:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        daemon.wait()

    def _is_registered(self) -> bool:
        return self.run("sacctmgr", "-n", "-P", "show", "cluster", "format=ControlPort", check=False).strip() not in {"", "0"}

    def _all_idle(self) -> bool:
        idle = self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False).split()
        return len(set(idle)) == self.nodes

    def _start_database(self) -> None:
        share, data = self._root / "usr/share/mysql", self.folder / "database"
        common = ["--no-defaults", "--user=root", f"--datadir={data}", f"--lc-messages-dir={share}"]
        tables = "".join((share / name).read_text() for name in ("mysql_system_tables.sql", "mysql_system_tables_data.sql"))
        with (self.folder / "log" / "database.log").open("wb") as log:
            subprocess.run(
                [f"{self._root}/usr/sbin/mariadbd", *common, "--bootstrap", "--skip-networking"],
                input=f"create database mysql;\nuse mysql;\n{tables}\ncreate database slurm;\n".encode(),
                env=self.environment,
                stdout=log,
                stderr=log,
                timeout=WAIT_SECONDS,
                check=True,
            )
        socket_path, pid = self.folder / "database.socket", self.folder / "database.pid"
        where = ["--bind-address=127.0.0.1", f"--port={self._database_port}", f"--socket={socket_path}", f"--pid-file={pid}"]
        self._daemon("mariadbd", *common, *where, "--skip-grant-tables", "--innodb-buffer-pool-size=64M")
        self.wait_for(socket_path.exists, "mariadbd")

    def _daemon(
        self, program: str, *options: str, within: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        name = f"{program}{len(self._daemons)}"
        with (self.folder / "log" / f"{name}.out").open("wb") as log:
            command = [*within, f"{self._root}/usr/sbin/{program}", *options]
            found = {**self.environment, **(environment or {})}
            self._daemons.append(subprocess.Popen(command, env=found, cwd=self.folder, stdout=log, stderr=log))
        return self._daemons[-1]

    def _end(self) -> None:
        if self._daemons:
            for process in self._steps():  # those of jobs first: a node that ends leaves them running
                _kill(process)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.send_signal(signal.SIGCONT)
        for daemon in self._daemons:
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in self._steps():
            _kill(process)
        self._daemons.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _steps(self) -> list[psutil.Process]:
        """Return the processes of jobs, but for the daemons and this program's own.

        They have the cluster's configuration in their environment; slurmstepd overwrites that, and works in the folder.
        """
        own = {daemon.pid for daemon in self._daemons} | {process.pid for process in psutil.Process().parents()} | {os.getpid()}
        return [process for process in psutil.process_iter() if process.pid not in own and self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.environ().get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                return True
            return process.name().startswith("slurmstepd") and Path(process.cwd()) == self.folder.resolve()
        except psutil.Error:
            return False

    def _last_words(self) -> str:
        logs = sorted((self.folder / "log").glob("*"))
        return "\n".join(f"{log.name}: {lines[-1]}" for log in logs if (lines := log.read_text(errors="replace").splitlines()))


def _host_name_space(pid: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/uts")
    return ""


def unpacked() -> Path:
    """Return the folder with the unpacked packages; download them where there is none.

    Raises:
        SlurmUnavailableError: this machine cannot do that.
    """
    if os.geteuid() != 0:
        raise SlurmUnavailableError("Slurm's daemons start jobs of other users: run this as root")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tachoscope" / "slurm"
    if folder.is_dir():
        return folder
    if missing := [program for program in ("apt-get", "dpkg") if not shutil.which(program)]:
        raise SlurmUnavailableError(f"there is no {missing[0]}: the packages of Slurm are Debian's")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        made = Path(temporary) / "root"
        made.mkdir()
        _download(Path(temporary), PACKAGES)
        for package in sorted(Path(temporary).glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(made)], check=True)
        for name in _LINKS:
            (made / "usr/sbin" / name).symlink_to(f"{name}-wlm")
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder


def _clock_library(root: Path) -> Path:
    """Return the library that gives a program another clock; download it where there is none."""
    found = root / "usr/lib" / _architecture() / "faketime/libfaketimeMT.so.1"
    if not found.exists():
        with tempfile.TemporaryDirectory(dir=root.parent) as temporary:
            _download(Path(temporary), (CLOCK_PACKAGE,))
            for package in Path(temporary).glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    return found


def _download(folder: Path, packages: Sequence[str]) -> None:
    done = subprocess.run(["apt-get", "download", *packages], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        raise SlurmUnavailableError(f"apt-get download: {said[-1]}; run apt-get update, or this Debian has no such package")


def _architecture() -> str:
    return f"{os.uname().machine}-linux-gnu"


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):  # it may have ended
        process.kill()


def main() -> None:
    """Start a cluster, run a job on two nodes and show what the accounting has of it."""
    try:
        with SlurmCluster() as cluster:
            print(cluster.run("sinfo"), end="")
            job = cluster.run(
                "sbatch", "--parsable", "-N2", "--gres=gpu:1", "--output=/dev/null", "--wrap", "srun hostname"
            ).strip()
            cluster.wait_for_state(job, "COMPLETED")
            (found,) = json.loads(cluster.run("sacct", "--json", "--jobs", job))["jobs"]
            print(f"job {job}: {found['state']['current']}, nodes {found['nodes']}, {found['required']}")
    except SlurmUnavailableError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
