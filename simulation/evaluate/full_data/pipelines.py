"""Methods that train and calibrate, each a function from terms to a pipeline.

A pipeline is made from public numbers alone; running it adds nothing to its promise. Full-data
methods train on all records and calibrate on the same; split methods use disjoint halves.
"""

from collections.abc import Callable

from confide.aggregator.procedures.full_data.levels import (
    CONDITIONAL,
    HEURISTIC_BUFFER,
    Stability,
    Transfer,
    black_box_floor,
    differential_rank,
    dpcp_level,
    never_selected_bound,
)
from confide.aggregator.procedures.full_data.published_bounds import theorem_12, theorem_15
from confide.aggregator.quantiles.base import ADD_REMOVE, ASYMPTOTIC, CERTIFIED, UNCERTIFIED
from confide.aggregator.quantiles.gaussian import GaussianSearch, NoisyMidpoint
from confide.aggregator.quantiles.histogram import certified_rank, check_rank
from confide.aggregator.quantiles.published import Dpcp, Pps, dpcp_rank, pps_gamma, pps_rank
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.errors import BadInput
from confide.protocol.privacy.budgets import Budget, remaining
from confide.protocol.privacy.losses import (
    AccountedMechanism,
    DiscreteGaussian,
    Pure,
    SampledGaussian,
)
from confide.protocol.privacy.profiles import Profile, parallel
from confide.simulation.evaluate.full_data.learners import Planned
from confide.simulation.evaluate.full_data.terms import (
    MIXED,
    Pipeline,
    PipelineTerms,
    Promise,
)

# Rounding of a noise scale into a rho, from the private side.
_SHY = 1 - 1e-12


