"""Cards of campaigns whose tallies are drawn from known laws."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import Outcome, RecordedTallies, run_procedure
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.procedures.registry import plan_procedure
from confide.protocol.cards.card import Card
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SeededEntropy
from confide.protocol.methods.bits import BitQuery
from confide.protocol.methods.counts.queries import CountQuery, CountTally, HistogramTally
from confide.protocol.methods.labels.query import LabelQuery, LabelTally
from confide.protocol.methods.parts import BitTally
from confide.protocol.plan import Plan
from confide.protocol.scores.registry import find_label_score
from confide.protocol.scores.scoring import all_scores
from confide.simulation.arrays.rounds import CountedRounds
from tests.support.cards.cards import KEY
from tests.support.cards.central import drive
from tests.support.owners.owners import NOW, central
from tests.support.truth.known import label_population


def counted(plan: Plan, rng: np.random.Generator, *, n: int = 6_000, owners: int = 4) -> Outcome:
    """Run a central campaign of uniform scores: owners' counts with seeded noise.

    The outcome is marked as unseeded, like that of a real campaign.
    """
    scores = np.sort(rng.random(n)) ** 2
    sizes = [int(size) for size in np.diff(np.linspace(0, n, owners + 1).astype(int))]

    def answer(query: Any) -> Any:
        if isinstance(query, CountQuery):
            below = int(np.count_nonzero(scores <= query.threshold))
            noise = np.rint(rng.normal(0, query.variance**0.5, owners)).astype(int)
            parts = np.diff(np.linspace(0, below, owners + 1).astype(int))
            pairs = zip(sizes, (parts + noise).tolist(), strict=True)
            return CountTally({bytes([i]): pair for i, pair in enumerate(pairs)})
        counts = np.histogram(scores, bins=central(plan).bins, range=(0, 1))[0]
        return HistogramTally(counts.astype(np.int64), owners)

    entropy = SeededEntropy("draw", int(rng.integers(1 << 32)))
    certificate = drive(
        plan_procedure(plan, lambda m, histogram, rank: m.release(histogram, rank, entropy)), answer
    )
    found = replace(certificate, randomness=OPERATING_SYSTEM)
    return Outcome(found, {"OK": owners}, sum(size > 0 for size in sizes), max(sizes))


def reported(plan: Plan, rng: np.random.Generator, *, n: int) -> Outcome:
    """Run a local campaign of n records of a known population, drawn from the channel's own law."""
    probs, labels = label_population(n, plan.labels, rng, ties=False)
    scores = all_scores(find_label_score(plan.score), probs, u=rng.random(n))
    own = scores[np.arange(n), labels]

    def answer(query: Any) -> Any:
        if isinstance(query, LabelQuery):
            return LabelTally(
                query.clear.complete(scores),
                query.channel.randomize(
                    labels, SeededEntropy("labels", int(rng.integers(1 << 32)))
                ),
            )
        assert isinstance(query, BitQuery)
        asked = own[int(query.start * n) : int(query.stop * n)]
        parts = np.array_split(asked, len(query.thresholds))
        truth = [
            np.count_nonzero(part <= q) for part, q in zip(parts, query.thresholds, strict=True)
        ]
        hit, spill = float(query.channel.hit), float(query.channel.spill)
        ones = [
            int(rng.binomial(t, hit) + rng.binomial(len(p) - t, spill))
            for t, p in zip(truth, parts, strict=True)
        ]
        return BitTally(tuple(len(part) for part in parts), tuple(ones))

    made = plan_procedure(plan, lambda *_: pytest.fail("nothing is drawn"))
    counted = CountedRounds(answer, plan.expected_records)
    recorded = RecordedTallies(plan, counted)
    found = replace(run_procedure(made, recorded), randomness=OPERATING_SYSTEM)
    rounds = counted.told(recorded, found)[1]
    return Outcome(found, {"OK": 1}, min(found.n, 1), found.n, rounds=rounds)


def issued(plan: Plan, outcome: Outcome) -> Card:
    return campaign_card(plan, outcome, diagnostic={}, issued=NOW).sign(KEY)


def forged(card: Card, *changes: tuple[tuple[Any, ...], Any]) -> Card:
    """Return the card with other values, signed again by its own issuer."""
    formal = copy.deepcopy(card.formal)
    for place, value in changes:
        inner = formal
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
    return replace(card, formal=formal).sign(KEY)
