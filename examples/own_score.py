"""A score of your own: register it, calibrate with it, and compare it with hps.

A score is an elementwise function of a ranking (the labels of a record, ranked by probability)
with values in [0, 1]; lower conforms better. After `register`, plans may name it.
"""

import numpy as np

from confide import SCORES, BitUsers, Predictor, drive, true_scores
from confide.aggregator.procedures.bits import certified
from confide.protocol.channels.bit import Bit
from confide.protocol.embedded import predictions
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.registry import register

RECORDS = 12_000

# The probability of a label against the largest of the record.
RATIO = register(LabelScore("ratio", lambda ranking: 1 - ranking.own / ranking.top))


def measured(name: str) -> tuple[float, float]:
    """The coverage and the mean set size of a certified campaign with this score."""
    probs, labels = predictions()
    order = np.random.default_rng(1).permutation(len(labels))
    held, unseen = order[:RECORDS], order[RECORDS:]
    score, entropy = SCORES[name], SeededEntropy("example", name)
    users = BitUsers(true_scores(score, probs[held], labels[held]), entropy)
    certificate = drive(certified(channel=Bit(epsilon=2.0), alpha=0.1, delta=0.1, n=RECORDS), users)
    sets = Predictor(score, certificate.threshold).sets(probs[unseen])
    return sets[np.arange(len(unseen)), labels[unseen]].mean(), sets.sum(axis=1).mean()


def main() -> None:
    for name in ("hps", RATIO.name):
        coverage, size = measured(name)
        print(f"{name}: test coverage {coverage:.3f}, mean set size {size:.2f}")


if __name__ == "__main__":
    main()
