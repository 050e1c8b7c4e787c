"""How well campaigns bound a false-negative rate, on records with several true labels.

Ten labels, of which a record has one to five; a model gives each its chance, and is right about
them. Each row is of many campaigns: the share whose true rate is above alpha, with 95 % limits, the
mean true rate and set size, next to calibration without privacy.
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

import confide

LABELS, ALPHA, DELTA = 10, 0.1, 0.1


def records(n: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Chances of labels and which are true; at least one is."""
    chances = rng.beta(0.5, 1.5, size=(n, LABELS)).astype(np.float32)
    flags = rng.random((n, LABELS)) < chances
    flags[np.arange(n), chances.argmax(axis=1)] |= ~flags.any(axis=1)
    return chances, flags


def row(method: str, *, n: int, epsilon: float, campaigns: int) -> str:
    """Run campaigns on fresh records, and measure each threshold on 200,000 others."""
    test = records(200_000, np.random.default_rng(0))
    rates, sizes = [], []
    for seed in range(campaigns):
        held = records(n, np.random.default_rng(1 + seed))
        given: dict[str, Any] = {} if method == "non-private" else {"epsilon": epsilon}
        made = confide.calibrate(
            *held, score="false-negatives", method=method, alpha=ALPHA, seed=seed, **given
        )
        sets = made.predictor.predict_set(test[0])
        rates.append(confide.metrics.false_negative_rate(sets, test[1]))
        sizes.append(confide.metrics.mean_size(sets))
    above = sum(rate > ALPHA for rate in rates)
    low = beta.ppf(0.025, above, campaigns - above + 1) if above else 0.0
    high = beta.ppf(0.975, above + 1, campaigns - above) if above < campaigns else 1.0
    budget = "none" if method == "non-private" else f"{epsilon:g}"
    return (
        f"| {method} | {n:,} | {budget} | {above / campaigns:.3f} [{low:.3f}, {high:.3f}] | "
        f"{np.mean(rates):.4f} | {np.mean(sizes):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=200, help="campaigns of a row")
    campaigns = parser.parse_args().campaigns
    print("| method | n | epsilon | true rate above 0.1 | mean true rate | mean size |")
    print("|---|---:|---:|---:|---:|---:|")
    for method, n, epsilon in (
        ("non-private", 10_000, 0.0),
        ("bits", 10_000, 1.0),
        ("bits", 10_000, 4.0),
        ("bits", 50_000, 1.0),
        ("central", 2_000, 1.0),
        ("central", 10_000, 1.0),
    ):
        print(row(method, n=n, epsilon=epsilon, campaigns=campaigns), flush=True)


if __name__ == "__main__":
    main()
