"""How often a planted shift of the step time is found, how far off, how often one is found where none is, and how long it takes.

Steps of 100 ms with normal noise, one in a hundred 2 to 20 times as long; a shift at a random step of the middle half, or none.

    python benchmarks/change_points.py            # print
    python benchmarks/change_points.py --write    # and write docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sections import write_section

from tachoscope_analyzers.stats.arrays import Matrix
from tachoscope_analyzers.stats.change_points import change_points

COUNTS = (200, 1_000)
NOISE = (0.02, 0.05, 0.10, 0.30)
SHIFTS = (0.12, 0.25, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="of each row and column")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    generator = np.random.default_rng(7)
    titles = [f"+{shift * 100:.0f} % found (off by, p95)" for shift in SHIFTS]
    lines = [f"| steps | noise | none: false | {' | '.join(titles)} |", "|---|---|---|" + "---|" * len(SHIFTS)]
    for count in COUNTS:
        for noise in NOISE:
            false = sum(bool(change_points(planted(generator, count, noise, 0.0, count // 2))) for _ in range(options.runs))
            cells = [found(generator, count, noise, shift, options.runs) for shift in SHIFTS]
            lines.append(f"| {count:,} | {noise * 100:.0f} % | {false} of {options.runs} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    seconds = planted(generator, 1_000_000, 0.05, 0.12, 700_123)
    begin = time.perf_counter()
    (place,) = change_points(seconds)
    lines += ["", f"1,000,000 steps, 5 % noise, +12 %: off by {abs(place - 700_123)}, in {time.perf_counter() - begin:.2f} s."]
    print("\n".join(lines))
    if options.write:
        write_section("change_points", "\n".join(lines))


def planted(generator: np.random.Generator, count: int, noise: float, shift: float, place: int) -> Matrix:
    """Return step times in seconds that become longer by the ratio `shift` from a place on."""
    seconds = 0.1 * np.maximum(generator.normal(1, noise, count), 0.2)
    seconds[place:] *= 1 + shift
    return np.asarray(seconds * np.where(generator.random(count) < 0.01, generator.uniform(2, 20, count), 1.0))


def found(generator: np.random.Generator, count: int, noise: float, shift: float, runs: int) -> str:
    """Return in how many runs exactly one change was found, near the planted one, and how far off these were."""
    off = []
    for _ in range(runs):
        place = int(generator.integers(count // 4, 3 * count // 4))
        places = change_points(planted(generator, count, noise, shift, place))
        if len(places) == 1 and abs(places[0] - place) <= count // 10:
            off.append(abs(places[0] - place))
    return f"{len(off)} ({np.quantile(off, 0.95):.0f})" if off else "0"


if __name__ == "__main__":
    main()
