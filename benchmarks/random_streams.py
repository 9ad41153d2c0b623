"""Random requests whose truth is known, through the rules in a real Prometheus and through the evaluator of stored samples.

Servers begin late, are restarted, are not scraped for a while, lack the bucket of the threshold, and answer badly in bursts.
Both counts are compared with each other and with the truth; the evaluations at which pages fire, with those at which they must,
and must not.

python benchmarks/random_streams.py --streams 1000     # print
python benchmarks/random_streams.py --write            # 10,000, half of each objective, into docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sections import write_section

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "generators"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "alerts"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "node"))

from processes import ask_prometheus, prometheus, wait_for
from sample_slos import PLACES
from tachoscope_alerts.compile.rules import groups
from tachoscope_alerts.compile.sli_expressions import ERROR_RATIO, OBJECTIVE, bound_text
from tachoscope_alerts.compile.yaml_writer import to_yaml
from tachoscope_alerts.measure.evaluator import Events, bad_and_total, evaluations
from tachoscope_alerts.measure.from_prometheus import PrometheusSource
from tachoscope_alerts.measure.stored_samples import Series
from tachoscope_alerts.report.alert_replay import replay
from tachoscope_alerts.spec import slo_files
from tachoscope_alerts.spec.burn_rate_windows import Tier, Timing, tiers
from tachoscope_alerts.spec.slo import AtMost, Slo

BEGIN = 1_700_006_400
"""A multiple of two hours, as the blocks of a Prometheus are."""
SCRAPES = 480
SCRAPE_SECONDS = 15
SECONDS = SCRAPES * SCRAPE_SECONDS
AT_ONCE = 250
TIMING = Timing()
NAMES = ("inference-availability", "inference-ttft-p99")
SLOS = {slo.name: slo for slo in slo_files.load([Path(__file__).parent.parent / "alerts" / "slos"]) if slo.name in NAMES}
MARGIN = 0.05
"""Of a threshold: rates interpolate between scrapes, so that a window may hold an event of a scrape beside it."""
ENOUGH = 500
"""Events of a stream whose counts are compared with the truth."""


@dataclass(frozen=True)
class Stream:
    """What one server counted.

    Attributes:
        times_ms: of the scrapes that were answered, shape (N,). total, bad: its counters at them. bucket_from: the first scrape at
            which it has the bucket of the threshold.
        seen_total, seen_bad: events that two scrapes of one window hold between them, at the later one.
        part_total, part_bad: the others that its counters report, which may be counted in part: before the first scrape, and of a
            histogram within a window after it.
        faults: what befell it.
    """

    name: str
    times_ms: NDArray[np.int64]
    total: NDArray[np.float64]
    bad: NDArray[np.float64]
    bucket_from: int
    seen_total: NDArray[np.float64]
    seen_bad: NDArray[np.float64]
    part_total: NDArray[np.float64]
    part_bad: NDArray[np.float64]
    faults: frozenset[str]


def stream(name: str, slo: Slo, rng: np.random.Generator) -> Stream:
    """Draw a server."""
    rate = 10 ** rng.uniform(-0.5, 1.7)
    total = rng.poisson(rate * SCRAPE_SECONDS, SCRAPES).astype(float)
    bad = rng.binomial(total.astype(int), shares(slo, rng)).astype(float)
    faults: set[str] = set()
    answered = np.ones(SCRAPES, dtype=bool)
    if rng.random() < 0.2:
        faults.add("begins late")
        late = int(rng.integers(1, SCRAPES // 2))
        answered[:late], total[:late], bad[:late] = False, 0, 0
    if rng.random() < 0.3:
        faults.add("gaps")
        for at in rng.integers(0, SCRAPES, int(rng.integers(1, 4))):
            answered[at : at + int(rng.integers(1, 21))] = False
    restarts = rng.integers(30, SCRAPES - 30, int(rng.integers(1, 3))) if rng.random() < 0.3 else np.array([], dtype=int)
    for at in restarts:
        faults.add("restarts")
        down = int(rng.integers(0, 9))
        answered[at : at + down], total[at : at + down], bad[at : at + down] = False, 0, 0
    lives = np.searchsorted(np.sort(restarts), np.arange(SCRAPES), side="right")
    bucket_from = 0
    if isinstance(slo.indicator, AtMost) and rng.random() < 0.2:
        faults.add("no bucket")
        bucket_from = SCRAPES if not len(restarts) or rng.random() < 0.5 else int(min(restarts))
    times = (BEGIN + np.arange(1, SCRAPES + 1) * SCRAPE_SECONDS) * 1000 - int(rng.integers(0, SCRAPE_SECONDS * 1000))
    counters, befell = (counted(total, lives), counted(bad, lives)), frozenset(faults)
    is_histogram = isinstance(slo.indicator, AtMost)
    return scraped(name, times, *counters, lives, answered, bucket_from, befell, is_histogram=is_histogram)


def shares(slo: Slo, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the share of bad events of each scrape: stretches of minutes, most of them healthy."""
    found = np.zeros(SCRAPES)
    at = 0
    while at < SCRAPES:
        length = int(rng.integers(8, 160))
        found[at : at + length] = rng.choice([0.0, 0.0, 0.3 * slo.budget, 1.5 * slo.budget, 20 * slo.budget, 0.5, 1.0])
        at += length
    return np.minimum(found, 1.0)


