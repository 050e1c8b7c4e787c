"""The planned mixture of owners: exact levels of unequal answers, and owners that leave."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.bits import procedure as bits
from confide.aggregator.procedures.certify import MOST_UNEQUAL, Search, design_stage
from confide.aggregator.procedures.owners.planned_mixture import PlannedMixture
from confide.protocol.cards.words.promise_words import promise
from confide.protocol.certificate import (
    EQUAL_OWNERS,
    IID,
    IID_OWNERS,
    MIXTURE,
    PLANNED_MIXTURE,
    LocalCertificate,
)
from confide.protocol.channels.bit import Bit
from confide.protocol.exact.sampling import OPERATING_SYSTEM as SYSTEM
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.owner_terms import mixture_settings
from confide.protocol.methods.parts import BitTally, PartBits
from confide.simulation.driver import drive
from tests.support.cards.campaign_cards import forged
from tests.support.cards.cards import KEY, broken, campaign
from tests.support.owners.leaving import LEAVES, Leaving, planned_coverage
from tests.support.owners.owners import NOW, PLAN, asking, changed, signed

ALPHA = DELTA = 0.1
BIT, N, CAMPAIGNS = Bit(epsilon=4.0), 10_000, 40
PUBLIC = KEY.public_key().public_bytes_raw()
# What cards say of owners, by the setting.
WORDS = {"as-answered": MIXTURE, "planned": PLANNED_MIXTURE, "equal-owners": EQUAL_OWNERS}


def run(
    seed: int, *, rounds: int = 99, planned: bool = True, share: float = LEAVES, **own: Any
) -> LocalCertificate:
    own |= {"mixture": bytes([seed])} if planned else {}
    made = bits.procedure(variant="certified", channel=BIT, alpha=ALPHA, delta=DELTA, n=N, **own)
    return drive(made, Leaving(N, rounds=rounds, seed=seed, share=share))


@pytest.mark.parametrize("rounds", [2, 3], ids=["before certification", "after the first stage"])
def test_an_owner_that_leaves_makes_no_planned_mixture_come_true(rounds: int) -> None:
    """As answered, nearly every campaign is below 1 - alpha for the planned mixture. Planned, none
    but a share delta is: without that owner nothing is certified, and the reason names it."""
    answered = [run(i, rounds=rounds, planned=False).threshold for i in range(8)]
    assert sum(planned_coverage(q) < 1 - ALPHA for q in answered) >= 6
    found = [run(i, rounds=rounds) for i in range(CAMPAIGNS)]
    misses = sum(planned_coverage(one.threshold) < 1 - ALPHA for one in found)
    assert misses <= int(binom.isf(1e-6, CAMPAIGNS, DELTA))
    trivial = [one for one in found if one.threshold >= 1]
    assert len(trivial) == CAMPAIGNS if rounds == 2 else 0 < len(trivial) < CAMPAIGNS
    assert all("of the planned mixture, left" in str(one.reason) for one in trivial)
    # It is the first of the two by name, b"leaves", that left.
    assert all("owner 1, " in str(one.reason) for one in trivial)


def test_without_an_answer_there_is_no_planned_mixture() -> None:
    """A campaign that was closed before anybody came ends with the reason."""

    def nobody(query: BitQuery) -> BitTally:
        nothing = (0,) * len(query.thresholds)
        return BitTally(nothing, nothing)

    made = bits.procedure(
        variant="certified", channel=BIT, alpha=ALPHA, delta=DELTA, n=N, mixture=b"seed"
    )
    assert "nobody answered" in str(drive(made, nobody).reason)


def test_where_nobody_leaves_the_planned_mixture_costs_little() -> None:
    """Its thresholds cover the planned mixture, and are about as low as without it."""
    pairs = [(run(i), run(i, planned=False)) for i in range(CAMPAIGNS)]
    covered = np.array([[planned_coverage(one.threshold) for one in pair] for pair in pairs])
    assert (covered[:, 0] < 1 - ALPHA).sum() <= int(binom.isf(1e-6, CAMPAIGNS, DELTA))
    excess = covered.mean(axis=0) - (1 - ALPHA)
    assert excess[0] < 1.3 * excess[1]
    assert pairs[0][0].assumptions[1] == PLANNED_MIXTURE
    assert pairs[0][1].assumptions[1] == MIXTURE


def test_equal_owners_are_covered_on_average_and_shares_by_reports_miss_that() -> None:
    """A fifth of the records are of an owner that needs a higher threshold than the other: the mean
    of both owners' coverage holds where they count alike, and fails where their reports count."""
    most = int(binom.isf(1e-6, CAMPAIGNS, DELTA))
    for equal in (True, False):
        found = [run(i, share=0.2, equal_owners=equal) for i in range(CAMPAIGNS)]
        covered = np.array([planned_coverage(one.threshold, share=0.5) for one in found])
        misses = int((covered < 1 - ALPHA).sum())
        assert misses <= most if equal else misses > 2 * most
        assert all(one.threshold < 1 for one in found)
        assert found[0].assumptions[1] == (EQUAL_OWNERS if equal else PLANNED_MIXTURE)


