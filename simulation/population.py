"""Records to calibrate and test on, labels known: an npz file of the user's, or the embedded data set."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.embedded import predictions
from protocol.errors import BadInput
from protocol.scores import check_labels, check_probabilities

Array = NDArray[Any]


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
    """The provider's predictions for all records of the embedded data set that it did not learn from."""
    return Population("letter (embedded)", *predictions())
