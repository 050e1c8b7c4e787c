"""The plan of a campaign from a flat table of settings: Flower's run configuration, or an
operator's file."""

from datetime import datetime, timedelta
from typing import Any

from confide.aggregator.campaigns.settings import check
from confide.aggregator.procedures.central import draw_afresh
from confide.aggregator.procedures.registry import plan_procedure
from confide.aggregator.quantiles.registry import needs_delta
from confide.protocol.channels.kinds import auto
from confide.protocol.methods.training import Terms
from confide.protocol.plan import EXACT_COUNTS, NOISED_COUNTS, Plan
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.privacy.zcdp import search_variance

Validity = tuple[datetime, datetime]


def valid_from(now: datetime, *, days: float) -> Validity:
    """From a little earlier, for owners whose clocks are behind, and for so many days."""
    check({"days": days})
    return now.replace(microsecond=0) - timedelta(minutes=5), now.replace(
        microsecond=0
    ) + timedelta(days=days)


def make_plan(name: str, config: Any, *, title: str, valid: Validity) -> Plan:
    """The plan of the campaign `method:variant` under a title that tells it from others."""
    check({**config, "campaign": name, "title": title})
    method, _, variant = name.partition(":")
    epsilon, labels = float(config["epsilon"]), int(config["labels"])
    specific = SPECIFIC.get(method, _local)(name, config)
    plan = Plan(
        campaign=title,
        method=method,
        variant=variant,
        score=str(config["score"]),
        epsilon=epsilon,
        labels=labels,
        alpha=float(config["alpha"]),
        expected_records=int(config["records"]),
        minimum_reports=int(config["minimum-reports"]),
        minimum_owners=int(config["minimum-owners"]),
        model=bytes.fromhex(config["model"]),
        issued=valid[0],
        expires=valid[1],
        **specific,
    )
    if plan.training is None:
        # What the procedure does not accept is said now, and not when the campaign is open.
        next(plan_procedure(plan, draw_afresh), None)
    return plan


def _local(name: str, config: Any) -> dict[str, Any]:
    method, _, variant = name.partition(":")
    channel = "bit"
    if method == "labels":
        wanted, published = str(config["channel"]), variant.startswith("published")
        best = (
            "k-rr"
            if published
            else auto(k=int(config["labels"]), epsilon=float(config["epsilon"])).name
        )
        channel = best if wanted == "auto" else wanted
    return {
        "channel": channel,
        "delta": float(config["failure-probability"]),
        "max_corrupt": int(config["max-corrupt"]),
    }


def _central(name: str, config: Any) -> dict[str, Any]:
    bins, delta = int(config["bins"]), float(config["privacy-delta"])
    chosen: dict[str, Any] = {"delta": 0.0, "bins": bins, "beta": float(config["beta"])}
    if name.endswith(":owner-noised"):
        variance = search_variance(bins=bins, epsilon=float(config["epsilon"]), delta=delta)
        given = {
            "channel": NOISED_COUNTS,
            "mechanism": "gaussian-search",
            "privacy_delta": delta,
            "noise_variance": variance,
        }
        return chosen | given
    mechanism = str(config["mechanism"])
    return chosen | {
        "channel": EXACT_COUNTS,
        "mechanism": mechanism,
        "privacy_delta": delta if needs_delta(mechanism) else 0.0,
    }


def _training(name: str, config: Any) -> dict[str, Any]:
    """Noise from the budget: the least with which all rounds together stay within (epsilon,
    privacy-delta), replace-one."""
    rounds, local, rate = (
        int(config["rounds"]),
        int(config["local-steps"]),
        float(config["sampling-rate"]),
    )
    epsilon, delta = float(config["epsilon"]), float(config["privacy-delta"])
    layers = tuple(int(width) for width in str(config["layers"]).split())
    noise = training_noise(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=rounds * local)
    terms = Terms(
        layers=layers,
        noise_multiplier=noise,
        sampling_rate=rate,
        rounds=rounds,
        local_steps=local,
        clip=float(config["clip"]),
        batch=float(config["batch"]),
        learning_rate=float(config["learning-rate"]),
    )
    return {"channel": "dp-sgd", "delta": 0.0, "privacy_delta": delta, "training": terms}


SPECIFIC = {"central": _central, "training": _training}
