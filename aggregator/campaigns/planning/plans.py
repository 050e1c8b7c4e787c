"""Makes plans from a flat table of settings: Flower's run configuration, or an operator's file."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from confide.aggregator.campaigns.planning.settings import check
from confide.aggregator.procedures.counts.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.registry import (
    USUAL_BETA,
    certified_names,
    needs_delta,
    usual_beta,
    usual_bins,
)
from confide.protocol.chain_cost import ChainCost
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.base import AUTOMATIC, Terms
from confide.protocol.methods.registry import METHODS
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest
from confide.protocol.scores.registry import find_score

Validity = tuple[datetime, datetime]


def valid_from(now: datetime, *, days: float) -> Validity:
    """Validity for `days` days, from five minutes ago for owners whose clocks are behind."""
    check({"days": days})
    start = now.replace(microsecond=0)
    return start - timedelta(minutes=5), start + timedelta(days=days)


def make_plan(
    name: str,
    config: Any,
    *,
    title: str,
    valid: Validity,
    training: Plan | None = None,
    chain: Iterable[ChainCost] = (),
) -> Plan:
    """Make the plan of the campaign `method:variant`, with a title that distinguishes it.

    With `training` the campaign calibrates the model of that training: on the records that its
    share left out, or on those that trained, if the method is for these. A training takes the share
    `train-share` of them, or all if that is 0. `records` are those of all shares; a plan expects
    its own share of them. `chain` are the costs of all calibrations of that training.
    """
    check({**config, "campaign": name, "title": title})
    method, _, variant = name.partition(":")
    check_choice("method", method, METHODS)
    share = _share(METHODS[method], float(config.get("train-share", 0.0)), training)
    expected = _expected(int(config["records"]), share)
    config = {**config, **_of_mechanism(METHODS[method], variant, config, n=expected)}
    config["expected"] = expected
    if METHODS[method].on_training_records and training is not None:
        config = {**config, "trained": TrainingTerms.of(training.terms)}
    plan = Plan(
        campaign=title,
        terms=METHODS[method].from_settings(variant, config),
        score=find_score(str(config["score"])).text,
        labels=int(config["labels"]),
        alpha=float(config["alpha"]),
        expected_records=expected,
        minimum_reports=int(config["minimum-reports"]),
        minimum_owners=int(config["minimum-owners"]),
        model=bytes.fromhex(config["model"]),
        issued=valid[0],
        expires=valid[1],
        training=b"" if training is None else digest(training.to_bytes()),
        share=share,
        chain=tuple(chain),
        shuffling=config.get("shuffling"),
    )
    if plan.terms.uses_model and plan.terms.features is not None and not any(plan.model):
        raise BadInput(
            "the network is a head, and model is not given; accepted is the SHA-256 of the model "
            "whose outputs it is trained on"
        )
    if training is not None and not plan.labels and find_score(plan.score).width(0) != 1:
        raise BadInput(
            f"score is {plan.score!r}, and a network that owners train returns one number; "
            "accepted is absolute-residual"
        )
    if training is not None and plan.terms.sent_features:
        raise BadInput(
            "scoring is 'aggregator', and the model is one that owners trained; they can score "
            "with it, so accepted is 'owner', or a campaign of bits"
        )
    # A plan that the procedure does not accept is refused now, not when the campaign is open.
    next(plan_procedure(plan, draw_afresh), None)
    return plan


def _of_mechanism(
    terms: type[Terms], variant: str, config: Any, *, n: int
) -> dict[str, float | int]:
    """The settings that depend on the mechanism, for n records that the plan expects.

    The table has a privacy-delta for the mechanisms that spend one; the others get 0. A beta of 0
    and bins `auto` are those of the mechanism.
    """
    if "bins" not in terms.settings:
        return {}
    found: dict[str, float | int] = {}
    chosen = variant in terms.settings.get("mechanism", ())
    name = str(config["mechanism"]) if chosen else ""
    alpha, epsilon = float(config["alpha"]), float(config["epsilon"])
    if chosen and not needs_delta(name):
        found["privacy-delta"] = 0.0
    delta = float(found.get("privacy-delta", config["privacy-delta"]))
    if not config["beta"]:
        usual = usual_beta(name, n=n, alpha=alpha, epsilon=epsilon)
        found["beta"] = usual or (USUAL_BETA if terms.on_training_records else 0.0)
    if config["bins"] == AUTOMATIC:
        found["bins"] = usual_bins(
            "" if terms.on_training_records else name,
            n=n,
            alpha=alpha,
            beta=float(found.get("beta", config["beta"])),
            epsilon=epsilon,
            delta=delta,
        )
    return found


def _share(terms: type[Terms], trained: float, training: Plan | None) -> tuple[float, ...]:
    if training is not None and terms.on_training_records:
        return training.share
    if training is not None:
        if not training.share or training.share[1] >= 1:
            raise BadInput(
                "the training used all records, so none are left to calibrate its model; accepted "
                "is a train-share below 1"
            )
        return (training.share[1], 1.0)
    return (0.0, trained) if trained and terms.trains else ()


def _expected(records: int, share: tuple[float, ...]) -> int:
    """Return how many of all owners' records take part; a search by bits plans its stages by it."""
    if not share:
        return records
    first, last = share
    return max(1, round(records * (last - first)))


def check_groups_used(given: Any, plan: Plan) -> None:
    """Refuse groups that are given for a campaign which counts all records together."""
    if given and not plan.terms.groups:
        raise BadInput(
            "groups are given, and no threshold is for a group; accepted is by 'group' with them"
        )


def check_delta_used(given: float | None, plans: Iterable[Plan]) -> None:
    """Refuse a given privacy-delta that no plan spends: pure mechanisms have none."""
    if given and not any(plan.privacy_delta for plan in plans):
        spending = ", ".join(name for name in certified_names() if needs_delta(name))
        raise BadInput(
            f"privacy-delta is {given}, and the mechanism is pure; accepted are 0 and mechanism "
            f"{spending}"
        )
