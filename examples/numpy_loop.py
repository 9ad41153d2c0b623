"""A training loop without torch, as one of JAX or of any other framework: it says where its steps end and what their parts are.

    tachoscope run --job numpy -- python examples/numpy_loop.py

With JAX, `jax.block_until_ready(weights)` belongs to the block of the phase: else what is measured is only handing over the work.
"""

from __future__ import annotations

import argparse

import numpy as np

import tachoscope


def main() -> None:
    parser = argparse.ArgumentParser(description="linear regression in NumPy, with its steps and phases marked")
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    random = np.random.default_rng(0)
    truth, weights = random.normal(size=400), np.zeros(400)
    for _ in range(steps):
        with tachoscope.phase("data_wait"):
            x = random.normal(size=(1000, 400))
            y = x @ truth
        with tachoscope.phase("forward"):
            weights -= 1e-4 * x.T @ (x @ weights - y)
        tachoscope.step(samples=len(x))
    print(f"distance from the truth: {np.linalg.norm(weights - truth):.3f}")


if __name__ == "__main__":
    main()
