"""What levels of coverage promise together: the bound on what is missed, and the sum of deltas."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from confide import plan as make_plan
from confide.protocol.certificate import BAND, MARGINAL, PAC
from confide.protocol.errors import BadInput
from confide.protocol.levels import band_levels, marginal_levels, most_missed
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan
from tests.support.owners.owners import PLAN, changed

ALPHAS = (0.001, 0.05, 0.1, 0.5, 0.9)


def planned(campaign: str, guarantee: str, **more: Any) -> Plan:
    return make_plan(campaign, records=5_000, labels=10, guarantee=guarantee, **more)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("error", [1e-6, 1e-3, 0.02, 0.3, 5.0])
def test_marginal_levels_bound_what_is_missed_by_alpha(alpha: float, error: float) -> None:
    """For tests of any error they rise within (0, 1), bound the mean by alpha, and waste nothing of
    it but for rounding."""
    levels = marginal_levels(alpha, error=error, count=12)
    alphas = [at for at, _ in levels]
    assert 0 < min(alphas) <= max(alphas) < 1
    assert alphas == sorted({*alphas})
    assert Fraction(repr(alpha)) * (1 - Fraction(1, 10**8)) <= most_missed(levels)
    assert most_missed(levels) <= Fraction(repr(alpha))


def test_the_bound_is_the_mean_of_the_worst_threshold() -> None:
    """A threshold that misses just above each level as often as its delta allows has that mean."""
    levels = ((0.08, 0.5), (0.11, 0.25), (0.3, 0.125))
    u = np.linspace(0, 1, 1_000_001)
    missed = np.select([u < 0.125, u < 0.25, u < 0.5], [1.0, 0.3, 0.11], 0.08)
    assert abs(float(missed.mean()) - float(most_missed(levels))) < 1e-5


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_levels_of_a_band_share_delta(alpha: float) -> None:
    """Alpha is one of them, and the deltas add up to at most delta."""
    levels = band_levels(alpha, 0.05)
    assert alpha in [at for at, _ in levels]
    assert sum(Fraction(delta) for _, delta in levels) <= Fraction("0.05")


@pytest.mark.parametrize(
    ("campaign", "guarantees"),
    [
        ("labels:certified", (PAC, MARGINAL, BAND)),
        ("bits:certified", (PAC, MARGINAL)),
        ("bits:one-shot", (PAC, MARGINAL, BAND)),
    ],
)
def test_plans_state_the_guarantee_and_survive_bytes(
    campaign: str, guarantees: tuple[str, ...]
) -> None:
    """What is proved can be planned, and a plan read from bytes promises the same."""
    for guarantee in guarantees:
        plan = planned(campaign, guarantee)
        read = Plan.from_bytes(plan.to_bytes())
        assert read == plan
        assert LocalTerms.of(read.terms).guarantee == guarantee
    assert make_plan(campaign, records=5_000, labels=10).terms == planned(campaign, PAC).terms


@pytest.mark.parametrize(
    ("campaign", "asked", "words"),
    [
        ("bits:certified", {"guarantee": BAND}, "accepted"),
        ("bits:certified", {"guarantee": MARGINAL, "mixture": "planned"}, "planned mixture"),
        ("bits:certified", {"mixture": "owners"}, "as-answered or planned or equal-owners"),
        ("bits:published", {"guarantee": MARGINAL}, "does not use"),
        ("labels:class-conditional", {"guarantee": MARGINAL}, "does not use"),
        ("labels:per-owner", {"guarantee": BAND}, "does not use"),
        ("central:trusted", {"guarantee": BAND}, "guarantee"),
        ("labels:certified", {"guarantee": MARGINAL, "failure_probability": 0.1}, "does not use"),
        ("labels:certified", {"guarantee": "certain"}, "guarantee is"),
    ],
)
def test_what_is_not_proved_is_refused(campaign: str, asked: dict[str, Any], words: str) -> None:
    """Other variants, a band of adaptive stages, planned mixtures; and an average has no
    failures."""
    with pytest.raises(BadInput, match=words):
        make_plan(campaign, records=5_000, labels=10, **asked)


def test_plans_whose_levels_promise_too_much_are_refused() -> None:
    """A larger delta of an average or a band, a band without alpha, levels that do not rise."""
    marginal, band = planned("labels:certified", MARGINAL), planned("labels:certified", BAND)
    own = LocalTerms.of(marginal.terms)
    deltas = [delta for _, delta in own.levels]
    lies: list[tuple[Plan, dict[str, Any]]] = [
        (marginal, {"level_deltas": tuple(min(1.01 * delta, 0.999) for delta in deltas)}),
        (marginal, {"level_alphas": tuple(1.001 * at for at, _ in own.levels)}),
        (marginal, {"level_deltas": tuple(deltas[1:])}),
        (marginal, {"level_alphas": tuple(at for at, _ in reversed(own.levels))}),
        (band, {"level_deltas": tuple(1.01 * d for _, d in LocalTerms.of(band.terms).levels)}),
        (band, {"delta": 0.05}),
    ]
    for plan, lie in lies:
        with pytest.raises(BadInput):
            changed(plan, **lie)
    with pytest.raises(BadInput, match="among the levels"):
        replace(band, alpha=0.1234)
    with pytest.raises(BadInput):
        changed(PLAN, delta=0.0)
    for other in ("class-conditional", "per-owner", "published"):
        with pytest.raises(BadInput, match="guarantee of labels"):
            changed(marginal, variant=other, ladder=())
    with pytest.raises(BadInput, match="guarantee of bits:certified"):
        changed(planned("bits:one-shot", BAND), variant="certified")
