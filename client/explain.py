"""What a plan would learn about a record, in plain words."""

import math

from client.policy import Policy
from protocol import wire_pb2 as wire
from protocol.campaign import EXACT_COUNTS, Plan
from protocol.training import Terms

REASONS: dict[int, str] = {
    wire.Code.METHOD_NOT_ALLOWED: "its method is not among `methods`",
    wire.Code.EPSILON_PER_CAMPAIGN: "its epsilon is above `epsilon_per_campaign`",
    wire.Code.EPSILON_PER_RECORD: "its epsilon is above `epsilon_per_record`",
    wire.Code.DELTA_PER_CAMPAIGN: "its delta is above `delta_per_campaign` or `delta_per_record`",
    wire.Code.EXACT_COUNTS_MAY_NOT_LEAVE: "it needs exact counts, and `exact_counts_may_leave` is false",
    wire.Code.FEATURES_MAY_NOT_LEAVE: "it needs the model's probabilities in clear, and `features_may_leave` is false",
    wire.Code.MODEL_NOT_ALLOWED: "its model is not among `models`",
}


def explain(plan: Plan, policy: Policy) -> str:
    """A page for the owner: who asks, what leaves, what it can tell, and whether the policy allows it."""
    epsilon, leaves = _training(plan, plan.training) if plan.training else _central(plan) if plan.central else _local(plan)
    factor = math.exp(epsilon)
    purpose = "trains a model" if plan.training else f"calibrates prediction sets at {1 - plan.alpha:.0%} coverage"
    refusals = policy.refusals(plan)
    verdict = "allowed" if not refusals else "refused: " + "; ".join(REASONS[code] for code in refusals)
    return "\n".join([
        f"Campaign {plan.campaign!r}: {purpose}, method {plan.method} "
        f"({plan.variant}), {plan.labels} labels.",
        f"Valid {plan.issued:%Y-%m-%d} to {plan.expires:%Y-%m-%d} (UTC). Model {plan.model.hex()}.",
        "",
        leaves,
        "",
        f"Privacy: epsilon {epsilon:.4f} a record. Whoever sees the answer, and thought a fact about the record as",
        f"likely as not, can be at most {factor / (1 + factor):.0%} sure of it afterwards: odds move by a factor of at most",
        f"{factor:.2f}.",
        *CAVEATS.get(plan.channel, CAVEATS.get(plan.method, ())),
        *([f"With probability up to {plan.privacy_delta:g} that bound does not hold."] if plan.privacy_delta else []),
        f"Your policy: {policy.epsilon_per_record:g} a record over its life, {policy.epsilon_per_campaign:g} a campaign.",
        "",
        f"Under your policy this plan is {verdict}.",
    ])  # fmt: skip


CAVEATS = {
    "labels": ("That bound is for the label only: what the probabilities tell is not protected.",),
    "training": ("The noise in training is floating point.",),
    EXACT_COUNTS: ("That bound is for what the aggregator publishes. The aggregator itself sees your exact counts.",),
}


def _local(plan: Plan) -> tuple[float, str]:
    channel = plan.make_channel()
    keep = float(channel.hit)
    leaves = {
        "bits": f"one bit: whether the record's score is below a threshold, told truly with probability {keep:.1%}.",
        "labels": (
            f"its label through the channel {plan.channel} (the true label is supported with probability {keep:.1%}), and the "
            "model's probabilities for it IN CLEAR."
        ),
    }
    return channel.epsilon, "From each record, at most once, leaves " + leaves[plan.method]


def _training(plan: Plan, terms: Terms) -> tuple[float, str]:
    return plan.epsilon, (
        f"Up to {terms.rounds} times leave the weights of a model after {terms.local_steps} steps of DP-SGD on your records: "
        f"each step sees about {terms.sampling_rate:.1%} of them, and adds noise of {terms.noise_multiplier:.2f} times the "
        "most that one record can change."
    )


def _central(plan: Plan) -> tuple[float, str]:
    if plan.channel == EXACT_COUNTS:
        return plan.epsilon, (
            f"Once leave the EXACT counts of your records' scores in {plan.bins:,} bins. The aggregator promises to publish "
            f"one threshold, drawn by {plan.mechanism}."
        )
    return plan.epsilon, (
        f"Up to {plan.rounds} times leaves the number of your records whose score is below a threshold, each time with fresh "
        f"noise of standard deviation {math.sqrt(plan.noise_variance):.1f} added here; and, once, how many records you have."
    )
