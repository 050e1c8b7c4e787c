"""What a plan would learn about a record, in plain words."""

import math

from client.policy import Policy
from protocol import wire_pb2 as wire
from protocol.campaign import Plan

REASONS: dict[int, str] = {
    wire.Code.METHOD_NOT_ALLOWED: "its method is not among `methods`",
    wire.Code.EPSILON_PER_CAMPAIGN: "its epsilon is above `epsilon_per_campaign`",
    wire.Code.EPSILON_PER_RECORD: "its epsilon is above `epsilon_per_record`",
    wire.Code.FEATURES_MAY_NOT_LEAVE: "it needs the model's probabilities in clear, and `features_may_leave` is false",
    wire.Code.MODEL_NOT_ALLOWED: "its model is not among `models`",
}


def explain(plan: Plan, policy: Policy) -> str:
    """A page for the owner: who asks, what leaves, what it can tell, and whether the policy allows it."""
    channel = plan.make_channel()
    keep = float(channel.hit)
    factor = math.exp(channel.epsilon)
    leaves = {
        "bits": f"one bit: whether the record's score is below a threshold, told truly with probability {keep:.1%}.",
        "labels": (
            f"its label through the channel {plan.channel} (the true label is supported with probability {keep:.1%}), and the "
            "model's probabilities for it IN CLEAR."
        ),
    }
    refusals = policy.refusals(plan)
    verdict = "allowed" if not refusals else "refused: " + "; ".join(REASONS[code] for code in refusals)
    return "\n".join([
        f"Campaign {plan.campaign!r}: calibrates prediction sets at {1 - plan.alpha:.0%} coverage, method {plan.method} "
        f"({plan.variant}), {plan.labels} labels.",
        f"Valid {plan.issued:%Y-%m-%d} to {plan.expires:%Y-%m-%d} (UTC). Model {plan.model.hex()}.",
        "",
        "From each record, at most once, leaves " + leaves[plan.method],
        "",
        f"Privacy: epsilon {channel.epsilon:.4f} a record. Whoever sees the answer, and thought a fact about the record as",
        f"likely as not, can be at most {factor / (1 + factor):.0%} sure of it afterwards: odds move by a factor of at most",
        f"{factor:.2f}.",
        *([] if plan.method == "bits" else ["That bound is for the label only: what the probabilities tell is not protected."]),
        f"Your policy: {policy.epsilon_per_record:g} a record over its life, {policy.epsilon_per_campaign:g} a campaign.",
        "",
        f"Under your policy this plan is {verdict}.",
    ])  # fmt: skip
