"""Which runs a set has: drawn from a seed, in an order that is drawn too, so that no class has a part of the day to itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any

from benchmarks.lab.faults import BY_NAME, CAUSES, SLUGS, memory, pipelines
from benchmarks.lab.faults.cause import Cause
from benchmarks.lab.spec import Planned, Spec

CLEAN_RATIO = 0.3
"""At least so many of all runs are clean."""
LOOKALIKE_SEVERITIES = (0.2, 0.5)
SMOKE = (("input_workers", "sleep"), ("compute_straggler", "extra_work"), ("checkpoint_stall", "save"))
CLEAN_WORKLOADS = ("ddp", "ddp", "ddp", "ddp", "ddp", "single", "pipeline", "exchange", "replicas", "ps")

PAIRS = (
    (("input_workers", "sleep"), ("checkpoint_stall", "save")),
    (("compute_straggler", "extra_work"), ("checkpoint_stall", "save")),
    (("compute_straggler", "extra_work"), ("input_workers", "sleep")),
    (("input_straggler", "one_rank"), ("host_pause", "evaluation")),
    (("host_pause", "evaluation"), ("input_fetch", "server")),
    (("comm_exposed", "gradients"), ("checkpoint_stall", "save")),
)
"""Two faults at once, that can both be had in the workload of the first."""


def runs(name: str, *, runs_per_class: int, seed: int, only: tuple[str, ...] = ()) -> list[Spec]:
    """Return the runs of a set, in the order in which they are to be made.

    Args:
        name: `development`, `test` or `smoke`; each draws its own.
        runs_per_class: runs of each class at each severity, of each side of each look-alike pair, and of each two faults.
        only: slugs, and `clean`, `lookalike` or `pair`; empty: all.
    """
    found = list(_smoke(seed) if name == "smoke" else _all(name, runs_per_class, seed))
    wanted = [spec for spec in found if not only or (set(only) & _labels(spec))]
    Random(f"{name}-{seed}-order").shuffle(wanted)
    return wanted


def _labels(spec: Spec) -> set[str]:
    return {spec.kind, spec.lookalike} | ({fault.slug for fault in spec.faults} if spec.kind == "fault" else set())


def _smoke(seed: int) -> Iterator[Spec]:
    for number, key in enumerate(SMOKE):
        yield _spec("smoke", "fault", [BY_NAME[key]], 0.5, seed, number, steps=40)
    yield _clean("smoke", "ddp", seed, 0, steps=40)


def _all(name: str, count: int, seed: int) -> Iterator[Spec]:
    faulty = []
    for slug in SLUGS:
        ways = [cause for cause in CAUSES if cause.slug == slug]
        for severity in (0.1, 0.2, 0.5):
            for number in range(count):
                dice = Random(f"{name}-{seed}-{slug}-{severity}-{number}")
                cause = dice.choice([way for way in ways if severity in way.severities])
                faulty.append(_spec(name, "fault", [cause], severity, seed, number))
    for number in range(count):
        faulty.extend(_lookalikes(name, seed, number))
        for index, keys in enumerate(PAIRS):
            faulty.append(_spec(name, "pair", [BY_NAME[key] for key in keys], 0.5, seed, number * len(PAIRS) + index))
    yield from faulty
    clean = ceil(len(faulty) * CLEAN_RATIO / (1 - CLEAN_RATIO))
    for number in range(clean):
        yield _clean(name, CLEAN_WORKLOADS[number % len(CLEAN_WORKLOADS)], seed, number)


def _shape(dice: Random, workload: str) -> dict[str, Any]:
    """Draw what a training is like."""
    shape: dict[str, Any] = {
        "model": dice.choice(["sequence", "convolution"]),
        "scale": round(dice.uniform(0.85, 1.2), 3),
        "workers": dice.choice([0, 2]) if workload == "ddp" else dice.choice([0, 1]) if workload == "single" else 0,
        "pinned": workload == "ddp" and dice.random() < 0.3,
    }
    if shape["pinned"]:
        shape["workers"] = 0  # worker processes would be on the rank's core with it
    if workload in {"ddp", "single"} and not shape["workers"]:
        shape["source"] = dice.choice(["loader", "get_batch"])
    if workload == "single":
        shape["micro_batches"] = dice.choice([1, 4])
    if workload == "pipeline":
        return {"width": dice.choice([144, 160, 176]), "micro_batches": pipelines.MANY, "layers": [pipelines.LAYERS // 2] * 2}
    if workload in {"replicas", "exchange", "ps"}:
        # Three or four ranks on two cores: little is computed, most is slept as if it were waited for a device. Where all compute
        # at the same moment they do contend for cores, and that is to be far less than a finding.
        shape |= {"model": "convolution", "scale": 0.1, "device_seconds": round(dice.uniform(*_DEVICE_SECONDS[workload]), 3)}
    if workload == "exchange":
        shape |= {"message_bytes": dice.choice([1 << 19, 3 << 18, 1 << 20]), "world_size": 4}
    return shape


def _spec(
    name: str, kind: str, causes: list[Cause], severity: float, seed: int, number: int, *, lookalike: str = "", steps: int = 0
) -> Spec:
    label = "+".join(cause.slug for cause in causes)
    key = f"{name}-{seed}-{kind}-{lookalike}-{label}-{severity}-{number}"
    dice = Random(key)
    main = causes[0]
    shape = _shape(dice, main.workload)
    for cause in causes:
        shape |= cause.shape(dice, severity)
    if shape.get("workers"):
        shape["pinned"] = False
    planned = []
    count = steps or main.steps
    for cause in causes:
        first = round(count * dice.uniform(0.4, 0.55)) if cause.midway else 0
        if cause.slug == "silent_corruption":  # the severity is the part of the run that is spoilt
            first = round(count * (1 - severity))
        planned.append(Planned(cause.slug, cause.name, severity / len(causes), first, cause.draw(dice, severity, shape)))
    slugs = "+".join(cause.slug for cause in causes)
    return Spec(
        id=f"{name}-{kind}-{lookalike + '-' if lookalike else ''}{slugs}-{round(severity * 100)}-{number:03d}",
        set=name,
        kind=kind,
        lookalike=lookalike,
        workload=main.workload,
        severity=severity,
        world_size=main.world_size,
        steps=count,
        seed=dice.randrange(1 << 31),
        shape=shape,
        faults=tuple(planned),
    )


_DEVICE_SECONDS = {"replicas": (0.07, 0.09), "exchange": (0.09, 0.11), "ps": (0.03, 0.05)}
_STEPS = {"ddp": 120, "single": 120, "pipeline": pipelines.STEPS}
_WORLDS = {"single": 1, "exchange": 4, "replicas": 3, "ps": 3}


def _clean(name: str, workload: str, seed: int, number: int, *, steps: int = 120, lookalike: str = "") -> Spec:
    dice = Random(f"{name}-{seed}-clean-{lookalike}-{workload}-{number}")
    shape = _shape(dice, workload)
    if lookalike == "recompile_v_start":
        shape |= {
            "workers": 0,
            "pinned": False,
            "start_compile_seconds": dice.uniform(6.0, 10.0),
            "start_compile_rank": dice.choice([-1, 0, 1]),
        }
    elif lookalike:
        shape |= {"rate_spike_step": dice.randrange(20, steps - 20), "rate_spike_factor": dice.choice([30.0, 100.0, 300.0])}
    return Spec(
        id=f"{name}-{'lookalike-' + lookalike + '-' if lookalike else ''}clean-{workload}-{number:03d}",
        set=name,
        kind="lookalike" if lookalike else "clean",
        lookalike=lookalike,
        workload=workload,
        severity=0.0,
        world_size=_WORLDS.get(workload, 2),
        steps=min(steps, _STEPS.get(workload, 90)),
        seed=dice.randrange(1 << 31),
        shape=shape,
        faults=(),
    )


def _lookalikes(name: str, seed: int, number: int) -> Iterator[Spec]:
    """Yield both sides of each pair of the reference, alike in all but the cause."""
    severity = LOOKALIKE_SEVERITIES[number % len(LOOKALIKE_SEVERITIES)]
    for pair, sides in LOOKALIKES.items():
        for side, key in enumerate(sides):
            if key is None:
                yield _healthy_side(name, pair, seed, number)
                continue
            spec = _spec(name, "lookalike", [BY_NAME[key]], severity, seed, number, lookalike=pair)
            yield _alike(spec, pair, side, Random(f"{name}-{seed}-{pair}-{number}"))


LEAK_OR_CACHE = "leak_v_cache"
LOOKALIKES: dict[str, tuple[tuple[str, str] | None, tuple[str, str] | None]] = {
    "2v11": (("input_preprocess", "decode_bare_loop"), ("host_pause", "stall")),
    "1v2": (("input_fetch", "read_and_decode"), ("input_preprocess", "read_and_decode")),
    "4v12": (("input_straggler", "one_rank"), ("compute_straggler", "extra_work")),
    "12v15": (("compute_straggler", "extra_work"), ("data_imbalance", "lengths")),
    "18v21": (("comm_exposed", "gradients"), ("compute_straggler", "extra_work")),
    "11v24": (("host_pause", "evaluation"), ("checkpoint_stall", "save")),
    "19v21": (("network_degraded", "token_bucket"), ("compute_straggler", "extra_work")),
    "28v": (("silent_corruption", "flip"), None),
    "compile_v_hang": (("recompilation", "long"), ("hang", "stuck")),
    LEAK_OR_CACHE: (("out_of_memory", "leak"), None),
    "recompile_v_start": (("recompilation", "lengths"), None),
}
_HEALTHY_SIDES = {"28v": "replicas", "recompile_v_start": "ddp"}
"""The workload of a side without a fault."""


def _healthy_side(name: str, pair: str, seed: int, number: int) -> Spec:
    """Return the run of a pair's side without a fault."""
    if pair != LEAK_OR_CACHE:
        return _clean(name, _HEALTHY_SIDES[pair], seed, number, steps=90, lookalike=pair)
    spec = _clean(name, "single", seed, number, lookalike=pair)
    dice = Random(f"{spec.id}-{seed}")
    return replace(spec, steps=memory.STEPS, shape={**memory.shape(dice, 0.0), "cache_ratio": round(dice.uniform(0.4, 0.8), 2)})


