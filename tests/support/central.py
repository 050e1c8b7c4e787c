"""Central campaigns for tests: plans, policies that allow them, and a driver of procedures."""

from dataclasses import replace
from typing import Any

from confide.protocol.certificate import Certificate
from confide.protocol.plan import EXACT_COUNTS, NOISED_COUNTS
from confide.protocol.privacy.zcdp import search_variance
from tests.support.owners import PLAN, POLICY

BINS = 256
TRUSTED = replace(
    PLAN,
    method="central",
    variant="trusted",
    channel=EXACT_COUNTS,
    delta=0.0,
    epsilon=1.0,
    mechanism="rank-exponential",
    bins=BINS,
    beta=0.01,
)
NOISED = replace(
    TRUSTED,
    variant="owner-noised",
    channel=NOISED_COUNTS,
    mechanism="gaussian-search",
    privacy_delta=1e-6,
    noise_variance=search_variance(bins=BINS, epsilon=1.0, delta=1e-6),
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


def drive(procedure: Any, answer: Any) -> Certificate:
    tally = None
    while True:
        try:
            query = procedure.send(tally)
        except StopIteration as finished:
            certificate: Certificate = finished.value
            return certificate
        tally = answer(query)