@pytest.mark.parametrize("share", [0.006, 0.05])
def test_an_owner_too_small_to_count_alike_ends_the_campaign_before_it_tests(share: float) -> None:
    """It is named, with the records that would do, after the search and by sizes alone: what the
    answers are says nothing. An owner of more records lets the campaign go on."""
    asked: list[BitQuery] = []
    reasons: list[str] = []
    for flipped in (False, True):
        users = Leaving(N, rounds=99, seed=0, share=share)

        def answered(query: BitQuery, users: Leaving = users, flipped: bool = flipped) -> BitTally:
            asked.append(query)
            found = users(query)
            one = {key: PartBits(part.answers, part.answers) for key, part in found.parts.items()}
            return BitTally(found.answers, found.answers, one) if flipped else found

        own: dict[str, Any] = {"channel": BIT, "alpha": ALPHA, "delta": DELTA, "mixture": b"seed"}
        made = bits.procedure(variant="certified", n=N, equal_owners=True, **own)
        reasons.append(str(drive(made, answered).reason))
    if share == 0.05:
        assert len(asked) > 4
        return
    assert len(asked) == 4
    assert reasons[0] == reasons[1]
    assert "owner 1 answered 2 of the 500 reports of the first round" in reasons[0]
    # Of each of two owners half of 20 trials, with two to spare, in 8 % of the records.
    assert "needed are 20, about 150 records of every owner" in reasons[0]


def law(rates: Any) -> Any:
    """The exact law of a sum of independent bits with these rates."""
    found = np.ones(1)
    for rate in rates:
        found = np.convolve(found, [1 - rate, rate])
    return found


def spread_rates(n: int, mean: float) -> list[np.ndarray]:
    """Rates of this mean, from equal ones to as unequal as they can be."""
    sure = np.zeros(n)
    whole = int(n * mean)
    sure[:whole] = 1.0
    sure[whole] = n * mean - whole
    half = np.where(np.arange(n) < n // 2, min(1.0, 2 * mean - 0.55), 0.0)
    half[n // 2 :] = (n * mean - half.sum()) / (n - n // 2)
    return [np.full(n, mean), sure, half, (sure + mean) / 2]


@pytest.mark.parametrize(("n", "rest"), [(20, 0), (40, 25), (60, 200)])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.1, MOST_UNEQUAL])
@pytest.mark.parametrize("early", [0.0, 0.25, 0.5])
def test_unequal_answers_keep_the_level_of_a_stage(
    n: int, rest: int, level: float, early: float
) -> None:
    """The mean of what a stage leaves is at most its level, for rates that differ as they may."""
    for m0 in (0.55, 0.685, 0.886):
        stage = design_stage(n=n, rest=rest, level=level, m0=m0, early=early, unequal=True)
        after = np.array([stage.level_after(ones) for ones in range(n + 1)])
        for rates in spread_rates(n, m0):
            assert float(law(rates) @ after) <= level * (1 + 1e-6)


@pytest.mark.parametrize("planted", ["kept", "pooled"])
def test_a_planted_stage_of_unequal_answers_that_gives_away_more_is_caught(planted: str) -> None:
    """What is kept without being charged, or a pooled count a few lower, spends too much."""
    n, m0, level = 60, 0.685, 0.1
    stage = design_stage(n=n, rest=200, level=level, m0=m0, early=0.4, unequal=True)
    other: dict[str, Any] = {"kept": {"kept": level}, "pooled": {"pooled": stage.pooled - 4}}
    stage = replace(stage, **other[planted])
    after = np.array([stage.level_after(ones) for ones in range(n + 1)])
    assert max(float(law(rates) @ after) for rates in spread_rates(n, m0)) > level


def test_without_its_bounds_the_level_would_not_hold() -> None:
    """Above 1/4 a tail may begin below the mean, where unequal answers are heavier: the level of a
    stage of equal answers is exceeded, so that a search never leaves unequal ones more, but for a
    threshold that has passed and waits for those above it."""
    n, m0, level = 40, 0.886, 0.7
    stage = design_stage(n=n, rest=0, level=level, m0=m0, early=0.0)
    after = np.array([stage.level_after(ones) for ones in range(n + 1)])
    assert max(float(law(rates) @ after) for rates in spread_rates(n, m0)) > level
    left = {
        unequal: [
            search.test(0.5, n=n, ones=ones, rest=400).level_after
            for ones in range(n + 1)
            for search in [Search(delta=0.24, m0=m0, unequal=unequal)]
        ]
        for unequal in (False, True)
    }
    assert sorted({*left[False]} - {1.0})[-1] > MOST_UNEQUAL
    assert sorted({*left[True]})[-2:] == [MOST_UNEQUAL, 1.0]
    assert Search(delta=0.7, m0=m0, unequal=True).test(0.5, n=n, ones=9, rest=0).level == 0.25


