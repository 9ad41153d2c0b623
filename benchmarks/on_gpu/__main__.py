"""Run trainings with planted faults on the first GPU of this machine, under the probe and beside a node agent, and judge them.

For each case: a real training (train.py), its records, the agent's samples of the GPU, a profiler trace of three steps, and what
`tachoscope analyze` and `tachoscope trace` say of them. How long a step really took is measured by the training itself.

    python -m benchmarks.on_gpu --out results                    # all cases, about five minutes on an H100
    python -m benchmarks.on_gpu --out results --cases clean host_sync --seconds 4
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PORT = 9465
TRUTH = {
    "clean": {"none"},
    "clean_again": {"none"},
    "slow_read": {"input_fetch", "input_workers"},
    "slow_transform": {"input_preprocess", "input_workers"},
    "host_sync": {"host_sync"},
    "medium": {"none", "launch_bound"},
    "cuda_graph": {"none"},
    "accumulate": {"none"},
    "teacher": {"none"},
    "late_copy": {"h2d_copy"},
    "prefetch": {"none"},
    "item_each_step": {"none"},
    "launch_bound": {"launch_bound"},
    "underfilled": {"underfilled", "launch_bound"},
    "host_pause": {"host_pause"},
    "synchronize": {"host_pause", "host_sync"},
    "pageable_copy": {"h2d_copy"},
    "pinned_copy": {"h2d_copy"},
    "checkpoint": {"checkpoint_stall"},
    "evaluation": {"host_pause"},
    "float32": {"compute_inefficient"},
    "tf32": {"none", "compute_inefficient"},
    "float16": {"none"},
    "empty_cache": {"memory_thrash"},
    "ddp": {"none"},
    "compiled": {"none"},
}
"""The classes that are right for a case; `none`: no loss above a tenth has a name but compute_bound."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for reports, traces, records and results.json")
    parser.add_argument("--cases", nargs="*", default=list(TRUTH), choices=list(TRUTH))
    parser.add_argument("--seconds", type=float, default=8.0, help="of training in each case")
    parser.add_argument("--most-seconds", type=float, default=1e9, help="begin no case after so many")
    parser.add_argument("--record-only", action="store_true", help="leave the judging to a later `tachoscope analyze` of the store")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with Node(options.out.resolve(), judges=not options.record_only) as node:
        rows = []
        for case in options.cases:
            if time.monotonic() - begin > options.most_seconds:
                break
            rows.append(node.measured(case, options.seconds))
            (options.out / "results.json").write_text(json.dumps(rows, indent=1))
            print(table(rows[-1:]), flush=True)
    print(table(rows))


