"""Holding a campaign's card to the plan that its owners saw: whatever the plan says, the card says
too."""

from collections.abc import Iterator

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.plan import EXACT_COUNTS, Plan, digest


def planned(card: Card) -> Iterator[Finding]:
    """Every field of a campaign's card that its plan fixes; `provenance` names the plan by its
    digest."""
    formal = card.formal
    text = formal.get("plan")
    yield Finding(
        "plan",
        (text is None) == (formal["released"] is None or formal["track"] == "full-data"),
        "campaigns have one",
    )
    yield same(
        "provenance/plan",
        card.provenance["plan"],
        None if text is None else digest(bytes.fromhex(text)).hex(),
    )
    if text is None:
        return
    plan = Plan.from_bytes(bytes.fromhex(text))
    yield same("plan/track", formal["track"], "central" if plan.central else "local")
    stated = {"released": {"model": plan.model.hex(), "score": plan.score}} | (
        _central if plan.central else _local
    )(plan)
    for part, fields in stated.items():
        found = formal["searched"][0] if part == "searched/0" else formal[part]
        for name, value in fields.items():
            yield same(f"{part}/{name}", found[name], value)


def _local(plan: Plan) -> dict[str, Layer]:
    return {
        "contract": {
            "name": plan.campaign,
            "coverage": float(1 - number(plan.alpha)),
            "delta": plan.delta,
            "epsilon": plan.epsilon,
            "minimum_reports": plan.minimum_reports,
            "max_corrupt": plan.max_corrupt,
        },
        "certificate": {
            "method": plan.method,
            "variant": plan.variant,
            "score": plan.score,
            "channel": plan.channel,
            "labels": plan.labels,
            "alpha": plan.alpha,
            "delta": plan.delta,
            "epsilon": plan.make_channel().epsilon,
            "planned": plan.expected_records if plan.method == "bits" else None,
        },
    }


def _central(plan: Plan) -> dict[str, Layer]:
    """Calibration is the whole of it: a campaign of counts trains nothing."""
    coverage = 1 - number(plan.alpha)
    nothing = {"epsilon_train": 0.0}
    return {
        "contract": nothing
        | {
            "name": plan.campaign,
            "coverage": float(coverage),
            "beta": plan.beta,
            "epsilon_calibration": plan.epsilon,
            "delta": plan.privacy_delta,
            "max_inflation": None,
            "adjacency": "replace-one",
            "unit": "record",
        },
        "searched/0": nothing
        | {
            "mechanism": plan.mechanism,
            "gamma": float(coverage + number(plan.beta)),
            "bins": plan.bins,
            "delta_train": 0.0,
            "epsilon_calibration": plan.epsilon,
            "delta_calibration": plan.privacy_delta,
            "noised_by": "aggregator" if plan.channel == EXACT_COUNTS else "owners",
            "noise_variance": plan.noise_variance,
        },
    }