def counted(events: NDArray[np.float64], lives: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the counter: it begins at 0 in each life of the server."""
    every = np.cumsum(events)
    begins = np.array([every[np.searchsorted(lives, life) - 1] if np.searchsorted(lives, life) else 0.0 for life in lives])
    return np.asarray(every - begins)


def scraped(
    name: str,
    times: NDArray[np.int64],
    total: NDArray[np.float64],
    bad: NDArray[np.float64],
    lives: NDArray[np.int64],
    answered: NDArray[np.bool_],
    bucket_from: int,
    faults: frozenset[str],
    *,
    is_histogram: bool,
) -> Stream:
    there = np.flatnonzero(answered)
    at = times[there]
    first = int(np.searchsorted(there, bucket_from))
    apart = np.diff(at, prepend=at[:1])
    new_life = np.diff(lives[there], prepend=lives[there][:1]) > 0
    begins = (np.arange(len(there)) == 0) | (apart > TIMING.base * 1000)
    # A histogram is measured from when it has been there for a window; half of that is smeared.
    since = at[first] + TIMING.base * 500 if is_histogram and first < len(at) else 0.0
    measured = at > since if first < len(at) else np.zeros(len(at), dtype=bool)
    first_of_life = new_life | (np.arange(len(there)) == 0)
    seen, in_part = [], []
    for counter in (total, bad):
        values = counter[there]
        grew = np.where(first_of_life, values, np.diff(values, prepend=0.0))
        seen.append(np.where(measured & ~begins, grew, 0.0))
        in_part.append(np.where((there >= bucket_from) & ~(measured & ~begins) & (~begins | first_of_life), grew, 0.0))
    return Stream(name, at, total[there], bad[there], first, *seen, *in_part, faults)


# --- as series ----------------------------------------------------------------------------------------------------------------


def series_of(slo: Slo, one: Stream) -> Iterator[Series]:
    """Yield the series that a scrape of the server has."""
    labels = {"cluster": "a", "workload_namespace": "x", "service": one.name, "model": "m", "instance": one.name}
    indicator = slo.indicator
    if isinstance(indicator, AtMost):
        metric, start = indicator.histogram.metric, one.bucket_from
        yield Series(f"{metric}_count", labels, one.times_ms, one.total)
        yield Series(f"{metric}_bucket", labels | {"le": "+Inf"}, one.times_ms, one.total)
        if start < len(one.times_ms):
            bound = {"le": bound_text(indicator.bound)}
            yield Series(f"{metric}_bucket", labels | bound, one.times_ms[start:], (one.total - one.bad)[start:])
        return
    metric = "tachoscope_requests_total"
    yield Series(metric, labels | {"outcome": "ok"}, one.times_ms, one.total - one.bad)
    yield Series(metric, labels | {"outcome": "server_error"}, one.times_ms, one.bad)


def backfill(every: list[Series], folder: Path) -> None:
    """Put series into the database of a Prometheus that does not run."""
    text = folder / "samples.om"
    with text.open("w") as file:
        for metric in sorted({one.metric for one in every}):
            family = metric.removesuffix("_total")
            file.write(f"# TYPE {family} {'counter' if metric.endswith('_total') else 'unknown'}\n")
            for one in every:
                if one.metric == metric:
                    labels = ",".join(f'{name}="{value}"' for name, value in one.labels.items())
                    file.writelines(
                        f"{metric}{{{labels}}} {value:.0f} {time / 1000:.3f}\n"
                        for time, value in zip(one.times_ms.tolist(), one.values.tolist(), strict=True)
                    )
        file.write("# EOF\n")
    promtool("tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "tsdb"))
    text.unlink()


def promtool(*words: str) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"promtool {' '.join(words)}: {done.stderr}")


# --- through both -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a real Prometheus made of an objective's streams.

    Attributes:
        events: at each evaluation of ours. times_ms: of its own evaluations: it shifts each group of rules by some seconds.
        pages: when one fires, by service.
    """

    events: Events
    times_ms: NDArray[np.int64]
    pages: Mapping[str, NDArray[np.int64]]


def through_prometheus(slo: Slo, streams: list[Stream], folder: Path) -> Seen:
    """Evaluate the rules of an objective over all that was scraped, those that read what others record after these."""
    backfill([one for each in streams for one in series_of(slo, each)], folder)
    rules = groups(slo, PLACES, TIMING)[0]["rules"]
    recorded = [rule for rule in rules if "record" in rule and rule["record"] != OBJECTIVE]
    ratios = [rule for rule in recorded if rule["record"] == ERROR_RATIO]
    with prometheus(folder) as port:
        wait_for(lambda: ask_prometheus(port, "query", query=f"count({{service!=''}} @ {BEGIN + SECONDS})")["result"])
        events = PrometheusSource(f"http://127.0.0.1:{port}").moments(slo, BEGIN, BEGIN + SECONDS, TIMING)
        record([rule for rule in recorded if rule not in ratios], folder, port)
    with prometheus(folder) as port:
        wait_for(lambda: ask_prometheus(port, "query", query=f"count(slo:total_events:base @ {BEGIN + SECONDS})")["result"])
        record(ratios, folder, port)
    with prometheus(folder) as port:
        wait_for(lambda: ask_prometheus(port, "query", query=f"count({ERROR_RATIO} @ {BEGIN + SECONDS})")["result"])
        newest = f"min(timestamp({ERROR_RATIO} @ {BEGIN + SECONDS}))"
        ((_, written),) = [row["value"] for row in ask_prometheus(port, "query", query=newest)["result"]]
        times = evaluations(BEGIN, BEGIN + SECONDS - TIMING.interval, TIMING) + round(float(written) % TIMING.interval * 1000)
        alerts = [rule["expr"] for rule in rules if rule.get("labels", {}).get("severity") == "page"]
        return Seen(events, times, firing(alerts, times, port))


def record(rules: list[dict[str, object]], folder: Path, port: int) -> None:
    """Evaluate recording rules over the whole time, and put what they record into the database."""
    path = folder / "recorded.rules.yaml"
    path.write_text(to_yaml({"groups": [{"name": "recorded", "rules": rules}]}))
    span = [f"--start={BEGIN}", f"--end={BEGIN + SECONDS}", "--eval-interval=30s"]
    places = [f"--url=http://127.0.0.1:{port}", f"--output-dir={folder / 'tsdb'}"]
    promtool("tsdb", "create-blocks-from", "rules", *span, *places, str(path))


def firing(alerts: list[str], times_ms: NDArray[np.int64], port: int) -> dict[str, NDArray[np.int64]]:
    """Return the evaluations at which one of the pages of a service fires, in milliseconds."""
    found: dict[str, set[int]] = {}
    span = {"start": str(times_ms[0] / 1000), "end": str(times_ms[-1] / 1000), "step": str(TIMING.interval)}
    for expression in alerts:
        for row in ask_prometheus(port, "query_range", query=expression, **span)["result"]:
            times = found.setdefault(row["metric"]["service"], set())
            times |= {round(float(time) * 1000) for time, _ in row["values"]}
    return {service: np.array(sorted(times), dtype=np.int64) for service, times in found.items()}


def through_evaluator(slo: Slo, streams: list[Stream]) -> Events:
    by_metric: dict[str, list[Series]] = {}
    for each in streams:
        for one in series_of(slo, each):
            by_metric.setdefault(one.metric, []).append(one)
    return bad_and_total(slo, by_metric, BEGIN, BEGIN + SECONDS, TIMING)


# --- against the truth --------------------------------------------------------------------------------------------------------


class Tally:
    """What was found over all streams."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.off: dict[str, list[float]] = {}
        self.examples: dict[str, list[str]] = {}

    def add(self, what: str, example: str) -> None:
        """Count it if there is an example of it; name it in any case."""
        self.counts[what] += bool(example)
        if example:
            self.examples.setdefault(what, []).append(example)


def compare(slo: Slo, streams: list[Stream], seen: Seen, ours: Events, tally: Tally) -> None:
    replayed = {one.labels["service"]: one for one in replay(slo, ours, BEGIN, BEGIN + SECONDS, TIMING)}
    by_service = {group[slo.by.index("service")]: group for group in ours.total}
    for one in streams:
        tally.counts["streams"] += 1
        group = by_service.get(one.name)
        pages = seen.pages.get(one.name, np.array([], dtype=np.int64))
        tally.counts["pages"] += bool(len(pages))
        tally.add("events of evaluator and Prometheus differ", "" if same(seen.events, ours, group) else one.name)
        counts_of(slo, one, ours, group, tally)
        told = replayed[one.name].by_severity("page") if group else []
        starts, first = [round(page.start * 1000) for page in told], pages[:1].tolist()
        apart = bool(starts) != bool(first) or bool(first and abs(starts[0] - first[0]) > TIMING.interval * 1000)
        tally.counts["first pages of evaluator and Prometheus more than one evaluation apart"] += apart
        fires = np.isin(seen.times_ms, pages)
        pages_of("", slo, one, seen.times_ms, fires, fires, tally)
        fires = np.zeros(len(ours.times_ms), dtype=bool)
        for page in told:
            fires |= (ours.times_ms >= page.start * 1000) & ((ours.times_ms < page.end * 1000) | page.still)
        pages_of("evaluator ", slo, one, ours.times_ms, fires, np.isin(ours.times_ms, starts), tally)


def same(theirs: Events, ours: Events, group: tuple[str, ...] | None) -> bool:
    """Return whether both have the same events of a budget, and at the same evaluations none."""
    if group is None or group not in theirs.total:
        return group is None or bool(np.isnan(ours.total[group]).all())
    pairs = ((theirs.total[group], ours.total[group]), (theirs.bad.get(group), ours.bad.get(group)))
    return all(
        one is not None and other is not None and np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)
        for one, other in pairs
    )


def counts_of(slo: Slo, one: Stream, ours: Events, group: tuple[str, ...] | None, tally: Tally) -> None:
    """Compare counts with the truth, of streams with enough events; by what befell them."""
    for kind, truth, told in (("total", one.seen_total, ours.total), ("bad", one.seen_bad, ours.bad)):
        if truth.sum() >= ENOUGH:
            counted = np.nansum(told[group]) * TIMING.interval if group is not None else 0.0
            key = f"{kind}, {'restarts, gaps or a late begin' if one.faults - {'no bucket'} else 'undisturbed'}"
            tally.off.setdefault(key, []).append(counted / truth.sum() - 1)
    is_false = one.seen_bad.sum() + one.part_bad.sum() == 0 and group is not None and np.nansum(ours.bad[group]) > 0
    tally.add("bad events where none were", one.name if is_false else "")


def pages_of(
    who: str, slo: Slo, one: Stream, times_ms: NDArray[np.int64], fires: NDArray[np.bool_], chosen: NDArray[np.bool_], tally: Tally
) -> None:
    """Compare when pages fire with when they must, and must not; a page may come one evaluation later.

    Args:
        chosen: evaluations at which a page has to be above its threshold: what is kept firing after that is not asked for.
    """
    must, may = np.zeros(len(times_ms), dtype=bool), np.zeros(len(times_ms), dtype=bool)
    for tier in tiers(slo):
        if tier.severity == "page":
            must |= above(slo, tier, one, times_ms)
            may |= near(slo, tier, one, times_ms)
    must &= np.concatenate([[False], must[:-1]])
    beside = fires | np.concatenate([[False], fires[:-1]]) | np.concatenate([fires[1:], [False]])
    tally.counts[f"{who}pages that must be"] += bool(must.any())
    for what, where in (("fires below its threshold", chosen & ~may), ("missed above its threshold", must & ~beside)):
        tally.add(f"{who}{what}", f"{one.name} {sorted(one.faults)} at {np.flatnonzero(where)[:3]}" if where.any() else "")
    bad = one.seen_bad + one.part_bad
    is_without = fires.any() and not within(bad, one.times_ms, times_ms[fires][:1], SECONDS).any()
    tally.add(f"{who}pages without a bad event", one.name if is_without else "")


def above(slo: Slo, tier: Tier, one: Stream, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say at which ends the truth is clearly above the threshold in both windows, and the bad events clearly enough."""
    return np.logical_and.reduce([np.logical_and.reduce(found) for found in _in_windows(slo, tier, one, ends, 1 + MARGIN)])


def near(slo: Slo, tier: Tier, one: Stream, ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say at which ends it may be above in both windows."""
    return np.logical_and.reduce([np.logical_or.reduce(found) for found in _in_windows(slo, tier, one, ends, 1 - MARGIN)])


def _in_windows(slo: Slo, tier: Tier, one: Stream, ends: NDArray[np.int64], factor: float) -> Iterator[list[NDArray[np.bool_]]]:
    """Yield for the long and the short window whether it is above: it may end an evaluation earlier or later, and hold more.

    A window holds a moment more than it is long, and each is a rate over a window of its own.
    """
    for seconds in (tier.long_seconds, tier.short_seconds):
        yield [
            is_above(slo, tier, one, ends + shift, length, factor, with_part=with_part)
            for shift in (round(shift * TIMING.interval * 1000) for shift in (-1, 0, 1))
            for length in (seconds, seconds + TIMING.base)
            for with_part in (False, True)
        ]


def is_above(
    slo: Slo, tier: Tier, one: Stream, ends: NDArray[np.int64], seconds: float, factor: float, *, with_part: bool
) -> NDArray[np.bool_]:
    bad, total = (
        within(counts + with_part * part, one.times_ms, ends, seconds)
        for counts, part in ((one.seen_bad, one.part_bad), (one.seen_total, one.part_total))
    )
    least = slo.least_bad_events * factor if seconds >= tier.long_seconds else 0.0
    return (bad > factor * tier.threshold(slo) * total) & (bad >= least)


def within(counts: NDArray[np.float64], times: NDArray[np.int64], ends: NDArray[np.int64], seconds: float) -> NDArray[np.float64]:
    summed = np.concatenate([[0.0], np.cumsum(counts)])
    last = np.searchsorted(times, ends, side="right")
    first = np.searchsorted(times, ends - round(seconds * 1000), side="right")
    return np.asarray(summed[last] - summed[first])


def table(tally: Tally) -> str:
    rows = ["| what | streams |", "|---|---|"]
    rows += [f"| {what} | {count:,} |" for what, count in tally.counts.items()]
    rows += ["", "| counted / truth - 1 | streams | median | 1 % | 99 % | within 2 % |", "|---|---|---|---|---|---|"]
    for key, values in sorted(tally.off.items()):
        low, middle, high = np.percentile(values, [1, 50, 99])
        near = np.mean(np.abs(values) <= 0.02)
        rows.append(f"| {key} | {len(values):,} | {middle:+.2%} | {low:+.2%} | {high:+.2%} | {near:.1%} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    tally = Tally()
    for slo in SLOS.values():
        for begin in range(0, arguments.streams // len(SLOS), AT_ONCE):
            count = min(AT_ONCE, arguments.streams // len(SLOS) - begin)
            streams = [
                stream(f"s{begin + number}", slo, np.random.default_rng((arguments.seed, len(slo.name), begin + number)))
                for number in range(count)
            ]
            with tempfile.TemporaryDirectory() as folder:
                seen = through_prometheus(slo, streams, Path(folder))
            compare(slo, streams, seen, through_evaluator(slo, streams), tally)
            print(f"{slo.name}: {begin + count:,} streams", file=sys.stderr)
    for what, examples in tally.examples.items():
        print(what, *examples[:8], sep="\n  ", file=sys.stderr)
    print(table(tally))
    if arguments.write:
        write_section("random_streams", table(tally))


if __name__ == "__main__":
    main()
