"""How sharp the tests of labels campaigns are, and how often they are wrong.

Run with the project's environment: `python benchmarks/local/label_tests.py [--trials 12]
[--campaigns 400] [--only excess|violations|classes] [--json FILE]`. It prints the tables of
docs/local-methods.md. Every campaign is seeded; alpha = delta = 0.1.

`excess` is coverage above 0.9, next to that of a normal-theory test (the mean of X minus 1.28
standard errors, which is no certificate) on the same reports and rungs. `violations` counts
campaigns below the target on populations that are hard for tests, with Clopper-Pearson limits that
are each wrong with probability 1e-5; a lower limit above delta ends the script with status 1.
`classes` does both for thresholds by class.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.local.coverage import limits
from benchmarks.markdown import table
from confide.aggregator.procedures.labels.betting import Payoffs, betting_evidence
from confide.aggregator.procedures.labels.by_class import class_conditional
from confide.aggregator.procedures.labels.payoffs import coverage_payoffs
from confide.aggregator.procedures.labels.procedure import certified
from confide.aggregator.procedures.ladder import public_ladder
from confide.aggregator.procedures.ladder_walk import walk_down
from confide.protocol.channels.base import LabelChannel
from confide.protocol.channels.registry import auto
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.labels.query import LabelTally
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import all_scores
from confide.protocol.simulated.embedded import PROVIDER_RECORDS, discriminant, letters
from confide.simulation.driver import LabelUsers, drive

Array = NDArray[Any]
Row = dict[str, Any]

ALPHA = DELTA = 0.1
SIZES, EPSILONS = (3_000, 25_000, 200_000), (0.5, 1.0, 2.0, 4.0)
K = 10


class Known(NamedTuple):
    """A population: n draws of scores of every label with the own labels, and coverage at q."""

    labels: int
    draw: Callable[[int, np.random.Generator], tuple[Array, Array]]
    coverage: Callable[[float], float]


def around(own: Callable[[Array], Array], coverage: Callable[[float], float]) -> Known:
    """Own scores by their quantile function; other labels score towards 1."""

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        truth, scores = rng.integers(0, K, n), rng.random((n, K)) ** 0.2
        scores[np.arange(n), truth] = np.clip(own(rng.random(n)), 0, 1)
        return scores, truth

    return Known(K, draw, coverage)


def pieces(*steps: tuple[float, float]) -> Known:
    """Own scores whose distribution function is linear between these (score, share) points."""
    scores, shares = zip(*steps, strict=True)
    return around(
        lambda u: np.interp(u, shares, scores), lambda q: float(np.interp(q, scores, shares))
    )


def tied(values: Array, shares: Array) -> Known:
    """Own scores that take few values."""
    total = shares.cumsum()
    return around(
        lambda u: values[np.searchsorted(total, u, side="right").clip(max=len(values) - 1)],
        lambda q: float(shares[values <= q].sum()),
    )


def classifier(score: str) -> Known:
    """The embedded letters under a real classifier; campaigns draw with replacement."""
    features, truth = letters()
    own, others = slice(None, PROVIDER_RECORDS), slice(PROVIDER_RECORDS, None)
    probs = discriminant(features[own], truth[own], features[others]).astype(np.float32)
    scores, labels = all_scores(SCORES[score], probs), truth[others]
    true = np.sort(scores[np.arange(len(labels)), labels])

    def draw(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        rows = rng.integers(0, len(labels), n)
        return scores[rows], labels[rows]

    return Known(26, draw, lambda q: float(np.searchsorted(true, q, side="right") / len(true)))


def hard() -> dict[str, Known]:
    """Populations on which tests of coverage have gone wrong."""
    grid, shares = np.arange(1, 11) / 10, np.full(10, 0.1)
    shares[-2:] = 0.099, 0.101
    steep = around(
        lambda u: expit(logit(0.7) + logit(u.clip(1e-12, 1 - 1e-12)) / 1_000),
        lambda q: float(expit(1_000 * (logit(q) - logit(0.7)))) if 0 < q < 1 else float(q >= 1),
    )
    return {
        "plateau": pieces((0, 0), (0.3, 0.8995), (0.9, 0.8995001), (1, 1)),
        "jump": tied(np.array([0.2, 0.6, 0.95]), np.array([0.85, 0.1, 0.05])),
        "tied": tied(grid, shares),
        "steep": steep,
        "heavy tail": around(lambda u: 1 - (1 - u) ** 4, lambda q: 1 - (1 - q) ** 0.25),
        "mixture": pieces((0, 0), (0.2, 0.6), (0.5, 0.65), (0.8, 0.895), (0.99, 0.905), (1, 1)),
    }


def normal_evidence(payoffs: Payoffs) -> tuple[Array, Array]:
    """The statistic of a normal-theory test at delta and its critical value."""
    n = payoffs.sizes.sum()
    mean, second = (payoffs.sums[power].sum(axis=1) / n for power in (0, 1))
    deviation = np.sqrt(np.maximum(second - mean**2, 1e-12) / n)
    return mean / deviation, np.full(len(mean), -ndtri(DELTA))


def usual() -> dict[str, Known]:
    """Uniform scores, and those of a real classifier."""
    letter = {f"letters {score}": classifier(score) for score in ("hps", "aps")}
    return {"uniform": pieces((0, 0), (1, 1))} | letter


def excess(trials: int, populations: dict[str, Known]) -> Iterator[Row]:
    """Mean excess of the certified test and of the normal one, on the same reports."""
    ladder = public_ladder()
    for name, known in populations.items():
        for n in SIZES:
            for epsilon in EPSILONS:
                channel = auto(k=known.labels, epsilon=epsilon)
                found = []
                for trial in range(trials if n < 100_000 else (trials + 2) // 3):
                    scores, truth = known.draw(n, np.random.default_rng([n, trial]))
                    reports = channel.randomize(truth, SeededEntropy(name, n, trial))
                    rungs, payoffs = coverage_payoffs(
                        LabelTally(scores, reports), channel, ladder=ladder, alpha=ALPHA
                    )
                    tests = betting_evidence(payoffs, delta=DELTA), normal_evidence(payoffs)
                    found.append([known.coverage(walk_down(rungs, *test)[0]) for test in tests])
                ours, normal = np.mean(found, axis=0) - (1 - ALPHA)
                yield {
                    "scores": name,
                    "n": n,
                    "epsilon": epsilon,
                    "channel": channel.name,
                    "certified": ours,
                    "normal": normal,
                    "ratio": ours / normal,
                    "campaigns": len(found),
                }


def counted(failures: int, campaigns: int) -> Row:
    """A number of failures with the limits of its rate."""
    low, high = limits(failures, campaigns)
    return {"failures": failures, "campaigns": campaigns, "low": low, "high": high}


def violations(campaigns: int) -> Iterator[Row]:
    for name, known in hard().items():
        for epsilon in (1.0, 4.0):
            failures, covered = 0, []
            for trial in range(campaigns):
                scores, truth = known.draw(1_000, np.random.default_rng([7, trial]))
                users = LabelUsers(scores, truth, SeededEntropy(name, epsilon, trial))
                channel: LabelChannel = auto(k=K, epsilon=epsilon)
                q = drive(certified(channel=channel, alpha=ALPHA, delta=DELTA), users).threshold
                covered.append(known.coverage(q))
                failures += covered[-1] < 1 - ALPHA - 1e-9
            row = {"population": name, "epsilon": epsilon, "mean": float(np.mean(covered))}
            yield row | counted(failures, campaigns)


def classes(campaigns: int) -> Iterator[Row]:
    """Ten classes of equal frequency, own scores uniform up to a top that differs by class."""
    tops = np.linspace(0.3, 1.0, K)
    excesses, failures, shifted = [], np.zeros(K, dtype=np.int64), []
    pooled_shifted = []
    for trial in range(campaigns):
        rng = np.random.default_rng([8, trial])
        truth, scores = rng.integers(0, K, 10_000), rng.random((10_000, K)) ** 0.2
        scores[np.arange(10_000), truth] = rng.random(10_000) * tops[truth]
        channel = auto(k=K, epsilon=4.0)
        made = {
            name: drive(
                procedure(channel=channel, alpha=ALPHA, delta=DELTA),
                LabelUsers(scores, truth, SeededEntropy("classes", trial)),
            )
            for name, procedure in (("each", class_conditional), ("pooled", certified))
        }
        covered = np.minimum(np.array(made["each"].class_thresholds) / tops, 1)
        excesses.append(covered - (1 - ALPHA))
        failures += covered < 1 - ALPHA - 1e-9
        # The hardest class becomes half of all records.
        share = np.where(np.arange(K) == K - 1, 0.5, 0.5 / (K - 1))
        shifted.append(share @ covered)
        pooled_shifted.append(share @ np.minimum(made["pooled"].threshold / tops, 1))
    for label in range(K):
        own = {"class": label, "excess": float(np.mean(excesses, axis=0)[label])}
        yield own | counted(int(failures[label]), campaigns)
    yield {
        "class": "after a shift",
        "excess": float(np.mean(shifted)) - (1 - ALPHA),
        "pooled_excess": float(np.mean(pooled_shifted)) - (1 - ALPHA),
    }


def rate(row: Row) -> list[str]:
    """The cells of a rate of failures."""
    return [f"{row['failures']} of {row['campaigns']}", f"{row['low']:.3f} to {row['high']:.3f}"]


def shown(name: str, rows: list[Row]) -> str:
    """The table of a part as Markdown."""
    if name == "excess":
        headings = ["scores", "n", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)]
        lines: dict[tuple[str, int], list[str]] = {}
        for row in rows:
            cell = f"{row['certified']:.4f} ({row['ratio']:.2f})"
            lines.setdefault((row["scores"], row["n"]), []).append(cell)
        return table(headings, [[name, f"{n:,}", *cells] for (name, n), cells in lines.items()])
    if name == "violations":
        headings = ["population", "epsilon", "below target", "limits", "mean coverage"]
        cells = [
            [row["population"], f"{row['epsilon']:g}", *rate(row), f"{row['mean']:.3f}"]
            for row in rows
        ]
        return table(headings, cells)
    *each, shift = rows
    headings = ["class", "mean excess", "below target", "limits"]
    cells = [[str(row["class"]), f"{row['excess']:.4f}", *rate(row)] for row in each]
    return (
        table(headings, cells)
        + f"\n\nAfter the shift: coverage {0.9 + shift['excess']:.3f} by class, "
        + f"{0.9 + shift['pooled_excess']:.3f} with the pooled threshold."
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=12, help="campaigns a cell of excess")
    parser.add_argument("--campaigns", type=int, default=400, help="campaigns a rate")
    parser.add_argument("--only", choices=["excess", "violations", "classes"])
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    if min(given.trials, given.campaigns) < 1:
        parser.error("trials and campaigns must be at least 1")
    parts = {
        "excess": lambda: excess(given.trials, usual()),
        "violations": lambda: violations(given.campaigns),
        "classes": lambda: classes(given.campaigns // 4 or 1),
    }
    found: dict[str, list[Row]] = {}
    for name, rows in parts.items():
        if given.only in (None, name):
            found[name] = list(rows())
            print(shown(name, found[name]), end="\n\n", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    above = [row for rows in found.values() for row in rows if row.get("low", 0.0) > DELTA]
    for row in above:
        print(f"above delta: {row}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
