"""Verify a card and read its threshold: `python verify_card.py card.json [PUBLIC KEY]`.

Every clause is recomputed from the card alone. The key (hexadecimal) says who must have signed it;
without one any signature that holds is accepted.
"""

import sys
from pathlib import Path

from confide import Predictor, find_label_score, read_card, verify


def main(path: str, key: str | None = None) -> int:
    card = read_card(Path(path))
    failed = [
        finding
        for finding in verify(card, key=None if key is None else bytes.fromhex(key))
        if not finding.holds
    ]
    for finding in failed:
        print(f"FAILED {finding.clause}: {finding.detail}")
    if failed:
        return 1
    released = card.formal["released"]
    predictor = Predictor(find_label_score(released["score"]), released["threshold"])
    print(f"decision: {card.formal['decision']}")
    print(f"signed by: {card.key.hex()}")
    print(f"score: {released['score']}")
    print(f"threshold: {released['threshold']:.3f}")
    print(f"set of the probabilities 0.9, 0.1: {predictor.labels([[0.9, 0.1]])[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
