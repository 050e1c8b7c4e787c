"""Verify cards of the track central with their plan."""

from collections.abc import Callable, Iterator

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.verify.counts.central import central
from confide.protocol.cards.verify.counts.divided import MOVED
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.tracks.base import CONTRIBUTORS, TrackRules, register
from confide.protocol.methods.base import CENTRAL
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.plan import Plan


def counted_records(
    place: str, entry: Callable[[Layer], Layer]
) -> Callable[[Layer, Layer], Iterator[Finding]]:
    """Compare the contributors with the records and owners of an entry of the card."""

    def counted(formal: Layer, contributors: Layer) -> Iterator[Finding]:
        found, owners = entry(formal), contributors["owners"]
        yield same(f"{CONTRIBUTORS}/of", max(contributors["of"], 1), found["n"])
        # Owners without records also answer, but they contribute nothing.
        yield Finding(f"{place}/owners", found["owners"] >= owners, f"{owners} contributed")

    return counted


def edges(card: Card, plan: Plan) -> Iterator[Finding]:
    """Check that a threshold on a grid of the plan's own is the edge of its bin."""
    formal = card.formal
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


def _stated(plan: Plan) -> dict[str, Layer]:
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


register(
    CENTRAL,
    TrackRules(
        unit="records",
        decide=central,
        stated=_stated,
        counted=counted_records("searched/0", lambda formal: formal["searched"][0]),
        compared=edges,
    ),
)
