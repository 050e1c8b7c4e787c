"""A score of your own: register it, calibrate with it, and compare it with hps.

A score is an elementwise function of a ranking (the labels of a record, ranked by probability)
with values in [0, 1]; lower conforms better. After `register`, plans may name it.
"""

import confide
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.registry import register
from confide.protocol.simulated.embedded import predictions

# The probability of a label against the largest of the record.
RATIO = register(LabelScore("ratio", lambda ranking: 1 - ranking.own / ranking.top))


def main() -> None:
    probs, labels = predictions()
    for name in ("hps", RATIO.name):
        found = confide.evaluate(
            probs, labels, score=name, method="bits", epsilon=2.0, n=12_000, trials=3, seed=1
        )
        print(f"{name}: test coverage {found.coverage:.3f}, mean set size {found.size:.2f}")


if __name__ == "__main__":
    main()
