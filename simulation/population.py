"""Records to calibrate and test on: an npz file of the user's, or the embedded data set behind a small model."""

import json
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import BadInput
from protocol.scores import check_labels, check_probabilities

Array = NDArray[Any]
Floats = NDArray[np.float64]

PROVIDER_RECORDS = 4_000


@dataclass(frozen=True)
class Population:
    """Class probabilities of every record and its label."""

    name: str
    probs: Array
    labels: Array

    def __post_init__(self) -> None:
        check_probabilities(self.probs)
        check_labels(self.labels, n=len(self.probs), k=self.probs.shape[1])

    def __len__(self) -> int:
        return len(self.labels)


def from_npz(path: Path) -> Population:
    """Read arrays `probs` (n, K) and `labels` (n,)."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in ("probs", "labels") if name not in archive]
            if missing:
                raise BadInput(f"{path} holds {sorted(archive)}; missing: {', '.join(missing)} (accepted: probs and labels)")
            return Population(str(path), archive["probs"], archive["labels"])
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; accepted is an npz file with arrays probs (n, K) and labels (n,)") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} cannot be read as an npz file with arrays probs (n, K) and labels (n,): {error}") from None


def embedded() -> Population:
    """Letter Recognition (20,000 records, 26 labels): a model of the first 4,000 predicts the other 16,000.

    The model is linear discriminant analysis, fitted on the spot in closed form: the provider's own records are spent on
    it and on nothing else.
    """
    features, labels = letters()
    own, others = slice(None, PROVIDER_RECORDS), slice(PROVIDER_RECORDS, None)
    probs = discriminant(features[own], labels[own], features[others])
    return Population("letter (embedded)", probs, labels[others])


def letters() -> tuple[Floats, Array]:
    """Features in [0, 1] and labels of the embedded data set."""
    lines = files("simulation").joinpath("data/letter.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    features = np.array([[int(digit, 16) for digit in record[1:]] for record in records]) / 15
    return features, np.array([ord(record[0]) - ord("A") for record in records])


def discriminant(features: Floats, labels: Array, unseen: Floats) -> Floats:
    """Class probabilities under Gaussian classes that share one covariance."""
    means = np.array([features[labels == label].mean(axis=0) for label in range(labels.max() + 1)])
    within = features - means[labels]
    slopes = np.linalg.solve(within.T @ within / len(features), means.T)
    logits = unseen @ slopes - 0.5 * np.sum(means.T * slopes, axis=0) + np.log(np.bincount(labels) / len(labels))
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
