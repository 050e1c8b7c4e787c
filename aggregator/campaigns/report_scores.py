"""The scores of every label for the records that reports of method labels came from."""

import numpy as np

from confide.protocol.errors import BadInput
from confide.protocol.methods.base import ReportScores
from confide.protocol.models.model_file import Model
from confide.protocol.models.scorer import score as run_model
from confide.protocol.plan import Plan
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.scores.registry import find_score
from confide.protocol.wire.columns import Array


def report_scores(plan: Plan, model: bytes | None = None) -> ReportScores:
    """Make the function that scores what reports come with in clear, as the plan says.

    Owners that score send probabilities. Those that send features have no model: the aggregator
    runs `model`, whose digest the plan names, in a process of its own. It is the aggregator's, so
    it gets many records at once; the records are others', so one on which it fails gets the scores
    of a model that knows nothing.
    """
    score = find_score(plan.score)
    if not plan.terms.sent_features:
        return lambda probs, u: LabelScore.of(score).all_scores(probs, u=u)
    secret = None if model is None else Model(model, plan.model)

    def scored(features: Array, u: Array) -> Array:
        if secret is None:
            raise BadInput(
                f"the aggregator scores the records of this campaign, and model "
                f"{plan.model.hex()} is not here; accepted is its file"
            )
        probs = run_model(secret, features, labels=plan.labels, vetted=True, flat=True)
        return LabelScore.of(score).all_scores(probs, u=u)

    return scored


def check_scoring(plan: Plan, model: bytes | None) -> None:
    """Refuse a plan whose records the aggregator scores, unless this model can do so."""
    if plan.terms.sent_features:
        nothing = np.zeros((1, plan.terms.sent_features), dtype=np.float32)
        report_scores(plan, model)(nothing, np.zeros(1))