def _exact(method: str, terms: PipelineTerms, *, halves: bool, promise: Promise) -> Pipeline:
    rank = terms.nominal_rank(terms.n - terms.n // 2 if halves else terms.n)
    return Pipeline(method, rank, promise, halves=halves)


def split_cp(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """Split conformal prediction without privacy."""
    return _exact("split-cp", terms, halves=True, promise=Promise(CERTIFIED, level=1 - terms.alpha))


def naive(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """The exact conformal quantile of in-sample scores, as if they were not."""
    return _exact("naive", terms, halves=False, promise=Promise(UNCERTIFIED))


def _full(terms: PipelineTerms, plan: Planned) -> tuple[AccountedMechanism, Profile]:
    training = plan.mechanism(terms.n, terms.part(terms.share))
    return training, terms.scaled.then(training)


def differential(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """Differential CP (DPCP section 3.2): private training, exact quantile at a lowered level.

    The threshold is not private.
    """
    training, spent = _full(terms, plan)
    delta, n = terms.budget.delta, terms.n
    epsilon = spent.epsilon(delta)
    level = dpcp_level(alpha=terms.alpha, epsilon=epsilon, delta=delta)
    bounds = [theorem_12(alpha=terms.alpha, epsilon=epsilon, delta=delta, n=n)]
    if terms.failure is not None:
        bounds.append(theorem_15(alpha=terms.alpha, n=n, failure=terms.failure))
    promise = Promise(CERTIFIED, level=1 - terms.alpha, conditional=tuple(bounds))
    rank = differential_rank(n=terms.n, level=level)
    return Pipeline("differential", rank, promise, training=training)


def dpcp(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """DPCP: level e^-eps1 (alpha - delta), and epsilon - eps1 for its exponential mechanism."""
    training, spent = _full(terms, plan)
    first = terms.scaling + terms.part(terms.share).epsilon
    level = dpcp_level(alpha=terms.alpha, epsilon=first, delta=terms.budget.delta)
    quantile = Dpcp(bins=terms.bins, epsilon=terms.part(1 - terms.share).epsilon)
    rank = dpcp_rank(n=terms.n, level=level)
    if quantile.target(rank) >= terms.n:
        raise BadInput(
            f"n is {terms.n}; dpcp at level {level:.4g} needs more than 2/(epsilon level) records"
        )
    promise, total = Promise(CONDITIONAL), spent.then(Pure(quantile.epsilon))
    return Pipeline(
        "dpcp", rank, promise, training=training, quantile=quantile, profile=total, adjacency=MIXED
    )


def _noisy_counts(terms: PipelineTerms, spent: Profile) -> tuple[DiscreteGaussian, float]:
    """The least noise on the counts of a bisection that the budget has left, and its rho."""
    queries = (terms.bins - 1).bit_length()
    sigma = 1 / remaining(terms.budget, lambda x: DiscreteGaussian(1 / x, queries), spent=spent)
    return DiscreteGaussian(sigma, queries), queries / (2 * sigma**2) * _SHY


def _floors(
    terms: PipelineTerms, training: AccountedMechanism, spent: Profile
) -> tuple[float, float | None]:
    floor = black_box_floor(spent, alpha=terms.alpha, beta=terms.beta)
    # A record that was never drawn has still been scaled by.
    if not isinstance(training, SampledGaussian) or terms.scaling:
        return floor, None
    return floor, never_selected_bound(
        alpha=terms.alpha,
        beta=terms.beta,
        n=terms.n,
        sampling_rate=training.sampling_rate,
        steps=training.steps,
    )


def scp_f(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """DP-SCP-F: the nominal rank, a buffer and the search's offset.

    Only floors of its coverage are known.
    """
    training, spent = _full(terms, plan)
    cost, rho = _noisy_counts(terms, spent)
    floor, never = _floors(terms, training, spent)
    stability = _stability(terms, training)
    buffer = terms.buffer if stability is None else stability.buffer(terms.n)
    rank = terms.nominal_rank(terms.n)
    check_rank(rank + buffer, terms.n)
    promise = Promise(
        "floors only" if stability is None else CONDITIONAL,
        black_box_floor=floor,
        never_selected_bound=never,
        stability_bound=None
        if stability is None
        else stability.bound(alpha=terms.alpha, beta=terms.beta, n=terms.n),
        buffer_is=HEURISTIC_BUFFER if stability is None else "Theorem 3's",
    )
    quantile = GaussianSearch(
        bins=terms.bins, beta=terms.beta, rho=rho, buffer=buffer, adjacency=ADD_REMOVE
    )
    return Pipeline(
        "scp-f",
        rank,
        promise,
        training=training,
        quantile=quantile,
        profile=spent.then(cost),
        adjacency=ADD_REMOVE,
    )


def _stability(terms: PipelineTerms, training: AccountedMechanism) -> Stability | None:
    """The constants of Theorem 3: as given, or by Theorem 4 from those of the loss."""
    if terms.smoothness is None:
        return terms.stability
    if terms.scaling or not isinstance(training, SampledGaussian):
        raise BadInput(
            "SCP Theorem 4 is about steps of gradient descent on features as they are; accepted "
            "is a network without private scaling"
        )
    return terms.smoothness.stability(training, n=terms.n)


def scp_a(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """DP-SCP-A: the same search without buffer and offset."""
    training, spent = _full(terms, plan)
    cost, rho = _noisy_counts(terms, spent)
    rank = terms.nominal_rank(terms.n)
    quantile = GaussianSearch(bins=terms.bins, rho=rho, variant="A", adjacency=ADD_REMOVE)
    return Pipeline(
        "scp-a",
        rank,
        Promise(ASYMPTOTIC),
        training=training,
        quantile=quantile,
        profile=spent.then(cost),
        adjacency=ADD_REMOVE,
    )


def certified(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """Certified full-data: a rank that the training's whole profile carries to 1 - alpha.

    The quantile is taken by the rank-exponential mechanism.
    """
    training, spent = _full(terms, plan)
    transfer = Transfer.of(spent, alpha=terms.alpha, beta=terms.beta)
    quantile = _one_sided(terms, spent)
    promise = Promise(CERTIFIED, level=1 - terms.alpha)
    total = spent.then(Pure(quantile.epsilon))
    return Pipeline(
        "certified",
        transfer.rank(terms.n),
        promise,
        training=training,
        quantile=quantile,
        profile=total,
        adjacency=ADD_REMOVE,
    )


def _one_sided(terms: PipelineTerms, spent: Profile) -> RankExponential:
    epsilon = remaining(terms.budget, Pure, spent=spent)
    return RankExponential(bins=terms.bins, beta=terms.beta, epsilon=epsilon, adjacency=ADD_REMOVE)


def _halves(
    terms: PipelineTerms, plan: Planned, budget: Budget
) -> tuple[AccountedMechanism, Profile, int]:
    training = plan.mechanism(terms.n // 2, budget)
    return training, terms.scaled.then(training), terms.n - terms.n // 2


def split(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """DP-Split as published: disjoint halves, the whole budget for each, noisy midpoint search."""
    training, spent, rest = _halves(terms, plan, terms.part(1.0))
    cost, rho = _noisy_counts(terms, Profile())
    rank = terms.nominal_rank(rest)
    quantile = NoisyMidpoint(bins=terms.bins, rho=rho, adjacency=ADD_REMOVE)
    total = parallel(spent, Profile().then(cost))
    return Pipeline(
        "split",
        rank,
        Promise(UNCERTIFIED),
        training=training,
        quantile=quantile,
        halves=True,
        profile=total,
        adjacency=ADD_REMOVE,
    )


def split_certified(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """DP-Split with the rank-exponential mechanism: the plain private split, certified."""
    training, spent, rest = _halves(terms, plan, terms.part(1.0))
    quantile = _one_sided(terms, Profile())
    rank = certified_rank(n=rest, alpha=terms.alpha, beta=terms.beta)
    total = parallel(spent, Profile().then(Pure(quantile.epsilon)))
    promise = Promise(CERTIFIED, level=1 - terms.alpha)
    return Pipeline(
        "split-certified",
        rank,
        promise,
        training=training,
        quantile=quantile,
        halves=True,
        profile=total,
        adjacency=ADD_REMOVE,
    )


def pscp(terms: PipelineTerms, plan: Planned) -> Pipeline:
    """PSCP, DPCP's baseline: halves, half the epsilon for each, PPS with its optimal gamma."""
    training, spent, rest = _halves(terms, plan, terms.part(0.5))
    epsilon = terms.part(0.5).epsilon
    gamma = pps_gamma(n=rest, alpha=terms.alpha, epsilon=epsilon)
    quantile = Pps(bins=terms.bins, beta=gamma * terms.alpha, epsilon=epsilon)
    promise = Promise(CERTIFIED, level=1 - terms.alpha)
    rank = pps_rank(n=rest, alpha=terms.alpha, gamma=gamma)
    return Pipeline(
        "pscp",
        rank,
        promise,
        training=training,
        quantile=quantile,
        halves=True,
        profile=spent.then(Pure(epsilon)),
        adjacency=MIXED,
    )


PIPELINES: dict[str, Callable[[PipelineTerms, Planned], Pipeline]] = {
    "certified": certified,
    "dpcp": dpcp,
    "scp-f": scp_f,
    "scp-a": scp_a,
    "split": split,
    "split-certified": split_certified,
    "pscp": pscp,
    "differential": differential,
    "split-cp": split_cp,
    "naive": naive,
}
