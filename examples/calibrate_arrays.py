"""Calibrate on arrays: a certified campaign of bits in one process, then prediction sets.

Every record answers one query with one randomised bit. The procedure turns the bits into a
threshold with a certificate; the predictor turns the threshold into sets of labels.
"""

import numpy as np

import confide
from confide.protocol.simulated.embedded import predictions

RECORDS = 12_000


def main() -> None:
    probs, labels = predictions()
    order = np.random.default_rng(1).permutation(len(labels))
    held, unseen = order[:RECORDS], order[RECORDS:]

    made = confide.calibrate(probs[held], labels[held], method="bits", epsilon=2.0, alpha=0.1)
    sets = made.predictor.predict_set(probs[unseen])
    certificate = made.certificate
    print(f"promised coverage: {certificate.level:.3f} ({certificate.kind})")
    print(f"exact epsilon: {certificate.epsilon:.3f}")
    print(f"threshold: {made.threshold:.3f}")
    print(f"test coverage: {confide.metrics.coverage(sets, labels[unseen]):.3f}")
    print(f"mean set size: {confide.metrics.mean_size(sets):.2f}")
    print(made.predictor.explain(probs[unseen[:1]])[0])


if __name__ == "__main__":
    main()
