import tomllib
from typing import Any

import numpy as np

from confide.aggregator.campaigns.driver import run_procedure
from confide.aggregator.procedures.averaging import federated_averaging
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.mean_weights import TrainingTally
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.simulated.dealing import deal
from confide.protocol.simulated.embedded import owned
from confide.protocol.simulated.records import EMBEDDED_RECORDS
from tests.support.networks.stacks import learn, predict
from tests.support.repository.places import ROOT

OWNERS, SEEDS = 10, 5


def run_configuration() -> dict[str, Any]:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return dict(found)


def accuracy(terms: TrainingTerms, *, records: int, seed: int) -> float:
    """How often a model that ten owners trained is right on the letters that nobody was dealt."""
    features, labels = owned()
    shares, rest, _ = deal(labels, owners=OWNERS, records=records, seed=seed)
    entropies = [SeededEntropy("accuracy", seed, owner) for owner in range(OWNERS)]

    def answers(query: TrainingQuery, _: int) -> TrainingTally:
        return TrainingTally.of(
            [
                learn(terms, query.weights, features[share], labels[share], entropy=entropy)
                for share, entropy in zip(shares, entropies, strict=True)
            ]
        )

    learned = run_procedure(federated_averaging(terms), answers)
    found = predict(terms, learned.weights, features[rest]).argmax(axis=1)
    return float(np.mean(found == labels[rest]))


def test_ten_owners_learn_letters_with_the_run_configuration() -> None:
    """At epsilon 4 and delta 1e-6 the average accuracy of five trainings with exact noise is at
    least 0.60."""
    expected = {"expected": EMBEDDED_RECORDS, "owners": OWNERS}
    given = run_configuration() | {"epsilon": 4.0} | expected
    terms = TrainingTerms.from_settings("federated-averaging", given)
    assert terms.privacy_delta <= 1e-6
    assert terms.spent(terms.privacy_delta) <= 4.0
    found = [accuracy(terms, records=EMBEDDED_RECORDS, seed=seed) for seed in range(SEEDS)]
    assert np.mean(found) >= 0.60
