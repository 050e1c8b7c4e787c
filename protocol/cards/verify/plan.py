"""Compare a campaign's card with the plan that its owners saw: both must say the same."""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.verify.chain import chain
from confide.protocol.cards.verify.contributors import contributors
from confide.protocol.cards.verify.counts.divided import MOVED
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.local.rules import RULES
from confide.protocol.certificate import PLANNED_MIXTURE
from confide.protocol.methods.base import CENTRAL, FULL_DATA, LOCAL, MONITOR
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.local import LocalTerms
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.plan import Plan, digest


def planned(card: Card) -> Iterator[Finding]:
    """Check every field of a campaign's card that its plan fixes.

    `provenance` names the plan by its digest.
    """
    formal = card.formal
    text = formal.get("plan")
    # Full-data cards without one are of a training and a calibration in one place.
    expected = formal["released"] is not None and (formal["track"] != FULL_DATA or text is not None)
    yield Finding("plan", (text is not None) == expected, "campaigns have one")
    yield same(
        "provenance/plan",
        card.provenance["plan"],
        None if text is None else digest(bytes.fromhex(text)).hex(),
    )
    if text is None:
        yield same("provenance/contributors", card.provenance.get("contributors"), None)
        return
    plan = Plan.from_bytes(bytes.fromhex(text))
    yield same("plan/track", formal["track"], plan.terms.track)
    if formal["track"] != plan.terms.track:
        # No other field can be compared with a plan of another kind.
        return
    yield from contributors(card, plan)
    yield from chain(formal, plan)
    yield from _edges(formal, plan)
    if formal["track"] == LOCAL and (ladder := LocalTerms.of(plan.terms).ladder):
        found = formal["certificate"]
        parts = [found, *found.get("strata", {}).get("parts", []), *found.get("levels", [])]
        tested = {rung["threshold"] for part in parts for rung in part["rungs"]}
        yield Finding("certificate/rungs", tested <= {*ladder}, "thresholds of the plan's ladder")
    yield from _left_out(formal, plan)
    if formal["track"] == LOCAL:
        promised = PLANNED_MIXTURE in formal["certificate"]["assumptions"]
        smallest = formal["certificate"].get("smallest_owner", 0)
        yield same("certificate/smallest_owner", smallest, LocalTerms.of(plan.terms).smallest_owner)
        # A campaign that was hopeless from the start asked nobody.
        asked = formal["certificate"]["n"] > 0 and LocalTerms.of(plan.terms).planned_mixture
        yield same("certificate/mixture", promised, asked)
        levels = [(one["alpha"], one["delta"]) for one in formal["certificate"].get("levels", [])]
        yield same("certificate/levels", levels, [*LocalTerms.of(plan.terms).levels])
        yield same("contract/kind", formal["contract"]["kind"], LocalTerms.of(plan.terms).guarantee)
    stated = {"released": {"model": plan.model.hex(), "score": plan.score, "labels": plan.labels}}
    stated |= STATED[formal["track"]](plan)
    for part, fields in stated.items():
        found = formal["searched"][0] if part == "searched/0" else formal[part]
        for name, value in fields.items():
            yield same(f"{part}/{name}", found[name], value)


def _edges(formal: Layer, plan: Plan) -> Iterator[Finding]:
    """Check that a threshold on a grid of the plan's own is the edge of its bin."""
    if formal["track"] not in (CENTRAL, FULL_DATA):
        return
    terms, released = CentralTerms.of(plan.terms), formal["released"]
    parts = formal.get("strata", {}).get("parts", [])
    for place, one in [
        ("released", released),
        *((f"strata/{part['name']}", part) for part in parts),
    ]:
        if terms.given_edges:
            edge = terms.given_edges[min(one["bin"], terms.bins - 1)]
            yield same(f"{place}/threshold", one["threshold"], edge)
    yield same("strata/by", formal.get("strata", {}).get("by", ""), terms.by)
    if terms.by:
        names = [*map(str, range(plan.labels))] if terms.by == "class" else [*terms.groups]
        yield same("strata/names", [part["name"] for part in parts], names)


