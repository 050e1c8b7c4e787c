"""What a certificate of rank-exponential costs with and without a beta: docs/central-mechanisms.md.

Ranks above the non-private rank ceil((n + 1) 0.9), and the mean threshold above the non-private one
on scores drawn from a Beta(2, 5) law, for coverage 0.9 at epsilon 1 with 1,024 uniform bins. The
last columns are ranks of a PAC promise with failure probability 0.1. All draws are seeded.
"""

import argparse

import numpy as np

from confide.aggregator.quantiles.histogram import conformal_rank, histogram, tail_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.exact.grids import uniform_grid
from confide.protocol.exact.sampling import SeededEntropy

ALPHA, BETA, DELTA, BINS = 0.1, 1e-3, 0.1, 1_024
SIZES = (1_000, 5_000, 10_000, 50_000)


def line(n: int, trials: int) -> str:
    plain = conformal_rank(n=n, level=0.9)
    kept = RankExponential(bins=BINS, epsilon=1.0, beta=BETA)
    averaged = RankExponential(bins=BINS, epsilon=1.0)
    rng, grid = np.random.default_rng(n), uniform_grid(BINS)
    samples = [rng.beta(2, 5, n) for _ in range(trials)]
    exact = np.array([np.partition(scores, plain - 1)[plain - 1] for scores in samples])
    cells = [f"{n:,}"]
    inflation = []
    for mechanism in (kept, averaged):
        rank, entropy = mechanism.rank(n=n, alpha=ALPHA), SeededEntropy(str(mechanism.beta), n)
        cells.append(str(rank - 1 + mechanism.margin - plain))
        drawn = [mechanism.release(histogram(s, grid), rank, entropy).threshold for s in samples]
        more = 1000 * (np.array(drawn) - exact)
        inflation.append(f"{more.mean():.2f} ± {more.std() / trials**0.5:.2f}")
    pac = averaged.pac_rank(n=n, alpha=ALPHA, delta=DELTA) - plain
    without = tail_rank(n=n, alpha=ALPHA, delta=DELTA) - plain
    return "| " + " | ".join([*cells, *inflation, str(without), str(pac)]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    trials = parser.parse_args().trials
    print(
        "| n | ranks, beta 0.001 | ranks, no beta | inflation, beta 0.001 | inflation, no beta "
        "| PAC ranks without privacy | PAC ranks |"
    )
    print("|---" * 7 + "|")
    for n in SIZES:
        print(line(n, trials))


if __name__ == "__main__":
    main()
