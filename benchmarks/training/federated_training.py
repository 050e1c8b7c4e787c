"""The accuracy of federated training on letters, or on a file of records, under its privacy budget.

Run `python benchmarks/training/federated_training.py [--data FILE] [--records N] [--owners 10]
[--epsilon 1 2 4] [--seeds 5] [--json FILE]`. FILE is an npz archive of features (n, d) in [0, 1]
and labels (n,) from 0; without it the records are the embedded letters. N of the records are dealt
to the owners, and accuracy is measured on the others. Settings are those of pyproject.toml but for

    architecture    linear: from the features to the labels
    centre          --centre, if it is given
    clip            --clip
    learning rate   by the rule of the project, or --learning-rate

The columns: owners who each add exact noise (what the project does), the same without noise, one
owner of all records with exact noise (the central model, with batch and rate of its own), and the
share of the most frequent label among the other records.
"""

import argparse
import json
import statistics
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from confide.aggregator.campaigns.driver import run_procedure
from confide.aggregator.procedures.averaging import federated_averaging
from confide.client.training.layers import bounded
from confide.client.training.local_round import Trainer, moved
from confide.client.training.randomness import poisson_batch
from confide.protocol.architectures.base import Weights
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.errors import BadInput
from confide.protocol.exact.sampling import Entropy, SeededEntropy
from confide.protocol.methods.training.mean_weights import TrainingTally
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.simulated.dealing import deal
from confide.protocol.simulated.embedded import owned
from confide.simulation.data.population import read_arrays

Array = NDArray[Any]
Row = dict[str, Any]


def chosen_terms(
    data: tuple[Array, Array], arguments: argparse.Namespace, *, epsilon: float, owners: int
) -> TrainingTerms:
    """The terms for so many owners."""
    file = Path(__file__).parents[2] / "pyproject.toml"
    config = tomllib.loads(file.read_text())["tool"]["flwr"]["app"]["config"]
    features, labels = data
    given = config | {
        "epsilon": epsilon,
        "architecture": "linear",
        "features": features.shape[1],
        "labels": int(labels.max()) + 1,
        "batch": "auto",
        "learning-rate": arguments.learning_rate,
        "clip": arguments.clip,
        "expected": arguments.records,
        "owners": owners,
        "centre": config["centre"] if arguments.centre is None else arguments.centre,
    }
    return TrainingTerms.from_settings("federated-averaging", given)


def learn(
    terms: TrainingTerms, weights: Weights, features: Array, labels: Array, *, entropy: Entropy
) -> Weights:
    """What an owner does in a round."""
    return Trainer(terms).learn(weights, features, labels, entropy=entropy)


def with_noise(noise: Callable[[TrainingTerms, Entropy], Any]) -> Callable[..., Weights]:
    """What `learn` does, with other noise."""

    def learns(
        terms: TrainingTerms, weights: Weights, features: Array, labels: Array, *, entropy: Entropy
    ) -> Weights:
        current = bounded(weights)
        sums = Trainer(terms).sums
        for _ in range(terms.local_steps):
            rows = poisson_batch(len(features), terms.sampling_rate, entropy)
            found = sums(current, (features[rows], labels[rows]), entropy)
            current = moved(terms, current, found + noise(terms, entropy))
        return current.astype(np.float32)

    return learns


noiseless = with_noise(lambda *_: 0)


def accuracy(
    terms: TrainingTerms,
    data: tuple[Array, Array],
    *,
    records: int,
    owners: int,
    seed: int,
    learns: Any = learn,
) -> float:
    """How often the model that owners trained is right on the records that nobody was dealt."""
    features, labels = data
    shares, rest, _ = deal(labels, owners=owners, records=records, seed=seed)
    entropies = [SeededEntropy("federated training", seed, owner) for owner in range(owners)]

    def answers(query: TrainingQuery, _: int) -> TrainingTally:
        return TrainingTally.of(
            [
                learns(terms, query.weights, features[share], labels[share], entropy=entropy)
                for share, entropy in zip(shares, entropies, strict=True)
            ]
        )

    learned = run_procedure(federated_averaging(terms), answers)
    file = to_onnx(terms.network(), learned.weights, centre=terms.centre)
    found = predict_file(file, features[rest]).argmax(axis=1)
    return float(np.mean(found == labels[rest]))


def row(data: tuple[Array, Array], epsilon: float, arguments: argparse.Namespace) -> Row:
    owners = arguments.owners
    terms = chosen_terms(data, arguments, epsilon=epsilon, owners=owners)
    alone = chosen_terms(data, arguments, epsilon=epsilon, owners=1)
    found: dict[str, list[float]] = {"owners": [], "no noise": [], "one owner": []}
    for seed in range(arguments.seeds):
        given: Row = {"records": arguments.records, "seed": seed}
        found["owners"].append(accuracy(terms, data, owners=owners, **given))
        found["no noise"].append(accuracy(terms, data, owners=owners, learns=noiseless, **given))
        found["one owner"].append(accuracy(alone, data, owners=1, **given))
    return {
        "epsilon": epsilon,
        "noise multiplier": terms.noise_multiplier,
        "learning rate": terms.learning_rate,
        **{name: statistics.mean(values) for name, values in found.items()},
        "deviation (owners)": statistics.pstdev(found["owners"]),
        "most frequent label": float(np.bincount(data[1]).max() / len(data[1])),
    }


def read(path: Path | None) -> tuple[Array, Array]:
    """Records of a file, or the embedded ones."""
    if path is None:
        return owned()
    features, labels = read_arrays(path, features="(n, d) in [0, 1]", labels="(n,)")
    if features.ndim != 2 or labels.shape != features.shape[:1] or labels.dtype.kind not in "iu":
        raise BadInput(
            f"{path}: features have shape {features.shape}, labels {labels.shape} of "
            f"{labels.dtype}; accepted are (n, d) and whole numbers (n,)"
        )
    return features, labels.astype(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="npz file of features and labels")
    parser.add_argument("--records", type=int, default=10_000, help="dealt to the owners")
    parser.add_argument("--owners", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    parser.add_argument("--centre", type=float, help="in place of the run configuration's")
    parser.add_argument("--learning-rate", default="auto", help="in place of the rule's")
    parser.add_argument("--clip", type=float, default=1.0, help="longest gradient (default 1)")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each kind (default 5)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if min(arguments.records, arguments.owners, arguments.seeds) < 1:
        parser.error("every number must be at least 1")
    try:
        data = read(arguments.data)
        rows = [row(data, epsilon, arguments) for epsilon in arguments.epsilon]
    except BadInput as error:
        parser.error(str(error))
    table = Table(title=str(arguments.data or "letters"), title_justify="left")
    for heading in rows[0]:
        table.add_column(heading, justify="right")
    for found in rows:
        table.add_row(*(f"{value:.4g}" for value in found.values()))
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
