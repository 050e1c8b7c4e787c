"""Calibrate on arrays: a certified campaign of bits in one process, then prediction sets.

Every record answers one query with one randomised bit. The procedure turns the bits into a
threshold with a certificate; the predictor turns the threshold into sets of labels.
"""

import numpy as np

from confide import BitUsers, Predictor, drive, find_label_score, make_plan, plan_procedure
from confide.aggregator.procedures.central import draw_afresh
from confide.protocol.embedded import predictions
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.simulated import ALWAYS

RECORDS = 12_000
SETTINGS = {
    "score": "hps",
    "labels": 26,
    "alpha": 0.1,
    "epsilon": 2.0,
    "failure-probability": 0.1,
    "max-corrupt": 0,
    "records": RECORDS,
    "minimum-reports": 100,
    "minimum-owners": 1,
    "model": "00" * 32,
}


def main() -> None:
    probs, labels = predictions()
    order = np.random.default_rng(1).permutation(len(labels))
    held, unseen = order[:RECORDS], order[RECORDS:]

    plan = make_plan("bits:certified", SETTINGS, title="example", valid=ALWAYS)
    score = find_label_score(plan.score)
    users = BitUsers(score.true_scores(probs[held], labels[held]), SeededEntropy("example", 1))
    certificate = drive(plan_procedure(plan, draw_afresh), users)

    predictor = Predictor(score, certificate.threshold)
    sets = predictor.sets(probs[unseen])
    covered = sets[np.arange(len(unseen)), labels[unseen]].mean()
    print(f"promised coverage: {certificate.level:.3f} ({certificate.kind})")
    print(f"exact epsilon: {certificate.epsilon:.3f}")
    print(f"threshold: {certificate.threshold:.3f}")
    print(f"test coverage: {covered:.3f}")
    print(f"mean set size: {sets.sum(axis=1).mean():.2f}")
    print(f"first set: {predictor.labels(probs[unseen[:1]])[0]}")


if __name__ == "__main__":
    main()
