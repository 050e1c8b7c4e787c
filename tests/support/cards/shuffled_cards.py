"""Cards of shuffled campaigns whose tallies are drawn from known laws."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from confide.aggregator.campaigns.driver import Outcome, ShuffledRound
from confide.protocol.cards.card import Card
from confide.protocol.methods.bits import BitTerms
from confide.protocol.plan import Plan, digest
from confide.protocol.shuffling import Handover
from tests.support.cards.campaign_cards import issued, reported
from tests.support.cards.shuffled_plans import SHUFFLED, SHUFFLER, SHUFFLING
from tests.support.owners.owners import changed

ONE_SHOT = changed(SHUFFLED, variant="one-shot", minimum_owners=4)


def handed_over(plan: Plan, opened: Sequence[int], *, unopened: Sequence[int] = ()) -> Outcome:
    """The outcome of a shuffled campaign with so many counted reports in each round.

    So many of each round did not open besides.
    """
    found = reported(plan, np.random.default_rng(1), n=sum(opened))
    rounds = []
    for number, (count, more) in enumerate(zip(opened, unopened or [0] * len(opened), strict=True)):
        said = Handover(digest(plan.to_bytes()), number, count + more, bytes(32), 4, max(opened))
        rounds.append(ShuffledRound(said, said.sign(SHUFFLER).signature, count))
    last = rounds[-1].handover
    found = replace(found, contributors=last.owners, largest=last.largest)
    # The shuffler says what its rounds received; the card has no others.
    return replace(found, shuffled=tuple(rounds), rounds=())


def shuffled_card(
    n: int = 6_000, *, max_corrupt: int = 0, unopened: int = 0, crowd: int = SHUFFLING.crowd
) -> Card:
    """The signed card of a one-shot campaign of n reports through a shuffler."""
    terms = BitTerms(variant="one-shot", epsilon=4.0, delta=0.1, max_corrupt=max_corrupt)
    shuffling = replace(SHUFFLING, crowd=crowd)
    plan = replace(ONE_SHOT, terms=terms, shuffling=shuffling, expected_records=n)
    return issued(plan, handed_over(plan, [n], unopened=[unopened]))
