"""The plan of a campaign from a flat table of settings: Flower's run configuration, or an
operator's file."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from confide.aggregator.campaigns.settings import check
from confide.aggregator.procedures.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.registry import certified_names, needs_delta
from confide.protocol.channels.registry import AUTO, auto
from confide.protocol.errors import BadInput, check_choice
from confide.protocol.methods.base import Terms
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.central import OWNER_NOISED, SEARCH, CentralTerms
from confide.protocol.methods.labels import LabelTerms
from confide.protocol.methods.training import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.privacy.zcdp import search_variance

Validity = tuple[datetime, datetime]
# Makes the terms of a variant from settings.
Maker = Callable[[str, Any], Terms]

TERMS: dict[str, Maker] = {}


def register(method: str, maker: Maker) -> None:
    """Let settings name a method."""
    if TERMS.setdefault(method, maker) is not maker:
        raise BadInput(f"method {method!r} reads settings already; accepted is another name")


def valid_from(now: datetime, *, days: float) -> Validity:
    """From a little earlier, for owners whose clocks are behind, and for so many days."""
    check({"days": days})
    start = now.replace(microsecond=0)
    return start - timedelta(minutes=5), start + timedelta(days=days)


def make_plan(name: str, config: Any, *, title: str, valid: Validity) -> Plan:
    """The plan of the campaign `method:variant` under a title that tells it from others."""
    check({**config, "campaign": name, "title": title})
    method, _, variant = name.partition(":")
    check_choice("method", method, TERMS)
    plan = Plan(
        campaign=title,
        terms=TERMS[method](variant, config),
        score=str(config["score"]),
        labels=int(config["labels"]),
        alpha=float(config["alpha"]),
        expected_records=int(config["records"]),
        minimum_reports=int(config["minimum-reports"]),
        minimum_owners=int(config["minimum-owners"]),
        model=bytes.fromhex(config["model"]),
        issued=valid[0],
        expires=valid[1],
    )
    # What the procedure does not accept is said now, and not when the campaign is open.
    next(plan_procedure(plan, draw_afresh), None)
    return plan


def check_delta_used(given: float | None, plans: Iterable[Plan]) -> None:
    """Refuse a privacy-delta that was given and that no plan spends: pure mechanisms have none."""
    if given and not any(plan.privacy_delta for plan in plans):
        spending = ", ".join(name for name in certified_names() if needs_delta(name))
        raise BadInput(
            f"privacy-delta is {given}, and the mechanism is pure; accepted are 0 and mechanism "
            f"{spending}"
        )


def _bits(variant: str, config: Any) -> BitTerms:
    return BitTerms(
        variant=variant,
        epsilon=float(config["epsilon"]),
        delta=float(config["failure-probability"]),
        max_corrupt=int(config["max-corrupt"]),
    )


def _labels(variant: str, config: Any) -> LabelTerms:
    """Channel auto is the best one; published variants are defined for uniform noise only."""
    channel, epsilon = str(config["channel"]), float(config["epsilon"])
    if channel == AUTO:
        uniform = variant.startswith("published")
        channel = auto(k=int(config["labels"]), epsilon=epsilon, uniform_noise=uniform).name
    return LabelTerms(
        variant=variant,
        channel=channel,
        epsilon=epsilon,
        delta=float(config["failure-probability"]),
        max_corrupt=int(config["max-corrupt"]),
    )


def _central(variant: str, config: Any) -> CentralTerms:
    bins, delta = int(config["bins"]), float(config["privacy-delta"])
    epsilon, beta = float(config["epsilon"]), float(config["beta"])
    if variant == OWNER_NOISED:
        return CentralTerms(
            variant=variant,
            mechanism=SEARCH,
            epsilon=epsilon,
            privacy_delta=delta,
            bins=bins,
            beta=beta,
            noise_variance=search_variance(bins=bins, epsilon=epsilon, delta=delta),
        )
    mechanism = str(config["mechanism"])
    return CentralTerms(
        variant=variant,
        mechanism=mechanism,
        epsilon=epsilon,
        privacy_delta=delta if needs_delta(mechanism) else 0.0,
        bins=bins,
        beta=beta,
    )


def _training(variant: str, config: Any) -> TrainingTerms:
    """Noise from the budget: the least with which all rounds together stay within (epsilon,
    privacy-delta), replace-one."""
    rounds, local, rate = (
        int(config["rounds"]),
        int(config["local-steps"]),
        float(config["sampling-rate"]),
    )
    epsilon, delta = float(config["epsilon"]), float(config["privacy-delta"])
    noise = training_noise(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=rounds * local)
    return TrainingTerms(
        variant=variant,
        epsilon=epsilon,
        privacy_delta=delta,
        layers=tuple(int(width) for width in str(config["layers"]).split()),
        noise_multiplier=noise,
        sampling_rate=rate,
        rounds=rounds,
        local_steps=local,
        clip=float(config["clip"]),
        batch=float(config["batch"]),
        learning_rate=float(config["learning-rate"]),
    )


register("labels", _labels)
register("bits", _bits)
register("central", _central)
register("training", _training)
