"""The schedulers whose nodes the life cycle can take out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tachoscope_watch.nodes.actuator import Actuator
from tachoscope_watch.nodes.kubernetes import KubernetesNodes
from tachoscope_watch.nodes.slurm import SlurmNodes

ACTUATORS: Mapping[str, Callable[[], Actuator]] = {"slurm": SlurmNodes, "kubernetes": KubernetesNodes}
