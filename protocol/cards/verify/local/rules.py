"""Verify the card of a local-DP campaign: the clauses that all methods share.

Each method registers rules for the clauses that only its own certificates have.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import CLOSE, Finding, number, same
from confide.protocol.cards.verify.local.levels import leveled
from confide.protocol.cards.verify.local.shuffled import shuffled
from confide.protocol.cards.verify.local.strata import stratified
from confide.protocol.cards.verify.released import decided, released_flags, released_score
from confide.protocol.certificate import (
    DROPOUTS,
    EQUAL_OWNERS,
    IID,
    IID_OWNERS,
    IID_PARTS,
    LIARS,
    LIARS_IN_ORDER,
    MIXTURE,
    PAC,
    mixture_of,
)
from confide.protocol.errors import BadInput


@dataclass(frozen=True)
class LocalRules:
    """The rules by which certificates of one method are verified.

    `channels` are those that a variant may use; `evidence` recomputes what follows from a
    certificate's numbers when so many reports may be false; `planned` tells whether certificates
    say how many records were expected; `shuffled` tells whether reports carry nothing that
    identifies them, so that a shuffler could hide them; `strata` says, of variants with a threshold
    for each part of the records, what divides them, and `together` which of these have one that is
    everybody's; `adaptive` tells whether answers decide what is asked or tested next, so that cards
    which allow for lies state when liars speak; `in_order` names the variants that bet on reports
    one after the other, whose cards state it likewise; `by_stage` names those whose rungs are
    stages of the campaign, each on reports of its own, which may promise for a planned mixture.
    `levels` says what variants may promise that follows from several levels of coverage, besides
    PAC. `search_rounds` are followed by stages which test every part, if parts are tested so.
    """

    variants: tuple[str, ...]
    channels: Callable[[str], Collection[str]]
    evidence: Callable[[Layer, int], Iterator[Finding]]
    planned: bool = False
    shuffled: bool = False
    strata: Mapping[str, str] = field(default_factory=dict)
    together: Collection[str] = ()
    adaptive: bool = False
    in_order: tuple[str, ...] = ()
    by_stage: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    search_rounds: int = 0


RULES: dict[str, LocalRules] = {}


def register(method: str, rules: LocalRules) -> None:
    """Register the rules by which cards of a method are verified."""
    if RULES.setdefault(method, rules) is not rules:
        raise BadInput(f"method {method!r} has rules already; accepted is another name")


def local(formal: Layer) -> Iterator[Finding]:
    contract, found = formal["contract"], formal["certificate"]
    known = found["method"] in RULES
    yield Finding("certificate/method", known, f"one of {', '.join(RULES)}")
    if not known:
        return
    yield same("contract/coverage", contract["coverage"], float(1 - number(found["alpha"])))
    flags = {
        "coverage": number(found["level"]) >= number(contract["coverage"]),
        "kind": found["kind"] == contract["kind"],
        "delta": found["delta"] is not None and found["delta"] <= contract["delta"],
        "epsilon": found["epsilon"] is not None and found["epsilon"] <= contract["epsilon"],
        "reports": found["n"] >= contract["minimum_reports"],
        **released_flags(formal["released"]),
    }
    yield from decided(formal, flags, [name for name, holds in flags.items() if not holds])
    yield from released_score(formal)
    for name in ("score", "threshold"):
        yield same(f"released/{name}", formal["released"][name], found[name])
    yield same(
        "margin", formal["margin"], float(number(found["level"]) - number(contract["coverage"]))
    )
    yield from _form(formal)
    rules = RULES[found["method"]]
    by = rules.strata.get(found["variant"])
    yield Finding(
        "certificate/strata",
        ("strata" in found) == (by is not None),
        "given for variants with a threshold for each part of the records, and only there",
    )
    lies = contract["max_corrupt"]
    if by is None:
        yield same("released/strata", formal["released"].get("strata"), None)
        kinds = rules.levels.get(found["variant"], ())
        yield from leveled(formal, kinds, evidence=rules.evidence, max_corrupt=lies)
    elif "strata" in found:
        yield same("certificate/kind", found["kind"], PAC)
        yield same("certificate/levels", found.get("levels"), None)
        yield same("released/band", formal["released"].get("band"), None)
        together = found["variant"] in rules.together
        yield from stratified(
            formal, by, together=together, evidence=rules.evidence, max_corrupt=lies
        )
    # Who tests owners one by one, or keeps to their mixture, knows who sent what: no shuffler can
    # hide it.
    told = "strata" in found or mixture_of(found["assumptions"]) is not None
    yield from shuffled(formal, hidden=rules.shuffled and not told)


def _form(formal: Layer) -> Iterator[Finding]:
    """Check that the parts belong together.

    Methods must have the right variants and channels, and a PAC statement its assumptions.
    """
    contract, found = formal["contract"], formal["certificate"]
    rules, variant = RULES[found["method"]], found["variant"]
    yield Finding(
        "certificate/variant", variant in rules.variants, f"one of {', '.join(rules.variants)}"
    )
    channels = rules.channels(variant)
    yield Finding(
        "certificate/channel", found["channel"] in channels, f"one of {', '.join(channels)}"
    )
    yield same("contract/adjacency", contract["adjacency"], "replace-one")
    yield same("contract/unit", contract["unit"], "record")
    liars = [LIARS] if rules.adaptive else [LIARS_IN_ORDER] if variant in rules.in_order else []
    liars = liars if contract["max_corrupt"] else []
    # Owners and groups have reports of their own, so how they are mixed does not matter. How owners
    # are mixed within a group does.
    apart = {"owner": [IID_PARTS], "group": [IID_PARTS, MIXTURE]}
    planned = mixture_of(found["assumptions"]) if variant in rules.by_stage else None
    pooled = [IID_OWNERS if planned == EQUAL_OWNERS else IID, planned or MIXTURE]
    drawn = apart.get(rules.strata.get(variant, ""), pooled)
    yield same("certificate/assumptions", found["assumptions"], [*drawn, DROPOUTS, *liars])
    counted = [rung["n"] for rung in found["rungs"] if "n" in rung]
    together = sum(counted) if variant in rules.by_stage else max(counted, default=0)
    yield Finding(
        "certificate/n", together <= found["n"], f"the rungs alone count {together} reports"
    )
    parts = found.get("strata", {}).get("parts", [found])
    parts = [found] if variant in rules.together else parts
    trivial = all(part["threshold"] >= 1 for part in parts)
    yield Finding(
        "certificate/reason",
        (found["reason"] is not None) == trivial,
        "given where the threshold is 1, and only there",
    )
    if not trivial:
        yield Finding(
            "certificate/threshold",
            found["n"] > 0,
            "without a report only the top of the grid covers",
        )


def published_level(
    found: Layer, *, least: float, most: float, corrected: bool
) -> Iterator[Finding]:
    """Check that the level follows from alpha and a slack no smaller than n and epsilon allow.

    A `corrected` threshold is chosen higher by the slack, and covers as the target says.
    """
    slack = found["slack"]
    if found["n"]:
        holds = slack is not None and least * (1 - CLOSE) <= slack <= most * (1 + CLOSE)
        yield Finding("certificate/slack", holds, f"at least {least:.6g}, at most {most:.6g}")
    else:
        yield same("certificate/slack", slack, None)
    expected = 1 - found["alpha"]
    if not corrected:
        expected = 0.0 if slack is None else max(0.0, 1 - found["alpha"] - slack)
    yield same("certificate/level", found["level"], expected)
