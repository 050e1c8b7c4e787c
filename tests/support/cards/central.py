"""Central campaigns for tests: plans, policies that allow them, and a driver of procedures."""

from dataclasses import replace
from typing import Any

from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.privacy.zcdp import search_variance
from tests.support.owners.owners import PLAN, POLICY

BINS = 256
TRUSTED = replace(
    PLAN,
    terms=CentralTerms(
        variant="trusted", mechanism="rank-exponential", epsilon=1.0, bins=BINS, beta=0.01
    ),
)
NOISED = replace(
    PLAN,
    terms=CentralTerms(
        variant="owner-noised",
        mechanism="gaussian-search",
        epsilon=1.0,
        bins=BINS,
        beta=0.01,
        privacy_delta=1e-6,
        noise_variance=search_variance(bins=BINS, epsilon=1.0, delta=1e-6),
    ),
)
CENTRAL = replace(
    POLICY,
    methods=frozenset({"central"}),
    delta_per_record=1e-6,
    delta_per_campaign=1e-6,
    exact_counts_may_leave=True,
    epsilon_per_record=1.5,
)
OPEN_POLICY = replace(CENTRAL, methods=POLICY.methods | CENTRAL.methods, epsilon_per_record=20.0)


def drive(procedure: Any, answer: Any) -> Any:
    tally = None
    while True:
        try:
            query = procedure.send(tally)
        except StopIteration as finished:
            return finished.value
        tally = answer(query)
