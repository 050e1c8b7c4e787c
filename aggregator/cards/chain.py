"""What training and calibration cost together, on the card of a model that a campaign trained."""

from confide.protocol.cards.card import Layer
from confide.protocol.errors import BadInput
from confide.protocol.methods.training import TrainingTerms
from confide.protocol.plan import Plan, digest

DISJOINT = "each record either trained the model or calibrated it"
SAME = "the same records trained the model and calibrated it, and pay for both"


def chain_layer(plan: Plan, training: Plan | None) -> dict[str, Layer]:
    """Return the layer `chain` of a calibration's card; nothing for a model from elsewhere.

    A record is in the training or in the calibration: the calibrated scores are then those of
    records that the model has not seen, and no record pays twice. A method for the records of the
    training has exactly these, and they pay for both (basic composition; both are replace-one).
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
    both = (
        (spent + plan.epsilon, delta + plan.privacy_delta)
        if same
        else (max(spent, plan.epsilon), max(delta, plan.privacy_delta))
    )
    return {
        "chain": {
            "training": training.to_bytes().hex(),
            "epsilon_train": spent,
            "delta_train": delta,
            "epsilon_calibration": plan.epsilon,
            "delta_calibration": plan.privacy_delta,
            "records": SAME if same else DISJOINT,
            "epsilon": both[0],
            "delta": both[1],
            "adjacency": "replace-one",
        }
    }


def overlap(plan: Plan, training: Plan) -> bool:
    """Return whether a record may be in the shares of both plans."""
    first, last = plan.share or (0.0, 1.0)
    start, stop = training.share or (0.0, 1.0)
    return max(first, start) < min(last, stop)
