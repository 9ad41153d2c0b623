"""Plants a bad node in a real Slurm, and notes when it is drained, tested and returned, and where jobs run meanwhile.

    python -m benchmarks.node_lifecycle        # with TMPDIR unset: paths of sockets are short

The fault is planted: on the bad node the preflight asks more of the storage than any disk does, until it is "repaired". Slurm's
HealthCheckProgram runs the tests that the watch asks for. Needs what `benchmarks.slurm_cluster` needs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.slurm_cluster import SlurmCluster

from tachoscope_preflight.names import NAMES

sys.path.append(str(Path(__file__).parents[1]))

from sections import write_section

BAD = "node2"
WAIT_SECONDS = 420.0
RULES = """scheduler: slurm
actions: "on"
most_out: 1
every: 2s
test: {timeout: 5m, again_after: 5s}
"""
CHECK = """#!/bin/sh
exec setsid --fork flock --nonblock {folder}/lock-$(hostname) {folder}/tool nodes test --store {folder}/store -- >/dev/null 2>&1
"""
"""slurmd ends the program after 60 s: the test goes on without it, one at a time."""


def script(folder: Path) -> str:
    """Return a program that runs tachoscope with the arguments of a preflight on the node that it runs on."""
    least = " ".join(f"--least {name}=0.001" for name in NAMES if not name.startswith("storage"))
    return f"""#!/bin/sh
export PYTHONPATH="{os.environ.get("PYTHONPATH", "")}" PATH="{os.environ["PATH"]}" OMP_NUM_THREADS=1 HOME="{folder}"
node=$(hostname)
mkdir -p "{folder}/scratch-$node"
rate=0.001
[ -e "{folder}/bad-$node" ] && rate=1e15
limits=""
for name in {" ".join(name for name in NAMES if name.startswith("storage"))}; do limits="$limits --least $name=$rate"; done
exec "{sys.executable}" -m tachoscope_cli.main "$@" --quick --force --storage "{folder}/scratch-$node" {least} $limits
"""


def main() -> int:
    """Run the life of a bad node; return 1 if a state was not reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nodes-"))
    (folder / "store").mkdir()
    (folder / "nodes.yaml").write_text(RULES)
    (folder / "tool").write_text(script(folder))
    (folder / "check").write_text(CHECK.format(folder=folder))
    for name in ("tool", "check"):
        (folder / name).chmod(0o755)
    (folder / f"bad-{BAD}").touch()
    settings = [f"HealthCheckProgram={folder}/check", "HealthCheckInterval=20", "HealthCheckNodeState=ANY"]
    with SlurmCluster(nodes=3, gpus=0, host_names=True, settings=settings) as cluster:
        environment = {**cluster.environment, "XDG_STATE_HOME": str(folder / "state")}
        with (folder / "watch.log").open("wb") as log:
            words = ["watch", "--store", f"{folder}/store", "--nodes", f"{folder}/nodes.yaml", "--every", "5", "--port", "0"]
            command = [sys.executable, "-m", "tachoscope_cli.main", *words]
            watch = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            return live(cluster, folder, environment, write=options.write)
        finally:
            watch.terminate()
            watch.wait(60)
            sys.stderr.write(f"log of the watch: {folder}/watch.log\n")


def live(cluster: SlurmCluster, folder: Path, environment: dict[str, str], *, write: bool) -> int:
    """Let the node be found bad, drained, tested, repaired and returned."""

    def shown() -> dict[str, Any]:
        command = [sys.executable, "-m", "tachoscope_cli.main", "nodes", "explain", BAD, "--store", f"{folder}/store"]
        done = subprocess.run([*command, "--format", "json"], env=environment, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"nodes": [{"state": ""}], "audit": []}

    def slurm() -> str:
        return cluster.run("sinfo", "--noheader", "--nodes", BAD, "--format=%T|%E").strip()

    cluster.wait_for(lambda: shown()["nodes"][0]["state"] == "healthy", "the watch", WAIT_SECONDS)
    sleeper = cluster.run("sbatch", "--parsable", f"--nodelist={BAD}", "--output=/dev/null", "--wrap", "sleep 30").strip()
    began = time.time()
    cluster.run("srun", f"--nodelist={BAD}", f"{folder}/tool", "preflight", "--store", f"{folder}/store", check=False)
    found = time.time()
    cluster.wait_for(lambda: "drain" in slurm(), "the drain", WAIT_SECONDS)
    lines = [f"unfit after {found - began:.0f} s of preflight; drained {time.time() - found:.1f} s later: {slurm()}"]
    others = cluster.run("srun", "--ntasks=2", "--nodes=2", "hostname").split()
    lines.append(f"meanwhile a job of two nodes ran on {', '.join(sorted(others))}; the job on {BAD}: {cluster.state(sleeper)}")
    cluster.wait_for(lambda: shown()["nodes"][0].get("failed_tests", 0) > 0, "a failed test", WAIT_SECONDS)
    lines.append(f"tested: {shown()['nodes'][0]['why'][:120]}")
    (folder / f"bad-{BAD}").unlink()
    repaired = time.time()
    cluster.wait_for(lambda: shown()["nodes"][0]["state"] == "returned", "the return", WAIT_SECONDS)
    cluster.wait_for(lambda: slurm().startswith("idle"), "the node in service", WAIT_SECONDS)
    lines.append(f"returned {time.time() - repaired:.0f} s after its repair: {slurm()}")
    lines.append(f"a job on it runs: {cluster.run('srun', f'--nodelist={BAD}', 'hostname').strip()}")
    states = [line["after"] for line in shown()["audit"] if line["what"] == "state"]
    actions = [f"{line['what']} {line['outcome']}" for line in shown()["audit"] if line["what"] != "state"]
    lines.append(f"states: {', '.join(states)}; actions: {', '.join(actions)}")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    if write:
        text = "\n".join(f"- {line.replace(str(folder), '')}" for line in lines)
        write_section("node_lifecycle", text, "python -m benchmarks.node_lifecycle --write")
    wrong = BAD in others or "resume done" not in actions or actions.count("drain done") != 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
