"""Calibration on the records that trained the model: counts from owners, one private threshold.

Counts are those of the central track, exact for a trusted aggregator or noised by every owner. The
rank is chosen by a rule that knows how private the training was.
"""

from dataclasses import replace

from confide.aggregator.procedures.counts.central import (
    CentralResult,
    Draw,
    counted_rank,
    noised_search,
    top_reason,
)
from confide.aggregator.procedures.full_data.rules import Rule, rule_of
from confide.aggregator.quantiles.histogram import Histogram
from confide.protocol.certificate import MARGINAL, CentralCertificate
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.counts.queries import CountProcedure, HistogramProcedure
from confide.protocol.plan import Plan
from confide.protocol.privacy.zcdp import zcdp_epsilon


def of_plan(plan: Plan, draw: Draw) -> HistogramProcedure | CountProcedure:
    """Make the procedure of a plan of this method; `draw` makes a trusted release and keeps it."""
    terms = FullDataTerms.of(plan.terms)
    rule = rule_of(terms, alpha=plan.alpha)
    # Numbers that give no rank to any number of records are refused before anybody is asked.
    rule.rank(plan.expected_records)
    return trusted(rule, draw=draw) if terms.shows_exact_counts else owner_noised(rule)


def trusted(rule: Rule, *, draw: Draw) -> HistogramProcedure:
    """Sum exact histograms and release once, at the rank of the rule."""
    terms, mechanism = rule.terms, rule.mechanism()
    epsilon = mechanism.privacy.epsilon_at(terms.privacy_delta)
    tally = yield terms.histogram_query
    n = int(tally.counts.sum())
    result = CentralResult(terms, alpha=rule.alpha, epsilon=epsilon, n=n, owners=tally.owners)
    rank, reason = counted_rank(n, lambda: rule.rank(n))
    if rank is None:
        return _promised(rule, result.certificate(bin_=terms.bins - 1, reason=reason))
    release = draw(mechanism, Histogram(tally.counts, terms.edges), rank)
    made = result.certificate(
        bin_=release.bin,
        reason=top_reason(release),
        rank=rank,
        inflation=release.inflation,
        randomness=release.randomness,
    )
    return _promised(rule, made)


def owner_noised(rule: Rule) -> CountProcedure:
    """Search on counts that every owner has noised, for the rank of the rule."""
    terms = rule.terms
    found = yield from noised_search(
        terms,
        rank=lambda n: counted_rank(n, lambda: rule.rank(n)),
        beta=terms.beta if rule.bounded else None,
        buffer=rule.buffer,
    )
    epsilon = zcdp_epsilon(terms.rounds / (2 * terms.noise_variance), terms.privacy_delta)
    result = CentralResult(terms, alpha=rule.alpha, epsilon=epsilon, n=found.n, owners=found.owners)
    made = result.certificate(
        bin_=found.bin, reason=found.reason, rank=found.rank, inflation=found.inflation
    )
    return _promised(rule, made)


def _promised(rule: Rule, certificate: CentralCertificate) -> CentralCertificate:
    """State the rule's promise; the kind says so where nothing is guaranteed, at level 0."""
    promise = rule.promise(certificate.n)
    return replace(
        certificate,
        kind=promise.status if promise.level is None else MARGINAL,
        level=promise.level or 0.0,
        assumptions=promise.assumptions,
        delta=None,
    )
