"""Verify cards of the track local: with their plan, and what each round received."""

import operator
from collections.abc import Iterator

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.verify.findings import Finding, number, same
from confide.protocol.cards.verify.local.covered import left_out
from confide.protocol.cards.verify.local.pairs import NOTHING_LOWER
from confide.protocol.cards.verify.local.rules import RULES, local
from confide.protocol.cards.verify.tracks.base import CONTRIBUTORS, TrackRules, register
from confide.protocol.certificate import EQUAL_OWNERS, PLANNED_MIXTURE, mixture_of
from confide.protocol.methods.base import LOCAL
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan


def _compared(card: Card, plan: Plan) -> Iterator[Finding]:
    """Check the ladder, the parts that are covered and the mixture that was planned."""
    terms, found = LocalTerms.of(plan.terms), card.formal["certificate"]
    if terms.ladder:
        parts = [found, *found.get("strata", {}).get("parts", []), *found.get("levels", [])]
        tested = {rung["threshold"] for part in parts for rung in part["rungs"]}
        rungs = tested <= {*terms.ladder}
        yield Finding("certificate/rungs", rungs, "thresholds of the plan's ladder")
    yield from left_out(card, plan)
    smallest = found.get("smallest_owner", 0)
    yield same("certificate/smallest_owner", smallest, terms.smallest_owner)
    shares = EQUAL_OWNERS if terms.equal_owners else PLANNED_MIXTURE
    planned = shares if terms.planned_mixture else None
    yield same("certificate/mixture", mixture_of(found["assumptions"]), planned)
    levels = [(one["alpha"], one["delta"]) for one in found.get("levels", [])]
    yield same("certificate/levels", levels, [*terms.levels])
    yield same("contract/kind", card.formal["contract"]["kind"], terms.guarantee)


def counted_reports(formal: Layer, contributors: Layer) -> Iterator[Finding]:
    """Compare the contributors with the reports of the card, or with what a shuffler signed."""
    place, of = CONTRIBUTORS, contributors["of"]
    if rounds := formal.get("shuffle", {}).get("rounds", []):
        # Only the shuffler knows who sent; it signed this with the last round.
        yield same(f"{place}/of", of, sum(one["reports"] for one in rounds))
        yield same(f"{place}/owners", contributors["owners"], rounds[-1]["owners"])
        yield same(f"{place}/largest", contributors["largest"], rounds[-1]["largest"])
    else:
        yield same(f"{place}/of", of, formal["certificate"]["n"])


def _by_round(formal: Layer, found: Layer, plan: Plan) -> Iterator[Finding]:
    """Check what each round received, with the owners it left out.

    Rounds ask disjoint slices, and the last of them are the stages that the certificate tested, of
    a planned mixture on some of the answers.
    """
    rounds, place = found["rounds"], f"{CONTRIBUTORS}/rounds"
    yield same(f"{place}/reports", sum(one["reports"] for one in rounds), found["of"])
    asked = sum(one["expected"] for one in rounds)
    most = plan.expected_records + len(rounds)
    yield Finding(f"{place}/expected", asked <= most, f"at most {most} in all")
    for i, one in enumerate(rounds):
        fits = (one["owners"] == 0) == (one["reports"] == 0)
        held = fits and one["owners"] <= min(found["owners"], one["reports"])
        yield Finding(f"{place}/{i}/owners", held, f"owners with {one['reports']} reports")
    certificate = formal["certificate"]
    parts = certificate.get("strata", {}).get("parts", [])
    by_part = [one["reports"] for one in parts if "reports" in one]
    if by_part:
        told = [one["reports"] for one in rounds]
        found_in = [sum(row) for row in zip(*by_part, strict=True)]
        # A campaign that was closed asks nobody, and decides without answers.
        told += [0] * (len(found_in) - len(told))
        yield same(f"{place}/parts", found_in, told)
    # A campaign that was closed decides its last stages without answers, and asks none.
    searched = RULES[certificate["method"]].search_rounds
    tested, came = _answered(_tested(certificate)), _answered([one["reports"] for one in rounds])
    if tested and certificate["variant"] in RULES[certificate["method"]].by_stage:
        stages = came[-len(tested) :]
        fits = stages == tested
        if mixture_of(certificate["assumptions"]):
            # Some of the answers are tested; of a last round that an owner left, none may be.
            fits = _drawn(tested, stages) or _drawn(tested, came[-len(tested) - 1 : -1])
        yield Finding(f"{place}/stages", fits, f"{tested} were tested")
    most = max((len(part["rungs"]) for part in parts), default=0)
    if searched and most:
        # Labels that could certify nothing lower are not asked on, and a stage that nobody answered
        # tests nothing.
        stages = [count for count in came[searched:] if count]
        fits = len(stages) == most or min(part["threshold"] for part in parts) < NOTHING_LOWER
        yield Finding(f"{place}/stages", fits, f"{most} of {len(stages)} stages were tested")


def _answered(counts: list[int]) -> list[int]:
    """The counts up to the last that is not 0."""
    return counts[: max((i + 1 for i, n in enumerate(counts) if n), default=0)]


def _drawn(tested: list[int], came: list[int]) -> bool:
    """Whether every stage could draw so many of the answers that came."""
    return len(came) == len(tested) and all(map(operator.le, tested, came))


def _tested(certificate: Layer) -> list[int]:
    """The answers of each stage; levels share stages, told apart by the answers still to come."""
    rungs = [rung for rung in certificate["rungs"] if "rest" in rung]
    if "levels" in certificate:
        shared = [rung for one in certificate["levels"] for rung in one["rungs"] if "rest" in rung]
        by_rest = {rung["rest"]: rung for rung in shared}
        rungs = [by_rest[rest] for rest in sorted(by_rest, reverse=True)]
    return [rung["n"] for rung in rungs]


def stated_contract(plan: Plan) -> Layer:
    """Return what the contract says of a promise that rests on reports."""
    return {
        "name": plan.campaign,
        "coverage": float(1 - number(plan.alpha)),
        "delta": LocalTerms.of(plan.terms).delta,
        "epsilon": plan.epsilon,
        "minimum_reports": plan.minimum_reports,
        "max_corrupt": plan.max_corrupt,
    }


def stated_reports(plan: Plan) -> Layer:
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


def _stated(plan: Plan) -> dict[str, Layer]:
    """Return the fields of a local plan, with what only some methods' certificates repeat."""
    own = {
        "score": plan.score,
        "scoring": LocalTerms.of(plan.terms).scoring,
        "labels": plan.labels,
        "planned": plan.expected_records if RULES[plan.method].planned else None,
    }
    return {"contract": stated_contract(plan), "certificate": stated_reports(plan) | own}


register(
    LOCAL,
    TrackRules(
        unit="reports",
        decide=local,
        stated=_stated,
        counted=counted_reports,
        compared=_compared,
        by_round=_by_round,
    ),
)