def _left_out(formal: Layer, plan: Plan) -> Iterator[Finding]:
    """Check that the plan's floor, and nothing else, decides which owners or groups are covered.

    One that left while it was tested is not. Groups are those of the plan, in its order.
    """
    strata = formal.get("certificate", {}).get("strata")
    if strata is None or strata["by"] == "class":
        return
    if strata["by"] == "group":
        named = [part["name"] for part in strata["parts"]]
        yield same("certificate/strata/names", named, [*plan.terms.groups])
    floor = LocalTerms.of(plan.terms).part_floor
    for i, part in enumerate(strata["parts"]):
        size, name = part.get("planned", part["n"]), f"certificate/strata/parts/{i}/covered"
        few = size < floor or part["name"] == "all"
        left = not few and (part["reason"] or "").startswith("left")
        covered = part.get("covered", True)
        yield Finding(name, covered != (few or left), f"{size} reports, the plan asks for {floor}")


def _local_contract(plan: Plan) -> Layer:
    return {
        "name": plan.campaign,
        "coverage": float(1 - number(plan.alpha)),
        "delta": LocalTerms.of(plan.terms).delta,
        "epsilon": plan.epsilon,
        "minimum_reports": plan.minimum_reports,
        "max_corrupt": plan.max_corrupt,
    }


def _reported(plan: Plan) -> Layer:
    """Return what the certificate says of the reports, each through a channel."""
    terms = LocalTerms.of(plan.terms)
    channel = terms.make_channel(labels=plan.labels)
    return {
        "method": plan.method,
        "variant": plan.variant,
        "channel": channel.name,
        "alpha": plan.alpha,
        "delta": terms.delta,
        "epsilon": channel.epsilon,
    }


def _local(plan: Plan) -> dict[str, Layer]:
    own = {
        "score": plan.score,
        "scoring": LocalTerms.of(plan.terms).scoring,
        "labels": plan.labels,
        "planned": plan.expected_records if RULES[plan.method].planned else None,
    }
    return {"contract": _local_contract(plan), "certificate": _reported(plan) | own}


def _monitor(plan: Plan) -> dict[str, Layer]:
    """Return the fields of the plan of a monitor, which released nothing of its own."""
    terms = MonitorTerms.of(plan.terms)
    return {
        "contract": _local_contract(plan),
        "certificate": _reported(plan),
        "watched": {
            "card": terms.card.hex(),
            "threshold": terms.threshold,
            "periods": terms.periods,
        },
    }


def _central(plan: Plan) -> dict[str, Layer]:
    """Return the fields of a central plan; such a campaign only calibrates and trains nothing."""
    terms, coverage = CentralTerms.of(plan.terms), 1 - number(plan.alpha)
    part = 0.0 if terms.delta else terms.beta
    nothing = {"epsilon_train": 0.0}
    shared = MOVED.get(terms.by, 1) if terms.shows_exact_counts else 1
    return {
        "contract": nothing
        | {
            "name": plan.campaign,
            "coverage": float(coverage),
            "beta": terms.beta,
            "failure_probability": terms.delta or None,
            "epsilon_calibration": plan.epsilon,
            "delta": plan.privacy_delta,
            "max_inflation": None,
            "adjacency": "replace-one",
            "unit": "record",
        },
        "searched/0": nothing
        | {
            "mechanism": terms.mechanism,
            "gamma": float(coverage + number(part)),
            "bins": terms.bins,
            "grid": terms.grid,
            "delta_train": 0.0,
            "epsilon_calibration": plan.epsilon / shared,
            "delta_calibration": plan.privacy_delta / shared,
            "noised_by": "aggregator" if terms.shows_exact_counts else "owners",
            "noise_variance": terms.noise_variance,
        },
    }


def _full_data(plan: Plan) -> dict[str, Layer]:
    """Return the fields of a plan that calibrates on the records of a training."""
    terms = FullDataTerms.of(plan.terms)
    return {
        "contract": {
            "kind": "marginal",
            "adjacency": "replace-one",
            "unit": "record",
            "name": plan.campaign,
            "coverage": float(1 - number(plan.alpha)),
            "beta": terms.beta,
        },
        "training": {
            "noise_multiplier": terms.training_noise,
            "sampling_rate": terms.training_rate,
            "steps": terms.training_steps,
        },
        "calibration": {
            "variant": plan.variant,
            "mechanism": terms.mechanism,
            "bins": terms.bins,
            "grid": terms.grid,
            "epsilon": plan.epsilon,
            "delta": plan.privacy_delta,
            "noise_variance": terms.noise_variance,
        },
    }


# The fields of a card that a plan fixes, by track.
STATED: dict[str, Callable[[Plan], dict[str, Layer]]] = {
    LOCAL: _local,
    CENTRAL: _central,
    FULL_DATA: _full_data,
    MONITOR: _monitor,
}