class Node:
    """An agent on this machine, and what runs beside it."""

    def __init__(self, out: Path, *, judges: bool) -> None:
        self.out, self.judges = out, judges
        self.store, self.spool = out / "store", Path("/dev/shm/tachoscope-on-gpu")
        self.environment = os.environ | {"TACHOSCOPE_STORE": str(self.store), "TACHOSCOPE_SPOOL": str(self.spool)}

    def __enter__(self) -> Node:
        shutil.rmtree(self.spool, ignore_errors=True)
        config = self.out / "agent.yaml"
        config.write_text(
            f"store: {self.store}\nspool: {self.spool}\nstate: {self.out / 'state'}\n"
            f"node: gpu-node\nport: {PORT}\nsample_seconds: 1\n"
            "flush: {seconds: 1, bytes: 8388608}\n"
            "gpu: {enabled: 'on', kernel_log: /dev/kmsg}\n"
        )
        self.log = (self.out / "agent.log").open("w")
        self.agent = subprocess.Popen(
            ["tachoscope", "agent", "--config", str(config)], env=self.environment, stdout=self.log, stderr=subprocess.STDOUT
        )
        for _ in range(100):
            if self.page("healthz"):
                break
            time.sleep(0.2)
        time.sleep(2.5)
        self._ask_driver("idle")
        (self.out / "metrics-idle.txt").write_text(self.page("metrics"))
        return self

    def __exit__(self, *_: object) -> None:
        (self.out / "metrics-end.txt").write_text(self.page("metrics"))
        status = Path(f"/proc/{self.agent.pid}/status").read_text()
        (self.out / "agent-status.txt").write_text(status + Path(f"/proc/{self.agent.pid}/stat").read_text())
        self.agent.terminate()
        self.agent.wait(timeout=60)
        self.log.close()

    def page(self, path: str) -> str:
        """Return a page of the agent, empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def measured(self, case: str, seconds: float) -> dict[str, Any]:
        """Run one case and return what is true of it and what is said of it."""
        result, trace = self.out / f"{case}.result.json", self.out / f"{case}.trace.json.gz"
        training = [sys.executable, str(HERE / "train.py"), "--case", case.removesuffix("_again"), "--seconds", str(seconds)]
        if case != "clean_again":
            training += ["--trace", str(trace)]
        command = ["tachoscope", "run", "--job", case, "--", *training, "--result", str(result)]
        done = threading.Event()
        watcher = threading.Thread(target=self._look_at, args=(case, done))
        watcher.start()
        begin = time.monotonic()
        with (self.out / f"{case}.log").open("w") as log:
            code = subprocess.run(command, env=self.environment, stdout=log, stderr=subprocess.STDOUT, timeout=150).returncode
        done.set()
        watcher.join()
        row: dict[str, Any] = {"case": case, "code": code, "whole_seconds": time.monotonic() - begin}
        row["true"] = json.loads(result.read_text()) if result.exists() else {}
        if not self.judges:
            return row
        row["records"] = self._said("analyze", "--job", case, out=self.out / f"{case}.report.json")
        if trace.exists():
            row["trace"] = self._said("trace", str(trace), out=self.out / f"{case}.trace-report.json")
        return row

    def _look_at(self, case: str, done: threading.Event) -> None:
        """Keep the agent's page of each five seconds, the last one that has a step of the case; ask the driver under load once."""
        while not done.wait(2.0):
            page = self.page("metrics")
            if f'training_job="{case}"' in page:
                (self.out / f"metrics-{case}.txt").write_text(page)
                if case == "clean":
                    self._ask_driver("load")

    def _ask_driver(self, name: str) -> None:
        path = self.out / f"nvml-{name}.json"
        if not path.exists():
            subprocess.run([sys.executable, str(HERE / "nvml_recording.py"), str(path)], check=False)

    def _said(self, *command: str, out: Path) -> dict[str, Any]:
        begin = time.monotonic()
        done = subprocess.run(
            ["tachoscope", *command, "--format", "json", "--output", str(out)], env=self.environment, capture_output=True, text=True
        )
        took = time.monotonic() - begin
        if not out.exists():
            return {"error": (done.stdout + done.stderr)[-2000:], "seconds": took}
        report = json.loads(out.read_text())
        return {"findings": report.get("findings", []), "step": report.get("step"), "ledger": report.get("ledger"), "seconds": took}


def table(rows: list[dict[str, Any]]) -> str:
    """Return a line for each case."""
    lines = []
    for row in rows:
        true = row["true"]
        lines.append(
            f"{row['case']:16} code {row['code']} {row['whole_seconds']:5.1f} s; "
            f"step {true.get('step_seconds', 0) * 1e3:7.2f} ms x {true.get('steps')}, "
            f"records say {names(row.get('records', {}))}; trace says {names(row.get('trace', {}))}"
        )
    return "\n".join(lines)


def names(said: dict[str, Any]) -> str:
    """Return classes with their shares and severities, or the error."""
    if "error" in said:
        return "ERROR " + said["error"][-300:]
    return ", ".join(
        f"{each.get('class', each.get('bottleneck', each.get('slug')))} {each.get('severity')} {each.get('share', 0):.0%}"
        if isinstance(each.get("share", 0), float)
        else str(each)[:100]
        for each in said.get("findings", [])
    )


if __name__ == "__main__":
    main()