def _alike(spec: Spec, pair: str, side: int, dice: Random) -> Spec:
    """Return the run with what both sides of its pair have in common: `dice` gives both the same."""
    common: dict[str, Any] = {"scale": round(dice.uniform(0.85, 1.2), 3)}
    rank, every = dice.randrange(2), dice.choice([5, 8, 10])
    model, main_ratio, ballast = dice.choice(["sequence", "convolution"]), dice.uniform(0.7, 0.85), 1 << 20
    micro_batches = dice.choice([1, 4])
    faults = list(spec.faults)
    if pair in {"1v2", "4v12", "18v21", "11v24", "compile_v_hang", "recompile_v_start"}:
        common |= {"model": model, "workers": 0, "pinned": False}
    elif pair == "2v11":  # a script without a loader: slow before the model, or after it
        common |= {"model": model, "pinned": False, "micro_batches": micro_batches}
    elif pair == "12v15":
        common |= {"model": "sequence", "workers": 0, "pinned": False}
    elif pair == "19v21":  # both begin in the middle of a run that exchanges as much
        common |= {"model": model, "workers": 0, "pinned": False, "ballast_bytes": ballast}
        faults = [replace(fault, first_step=spec.steps // 2) for fault in faults]
    elif pair == "28v":
        common = {}
    if pair == "18v21" and side == 1:  # a model with something to exchange, but a straggler is why that takes long
        common["ballast_bytes"] = ballast
    changed = []
    for fault in faults:
        parameters = dict(fault.parameters)
        if "rank" in parameters and pair not in {"28v"}:
            parameters["rank"] = rank if parameters["rank"] >= 0 else -1
        if "every" in parameters:
            parameters |= {"every": every, "offset": 0}
        if "main_ratio" in parameters:
            parameters["main_ratio"] = main_ratio
        changed.append(replace(fault, parameters=parameters))
    return replace(spec, shape={**spec.shape, **common}, faults=tuple(changed))
