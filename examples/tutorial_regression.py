"""Tutorial: private prediction intervals by conformalised quantile regression (CQR).

The model predicts two quantiles of a number; its noise grows with the feature. Calibration moves
the quantiles apart, or together, so that they cover 90 %.
"""

import numpy as np

import confide
from confide import metrics

RECORDS, BINS = 20_000, 20


def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A feature in [0, 1], and a number around a curve, noisier to the right."""
    x = rng.random(n)
    return x, 10 * np.sin(3 * x) + rng.normal(size=n) * (0.5 + 2 * x)


def quantiles(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The 10 % and 90 % quantiles in each of some bins of the feature."""
    place = (x * BINS).astype(int)
    return np.array([np.quantile(y[place == i], [0.1, 0.9]) for i in range(BINS)])


def main() -> None:
    rng = np.random.default_rng(1)
    model = quantiles(*draw(2000, rng))
    x, y = draw(RECORDS, rng)
    bands = model[(x * BINS).astype(int)]
    held, new = slice(0, RECORDS // 2), slice(RECORDS // 2, None)
    print(f"quantiles as predicted: coverage {metrics.coverage(bands[new], y[new]):.3f}")

    # The bound is public, known without the records: no target is farther from its band than 10.
    for method in ("non-private", "central", "bits"):
        made = confide.calibrate(
            bands[held], y[held], score="cqr bound=10", method=method, epsilon=2.0, seed=3
        )
        found = made.predictor.predict_interval(bands[new])
        print(
            f"{method}: coverage {metrics.coverage(found, y[new]):.3f}, "
            f"width {metrics.mean_width(found):.2f}"
        )
    thirds = metrics.group_coverage(found, y[new], (3 * x[new]).astype(int))
    print("by thirds of the feature:", ", ".join(f"{share:.2f}" for share in thirds.values()))
    print(made.predictor.explain(bands[new][:1])[0])
    confide.plots.intervals(found, y[new]).figure.savefig("intervals.png")


if __name__ == "__main__":
    main()
