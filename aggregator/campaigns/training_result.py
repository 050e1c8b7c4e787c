"""The result of a training: its weights as a file, and what they cost and rest on."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from confide.protocol.architectures.base import Weights
from confide.protocol.methods.training import NOISE, TrainingTerms
from confide.protocol.plan import Plan


def about_training(
    plan: Plan, owners: Sequence[int], received: Mapping[str, int]
) -> dict[str, Any]:
    """What a training cost its records, how many owners answered each round, and its terms."""
    terms = TrainingTerms.of(plan.terms)
    return {
        "campaign": plan.campaign,
        "epsilon": terms.spent(plan.privacy_delta),
        "delta": plan.privacy_delta,
        "adjacency": "replace-one",
        "unit": "record",
        "noise": NOISE,
        "terms": terms.to_values(),
        "owners": list(owners),
        "received": dict(received),
    }


def about_text(about: Mapping[str, Any]) -> str:
    """The same as the text of a JSON file."""
    return json.dumps(about, indent=2) + "\n"


def weights_file(weights: Weights) -> bytes:
    """The weights as the content of an .npz file."""
    file = io.BytesIO()
    np.savez(file, weights=weights)
    return file.getvalue()
