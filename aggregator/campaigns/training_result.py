"""The result of a training: its weights and its model as files, and what they cost."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from confide.aggregator.procedures.averaging import Learned
from confide.protocol.architectures.base import Weights
from confide.protocol.architectures.export import to_onnx
from confide.protocol.errors import BadInput
from confide.protocol.methods.training.terms import NOISE, TrainingTerms
from confide.protocol.plan import Plan


def about_training(plan: Plan, learned: Learned, received: Mapping[str, int]) -> dict[str, Any]:
    """What a training cost its records, how many owners answered each round, and its terms.

    With a loss, also its part of the cost, and the noised error rates of the weights that every
    round began with.
    """
    terms = TrainingTerms.of(plan.terms)
    loss = {
        "epsilon_loss": terms.spent_on_loss(plan.privacy_delta),
        "error_rates": [None if one is None else asdict(one) for one in learned.errors],
    }
    return {
        "campaign": plan.campaign,
        "epsilon": terms.spent(plan.privacy_delta),
        "delta": plan.privacy_delta,
        "adjacency": "replace-one",
        "unit": "record",
        "noise": NOISE,
        "terms": terms.to_values(),
        "owners": list(learned.owners),
        "received": dict(received),
        **(loss if terms.loss_share else {}),
    }


def about_text(about: Mapping[str, Any]) -> str:
    """The same as the text of a JSON file."""
    return json.dumps(about, indent=2) + "\n"


def weights_file(weights: Weights) -> bytes:
    """The weights as the content of an .npz file."""
    file = io.BytesIO()
    np.savez(file, weights=weights)
    return file.getvalue()


def model_file(plan: Plan, weights: Weights, *, backbone: bytes | None = None) -> bytes:
    """The ONNX file of the trained network; that of a head contains `backbone`, the plan's model.

    Tried with a network's first weights, it refuses before a training what it would refuse after.
    """
    terms = TrainingTerms.of(plan.terms)
    if terms.uses_model and backbone is not None:
        found = hashlib.sha256(backbone).hexdigest()
        if found != plan.model.hex():
            raise BadInput(
                f"the backbone has digest {found}; accepted is {plan.model.hex()}, the model that "
                "the plan names"
            )
    return to_onnx(
        terms.network(), weights, centre=terms.centre, backbone=backbone, span=terms.span
    )


def read_backbone(path: str) -> bytes | None:
    """The bytes of a backbone's file; None if the path is empty."""
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadInput(
            f"backbone is {path!r}, which cannot be read: {error.strerror}; accepted is the ONNX "
            "file of the model that a head is trained on"
        ) from None
