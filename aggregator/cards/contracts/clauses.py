"""Judges, before any record is seen, whether a configuration keeps a contract.

Every clause must hold: the configuration is certified, its rank exists, its level reaches the
target, and its budgets and inflation stay within the contract's.
"""

import math
from fractions import Fraction

from confide.aggregator.cards.contracts.contract import Configuration, Contract, decimal
from confide.aggregator.procedures.counts.central import noise_offset
from confide.aggregator.quantiles.base import REPLACE_ONE
from confide.aggregator.quantiles.histogram import tail_rank
from confide.aggregator.quantiles.registry import within_budget
from confide.protocol.cards.card import Layer
from confide.protocol.errors import BadInput
from confide.protocol.privacy.zcdp import search_rounds, search_variance


def judge(contract: Contract, configuration: Configuration) -> Layer:
    """Judge a configuration, and return it with its rank, level, inflation and clauses."""
    certified, rank, inflation = _certified(contract, configuration)
    part = 0.0 if contract.failure_probability else contract.beta
    level = (
        float(max(Fraction(0), decimal(configuration.gamma) - decimal(part))) if certified else None
    )
    share = None if inflation is None else inflation / configuration.n
    delta = decimal(configuration.delta_train) + decimal(configuration.delta_calibration)
    flags = {
        "certified": certified,
        "rank": rank <= configuration.n,
        "coverage": level is not None and level >= contract.coverage,
        "epsilon_train": configuration.epsilon_train <= contract.epsilon_train,
        "epsilon_calibration": configuration.epsilon_calibration <= contract.epsilon_calibration,
        "delta": delta <= decimal(contract.delta),
        "inflation": contract.max_inflation is None
        or (share is not None and share <= contract.max_inflation),
    }
    return configuration.layer() | {
        "rank": rank,
        "level": level,
        "inflation_ranks": inflation,
        "inflation_share": share,
        "coverage_at_most": _coverage_at_most(
            contract, configuration.n, rank=rank, inflation=inflation
        ),
        "flags": flags,
        "feasible": all(flags.values()),
    }


def _coverage_at_most(
    contract: Contract, n: int, *, rank: int, inflation: int | None
) -> float | None:
    """The other side of the promise: (rank + inflation)/(n + 1) + beta, without one bin's share.

    But for beta the threshold is at or below the edge of the bin that holds the score of rank +
    inflation. A new score comes before that one with probability (rank + inflation)/(n + 1) at
    most; what falls into the same bin is added by whoever knows its share (PPS Theorem 3, with the
    ranks of the integers drawn in place of its logarithms). Without a beta nothing is stated.
    """
    if inflation is None or not contract.beta:
        return None
    bound = Fraction(rank + inflation, n + 1) + decimal(contract.beta)
    return float(min(Fraction(1), bound))


def _certified(contract: Contract, configuration: Configuration) -> tuple[bool, int, int | None]:
    """Whether the mechanism certifies a rank, that rank, and its inflation if n records have it."""
    n, gamma = configuration.n, decimal(configuration.gamma)
    rank, delta = math.ceil((n + 1) * gamma), contract.failure_probability
    if delta and contract.beta:
        rank = tail_rank(n=n, alpha=1 - gamma, delta=decimal(delta) - decimal(contract.beta))
    try:
        if configuration.noised_by == "owners":
            offset = _owners_offset(contract, configuration)
            # The number of records of a private part is counted with noise, too.
            times = 4 if configuration.moved > 1 else 2
            return offset is not None, rank, None if offset is None or rank > n else times * offset
        mechanism = within_budget(
            configuration.mechanism,
            bins=configuration.bins,
            beta=contract.beta,
            adjacency=contract.adjacency,
            epsilon=configuration.epsilon_calibration,
            delta=configuration.delta_calibration,
        )
        if not contract.beta:
            rank = mechanism.averaged_rank(n=n, alpha=1 - gamma)
            if delta:
                rank = mechanism.pac_rank(n=n, alpha=1 - gamma, delta=delta)
        if not mechanism.certifies(n=n, rank=rank):
            return False, rank, None
        return True, rank, mechanism.inflation(n=n, rank=rank) if rank <= n else None
    except BadInput:
        return False, rank, None


def _owners_offset(contract: Contract, configuration: Configuration) -> int | None:
    """The ranks allowed for the owners' noise, or None if nothing is certified."""
    least = search_variance(
        bins=configuration.bins,
        epsilon=configuration.epsilon_calibration,
        delta=configuration.delta_calibration,
        moved=configuration.moved,
    )
    variance = configuration.noise_variance or least
    if not contract.beta or contract.adjacency != REPLACE_ONE or variance < least:
        return None
    each = contract.beta / search_rounds(configuration.bins, moved=configuration.moved)
    return noise_offset(variance, configuration.owners, each)
