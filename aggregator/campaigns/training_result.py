"""The result of a training: its weights as a file, and what they cost and rest on."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from confide.protocol.errors import BadInput
from confide.protocol.methods.training import NOISE, TrainingTerms, Weights
from confide.protocol.plan import Plan


def training_terms(plan: Plan) -> TrainingTerms:
    """The terms of a plan of training."""
    if not isinstance(plan.terms, TrainingTerms):
        raise BadInput(f"the plan is of method {plan.method}; accepted is training")
    return plan.terms


def about_training(
    plan: Plan, owners: Sequence[int], received: Mapping[str, int]
) -> dict[str, Any]:
    """What a training cost its records, how many owners answered each round, and its terms."""
    terms = training_terms(plan)
    return {
        "campaign": plan.campaign,
        "epsilon": terms.spent(plan.privacy_delta),
        "delta": plan.privacy_delta,
        "adjacency": "replace-one",
        "unit": "record",
        "noise": NOISE,
        "terms": asdict(terms),
        "owners": list(owners),
        "received": dict(received),
    }


def about_text(about: Mapping[str, Any]) -> str:
    """The same as the text of a JSON file."""
    return json.dumps(about, indent=2) + "\n"


def weights_file(plan: Plan, weights: Weights) -> bytes:
    """The weights as the content of an .npz file, with the widths of the layers."""
    terms, file = training_terms(plan), io.BytesIO()
    np.savez(file, weights=weights, layers=terms.layers)
    return file.getvalue()
