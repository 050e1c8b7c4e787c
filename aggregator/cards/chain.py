"""What a training and its calibrations cost together, on the card of a trained model."""

from collections.abc import Iterable

from confide.protocol.cards.card import Layer
from confide.protocol.chain_cost import ChainCost
from confide.protocol.errors import BadInput
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest

DISJOINT = "each record either trained the model or calibrated it"
SAME = "the same records trained the model and calibrated it, and pay for both"


def chain_layer(plan: Plan, training: Plan | None) -> dict[str, Layer]:
    """Return the layer `chain` of a calibration's card; nothing for a model from elsewhere.

    A record is in the training or in the calibration: the calibrated scores are then those of
    records that the model has not seen. A method for the records of the training has exactly these,
    and they pay for both. `epsilon` and `delta` are the most that a record pays in the whole chain:
    those that trained for the training and for every calibration on them, the others for every
    other calibration (basic composition; all are replace-one).
    """
    if not plan.training:
        return {}
    if training is None or digest(training.to_bytes()) != plan.training:
        raise BadInput(
            f"the plan's model comes from the training {plan.training.hex()}; accepted is that plan"
        )
    same = plan.terms.on_training_records
    if same and plan.share != training.share:
        raise BadInput(
            f"the training has share {training.share or (0.0, 1.0)} of the records and the "
            f"calibration {plan.share or (0.0, 1.0)}; accepted is the training's share for a "
            f"calibration by {plan.method}"
        )
    if not same and overlap(plan, training):
        raise BadInput(
            f"the training has share {training.share or (0.0, 1.0)} of the records and the "
            f"calibration {plan.share or (0.0, 1.0)}; accepted are shares without a common record"
        )
    terms = TrainingTerms.of(training.terms)
    spent, delta = terms.spent(terms.privacy_delta), terms.privacy_delta
    calibrations = plan.chain or (plan.cost,)
    trained = _added((one for one in calibrations if one.on_training_records), spent, delta)
    rest = _added(one for one in calibrations if not one.on_training_records)
    return {
        "chain": {
            "training": training.to_bytes().hex(),
            "epsilon_train": spent,
            "delta_train": delta,
            "epsilon_loss": terms.spent_on_loss(delta),
            "epsilon_calibration": plan.epsilon,
            "delta_calibration": plan.privacy_delta,
            "records": SAME if same else DISJOINT,
            "calibrations": [one._asdict() for one in calibrations],
            "epsilon": max(trained[0], rest[0]),
            "delta": max(trained[1], rest[1]),
            "adjacency": "replace-one",
        }
    }


def _added(
    costs: Iterable[ChainCost], epsilon: float = 0.0, delta: float = 0.0
) -> tuple[float, float]:
    for one in costs:
        epsilon, delta = epsilon + one.epsilon, delta + one.delta
    return epsilon, delta


def overlap(plan: Plan, training: Plan) -> bool:
    """Return whether a record may be in the shares of both plans."""
    first, last = plan.share or (0.0, 1.0)
    start, stop = training.share or (0.0, 1.0)
    return max(first, start) < min(last, stop)
