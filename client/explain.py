"""Explain, in plain words, what a plan would learn about a record."""

from confide.client.policy import Policy
from confide.protocol.plan import Plan
from confide.protocol.privacy.odds import guessing
from confide.protocol.scores.registry import find_score
from confide.protocol.wire import wire_pb2 as wire

REASONS: dict[int, str] = {
    wire.Code.METHOD_NOT_ALLOWED: "its method is not among `methods`",
    wire.Code.EPSILON_PER_CAMPAIGN: "its epsilon is above `epsilon_per_campaign`",
    wire.Code.EPSILON_PER_RECORD: "its epsilon is above `epsilon_per_record`",
    wire.Code.DELTA_PER_CAMPAIGN: "its delta is above `delta_per_campaign` or `delta_per_record`",
    wire.Code.EXACT_COUNTS_MAY_NOT_LEAVE: (
        "it needs exact counts, and `exact_counts_may_leave` is false"
    ),
    wire.Code.PROBABILITIES_MAY_NOT_LEAVE: (
        "it needs the model's probabilities in clear, and `probabilities_may_leave` is false"
    ),
    wire.Code.FEATURES_MAY_NOT_LEAVE: (
        "it needs the records' features in clear, and `features_may_leave` is false"
    ),
    wire.Code.COLUMN_MAY_NOT_LEAVE: (
        "it needs a column of the records in clear that is not among `columns_may_leave`"
    ),
    wire.Code.MODEL_NOT_ALLOWED: "its model is not among `models`",
    wire.Code.CODE_NOT_ALLOWED: (
        "its network is not among `architectures` with these arguments, has other files here, or "
        "treats records together"
    ),
    wire.Code.SHUFFLER_NOT_ALLOWED: "its shuffler is not among `shufflers`, or is its own signer",
    wire.Code.SHUFFLER_ONLY: (
        "its reports go through its shuffler only, and this is not that shuffler, by the authority "
        "(`--ca`) of the connection"
    ),
}


def explain(plan: Plan, policy: Policy) -> str:
    """Write a page for the owner about a plan.

    It says who asks, what leaves, what that can reveal, and whether the policy allows it.
    """
    found = plan.terms.explain(labels=plan.labels, alpha=plan.alpha)
    refusals = policy.refusals(plan)
    verdict = (
        "allowed" if not refusals else "refused: " + "; ".join(REASONS[code] for code in refusals)
    )
    return "\n".join(
        [
            f"Campaign {plan.campaign!r}: {found.purpose}, method {plan.method} "
            f"({plan.variant}), {find_score(plan.score).meaning(plan.labels)}",
            f"Valid {plan.issued:%Y-%m-%d} to {plan.expires:%Y-%m-%d} (UTC)."
            + (f" Model {plan.model.hex()}." if any(plan.model) else ""),
            "",
            found.leaves,
            *_share(plan),
            "",
            f"Privacy: epsilon {found.epsilon:.4f} a record, whatever it says and whatever it "
            "could have said instead (replace-one).",
            guessing(found.epsilon),
            *found.caveats,
            *(
                [f"With probability up to {plan.privacy_delta:g} that bound does not hold."]
                if plan.privacy_delta
                else []
            ),
            *_shuffling(plan, local=found.epsilon),
            *_chain(plan),
            *_scoring(plan, policy),
            *_code(plan, policy),
            f"Your policy: {policy.epsilon_per_record:g} a record over its life, "
            f"{policy.epsilon_per_campaign:g} a campaign.",
            "",
            f"Under your policy this plan is {verdict}.",
        ]
    )


def _shuffling(plan: Plan, *, local: float) -> tuple[str, ...]:
    """Explain what a shuffler adds, if it does what it should, and what is charged all the same."""
    if plan.shuffling is None:
        return ()
    # It loads scipy, which plans without a shuffler do not need.
    from confide.protocol.privacy.amplification import SHUFFLE_DELTA, shuffled_epsilon

    crowd = plan.shuffling.crowd
    honest = crowd - plan.max_corrupt
    least = shuffled_epsilon(local_epsilon=local, n=honest, delta=SHUFFLE_DELTA)
    return (
        f"Each report is sealed to the aggregator and goes through the shuffler "
        f"{plan.shuffling.key.hex()},",
        f"which hands over {crowd} or more of a round at once, mixed. If it tells the aggregator "
        f"nothing else, and {honest} of them are",
        f"honest, the aggregator learns at most epsilon {least:.4f} of a record, with delta "
        f"{SHUFFLE_DELTA:g}. Whether the shuffler keeps to it you",
        f"cannot see, so your ledger charges epsilon {local:.4f}.",
    )


def _share(plan: Plan) -> tuple[str, ...]:
    """Explain which records take part, if not all of them do."""
    if not plan.share:
        return ()
    start, stop = plan.share
    return (f"About {stop - start:.0%} of your records take part; your secret decides which.",)


def _chain(plan: Plan) -> tuple[str, ...]:
    """Explain what else the chain of a calibration asks."""
    if len(plan.chain) < 2:
        return ()
    same = sum(one.epsilon for one in plan.chain if one.on_training_records)
    rest = sum(one.epsilon for one in plan.chain if not one.on_training_records)
    return (
        f"It is one of {len(plan.chain)} calibrations of a chain, which cost a record that trained "
        f"the model epsilon {same:.4f}",
        f"beside the training, and any other record {rest:.4f}.",
    )


def _code(plan: Plan, policy: Policy) -> tuple[str, ...]:
    """Explain how a network of another package runs on records."""
    if plan.terms.code is None or plan.terms.code not in policy.architectures:
        return ()
    if policy.vets(plan):
        return (
            "You list this network as vetted: it sees many records at once. That it treats each by "
            "itself, whatever its",
            "weights, is your own judgement, which no epsilon replaces.",
        )
    return ("The network is code of another package; it sees one record at a time.",)


def _scoring(plan: Plan, policy: Policy) -> tuple[str, ...]:
    """Explain how the model runs on records."""
    if not plan.terms.uses_model:
        return ()
    if plan.model in policy.vetted_models:
        return (
            "You list this model among `vetted_models`: it sees many records at once. That it "
            "treats each by itself is",
            "your own judgement, which no epsilon replaces.",
        )
    alone = (
        "The model sees one record at a time, so its answer for a record depends on that record "
        "only.",
    )
    if plan.model in policy.models or not plan.training:
        return alone
    return (
        *alone,
        "You do not list this model. By `trained_models` it is used if the file is the network of "
        "a training that",
        "you answered; whether its weights are those that came of it, only the aggregator knows.",
    )