def test_equal_owners_have_equal_trials_whatever_their_size() -> None:
    """The smaller of two bounds the trials, but for what chance does to points: as many of the
    larger are drawn. A small one among many costs zeros rather than the trials of all others."""
    equal = PlannedMixture.of(tally(a=(300, 0), b=(700, 0)), b"seed", equal=True)
    assert equal.shares.tolist() == [0.5, 0.5]
    came = tally(a=(302, 302), b=(700, 0))
    assert equal.trials(came, channel=BIT, alpha=ALPHA, m0=0.886) == 600
    assert abs(equal.drawn(came, 600, 4).ones[0] - 300) <= 2
    assert abs(equal.drawn(tally(a=(302, 0), b=(700, 700)), 600, 4).ones[0] - 300) <= 2
    many = tally(**{f"o{i}": (1 if i == 7 else 100, 0) for i in range(50)})
    planned = PlannedMixture.of(many, b"seed", equal=True)
    trials = planned.trials(many, channel=BIT, alpha=ALPHA, m0=0.886)
    assert trials == 4_901
    every = tally(**{f"o{i}": (n, n) for i in range(50) for n in [1 if i == 7 else 100]})
    # Owner 7 has 98 trials, of which one is answered.
    assert abs(planned.drawn(every, trials, 0).ones[0] - (4_901 - 97)) <= 2


def tally(**counts: tuple[int, int]) -> BitTally:
    parts = {
        key.encode(): PartBits({0: n}, {0: ones} if ones else {})
        for key, (n, ones) in counts.items()
    }
    answers, ones = (sum(column) for column in zip(*counts.values(), strict=True))
    return BitTally((answers,), (ones,), parts)


def test_trials_have_the_planned_shares_whatever_came() -> None:
    """Owner a always says one and b never: the share of ones is a's planned share, within what
    stratified points leave to chance. The same seed draws the same trials."""
    planned = PlannedMixture.of(tally(a=(300, 0), b=(700, 0)), b"seed")
    came = tally(a=(900, 900), b=(900, 0))
    trials = planned.trials(came, channel=BIT, alpha=ALPHA, m0=0.886)
    assert 1_200 < trials <= 900 / 0.7
    drawn = planned.drawn(came, trials, 4)
    assert drawn.answers == (trials,)
    assert abs(drawn.ones[0] - 0.3 * trials) <= 2
    assert planned.drawn(came, trials, 4) == drawn
    # What an owner's answers are does not change which are taken: half of b's become ones.
    halves = [planned.drawn(tally(a=(900, 900), b=(900, 450)), trials, i).ones[0] for i in range(9)]
    expected = 0.3 * trials + 0.35 * trials
    assert abs(np.mean(halves) - expected) < 5 * np.sqrt(trials / 4 / 9)


def test_an_owner_that_came_short_counts_as_zeros_or_costs_trials() -> None:
    """A small owner that left is worth fewer ones; a large one leaves no trials at all."""
    few = PlannedMixture.of(tally(a=(10, 0), b=(990, 0)), b"")
    assert few.trials(tally(b=(1_000, 900)), channel=BIT, alpha=ALPHA, m0=0.886) > 900
    assert few.drawn(tally(b=(1_000, 1_000)), 1_000, 0).ones[0] <= 992
    many = PlannedMixture.of(tally(a=(400, 0), b=(600, 0)), b"")
    gone = tally(b=(1_000, 900))
    assert many.trials(gone, channel=BIT, alpha=ALPHA, m0=0.886) == 0
    assert many.missing(gone) == (1, 0.4, 0)
    assert many.missing(tally(a=(3, 0), b=(1_000, 900))) == (1, 0.4, 3)
    assert LEAVES == 0.4


@pytest.mark.parametrize("mixture", WORDS)
def test_a_card_says_whose_mixture_it_is_and_a_lie_about_it_is_named(
    tmp_path: Path, mixture: str
) -> None:
    """The plan asks for one mixture, so that a card with the words of another is false."""
    terms: dict[str, Any] = mixture_settings({"mixture": mixture})
    card = campaign(tmp_path, **terms)
    found = card.formal["certificate"]
    assert broken(card, key=PUBLIC) == []
    assert found["assumptions"][1] == WORDS[mixture]
    assert found["threshold"] < 1
    of_owners = mixture == "equal-owners"
    assert found["assumptions"][0] == (IID_OWNERS if of_owners else IID)
    assert ("of an owner of the first round" in promise(card.formal)) == of_owners
    for words in {*WORDS.values()} - {WORDS[mixture]}:
        lie = forged(card, (("certificate", "assumptions", 1), words))
        assert "certificate/mixture" in broken(lie)


@pytest.mark.parametrize("records", [5, 6_000], ids=["too few expected", "nobody came"])
def test_a_card_without_a_report_says_which_mixture_was_planned(records: int) -> None:
    """A campaign that could not begin, or that nobody answered, has an honest card all the same."""
    plan = changed(PLAN, planned_mixture=True, expected_records=records, minimum_reports=0)
    outcome = run_campaign(plan, asking(signed(plan), []))
    outcome = replace(outcome, certificate=replace(outcome.certificate, randomness=SYSTEM))
    card = campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)
    assert broken(card, key=PUBLIC) == []
