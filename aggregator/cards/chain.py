"""What training and calibration cost together, on the card of a model that a campaign trained."""

from confide.protocol.cards.card import Layer
from confide.protocol.errors import BadInput
from confide.protocol.methods.training import TrainingTerms
from confide.protocol.plan import Plan, digest

DISJOINT = "each record either trained the model or calibrated it"


def chain_layer(plan: Plan, training: Plan | None) -> dict[str, Layer]:
    """Return the layer `chain` of a calibration's card; nothing for a model from elsewhere.

    A record is in the training or in the calibration, and never in both: the calibrated scores are
    then those of records that the model has not seen, and no record pays twice.
    """
    if not plan.training:
        return {}
    if training is None or digest(training.to_bytes()) != plan.training:
        raise BadInput(
            f"the plan's model comes from the training {plan.training.hex()}; accepted is that plan"
        )
    if overlap(plan, training):
        raise BadInput(
            f"the training has share {training.share or (0.0, 1.0)} of the records and the "
            f"calibration {plan.share or (0.0, 1.0)}; accepted are shares without a common record"
        )
    terms = TrainingTerms.of(training.terms)
    spent = terms.spent(terms.privacy_delta)
    return {
        "chain": {
            "training": training.to_bytes().hex(),
            "epsilon_train": spent,
            "delta_train": terms.privacy_delta,
            "epsilon_calibration": plan.epsilon,
            "delta_calibration": plan.privacy_delta,
            "records": DISJOINT,
            "epsilon": max(spent, plan.epsilon),
            "delta": max(terms.privacy_delta, plan.privacy_delta),
            "adjacency": "replace-one",
        }
    }


def overlap(plan: Plan, training: Plan) -> bool:
    """Return whether a record may be in the shares of both plans."""
    first, last = plan.share or (0.0, 1.0)
    start, stop = training.share or (0.0, 1.0)
    return max(first, start) < min(last, stop)
