"""Cards of campaigns that calibrate the model of a training, on other records or on the same."""

from functools import cache
from typing import Any

from confide.aggregator.cards.issue import campaign_card
from confide.protocol.cards.card import Card
from confide.protocol.methods.counts.full_data import VARIANTS, FullDataTerms
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.privacy.zcdp import search_variance
from tests.support.owners.owners import KEY, NOW
from tests.support.training.trained_chain import BITS, COUNTS, TRAINS, chain

# Noise of the owners needs more epsilon where records are so few.
BINS, DELTA, EPSILON, NOISED = 256, 1e-6, 1.0, 4.0


TRAINED = TrainingTerms.of(TRAINS.terms)


@cache
def chained_card(method: str) -> Card:
    plan = chain().plan({"bits": BITS, "central": COUNTS}[method])
    outcome = chain().outcome(plan)
    return campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=TRAINS).sign(KEY)


def terms(variant: str, **changes: Any) -> FullDataTerms:
    kind = VARIANTS[variant]
    pure = variant in ("certified", "dpcp")
    variance = search_variance(bins=BINS, epsilon=NOISED, delta=DELTA)
    given: dict[str, Any] = {
        "variant": variant,
        "mechanism": kind.mechanism or "rank-exponential",
        "epsilon": NOISED if kind.noised_by_owners else EPSILON,
        "privacy_delta": 0.0 if pure else DELTA,
        "bins": BINS,
        "beta": 0.002,
        "noise_variance": variance if kind.noised_by_owners else 0,
        "training_noise": TRAINED.noise_multiplier,
        "training_rate": TRAINED.sampling_rate,
        "training_steps": TRAINED.rounds * TRAINED.local_steps,
        "training_delta": TRAINED.privacy_delta,
    }
    return FullDataTerms(**(given | changes))


def plan_of(variant: str, **changes: Any) -> Any:
    given = {"share": TRAINS.share, "expected_records": 720, "campaign": f"full-data {variant}"}
    return chain().plan(terms(variant), **(given | changes))


@cache
def card_of(variant: str) -> Card:
    plan = plan_of(variant)
    outcome = chain().outcome(plan)
    return campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=TRAINS).sign(KEY)
