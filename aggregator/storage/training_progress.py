"""How far a training is: the noised error rates of the rounds that are counted."""

from confide.aggregator.storage.round_store import RoundStore
from confide.protocol.methods.training.mean_weights import HEAD
from confide.protocol.methods.training.noised_errors import ErrorRate
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan


def error_rates(store: RoundStore, campaign: str, plan: Plan) -> dict[int, ErrorRate]:
    """Return the error rates by round; none of a plan that is no training, or has no loss."""
    if not plan.terms.trains or not (terms := TrainingTerms.of(plan.terms)).loss_share:
        return {}
    found = {}
    for number, head in store.tally_heads(campaign, HEAD.size).items():
        owners, records, errors = HEAD.unpack(head)
        rate = ErrorRate.of(records, errors, owners=owners, noise=terms.loss_noise)
        if rate is not None:
            found[number] = rate
    return found
