"""Verify what a card says about the training of its model, from the training's plan."""

import math
from collections.abc import Iterator

import numpy as np

from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.findings import Finding, same
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.registry import METHODS
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest

_MOST_ORDER = 512
# What two computations of the same epsilon in floating point may differ by.
_TOLERANCE = 1e-6
_DISJOINT = "each record either trained the model or calibrated it"
_SAME = "the same records trained the model and calibrated it, and pay for both"


def chain(formal: Layer, plan: Plan) -> Iterator[Finding]:
    """Check that plan, training and their costs belong together."""
    found = formal.get("chain")
    yield Finding(
        "chain", (found is None) == (not plan.training), "cards of a trained model have one"
    )
    if found is None or not plan.training:
        return
    data = bytes.fromhex(found["training"])
    yield same("chain/training", digest(data).hex(), plan.training.hex())
    training = Plan.from_bytes(data)
    terms = TrainingTerms.of(training.terms)
    yield same("chain/labels", training.labels, plan.labels)
    both = plan.terms.on_training_records
    yield _records(found, plan, training)
    if both:
        yield from _numbers(FullDataTerms.of(plan.terms), terms)
    loss = _loss(terms, delta=found["delta_train"])
    yield Finding(
        "chain/epsilon_loss",
        loss * (1 - _TOLERANCE) <= found["epsilon_loss"] <= loss * (1 + _TOLERANCE),
        f"{loss:.6g} of epsilon_train is for noised losses",
    )
    least = loss + replaced_epsilon(
        noise=terms.noise_multiplier,
        rate=terms.sampling_rate,
        steps=terms.rounds * terms.local_steps,
        delta=found["delta_train"] * (1 - terms.loss_share),
    )
    yield Finding(
        "chain/epsilon_train",
        found["epsilon_train"] >= least * (1 - _TOLERANCE),
        f"at least {least:.6g} at delta {found['delta_train']:g}",
    )
    stated = {
        "delta_train": training.privacy_delta,
        "epsilon_calibration": plan.epsilon,
        "delta_calibration": plan.privacy_delta,
        "adjacency": "replace-one",
    }
    for name, value in stated.items():
        yield same(f"chain/{name}", found[name], value)
    yield from _whole(found, plan)


def _loss(terms: TrainingTerms, *, delta: float) -> float:
    """What the noised numbers of wrong predictions cost: one a round, which a record moves by 1."""
    if not terms.loss_share:
        return 0.0
    return added_epsilon(
        noise=terms.loss_noise, rate=1.0, steps=terms.rounds, delta=delta * terms.loss_share
    )


def _whole(found: Layer, plan: Plan) -> Iterator[Finding]:
    """Check what a record pays in the whole chain, at most.

    Those that trained pay for that and for all calibrations on them, the others for the others.
    """
    own = (f"{plan.method}:{plan.variant}", plan.epsilon, plan.privacy_delta)
    costs = list(plan.chain or (own,))
    listed = [{"campaign": one[0], "epsilon": one[1], "delta": one[2]} for one in costs]
    yield same("chain/calibrations", found["calibrations"], listed)
    trained = [METHODS[name.partition(":")[0]].on_training_records for name, _, _ in costs]
    for place, name in ((1, "epsilon"), (2, "delta")):
        paid = {True: found[f"{name}_train"], False: 0.0}
        for one, both in zip(costs, trained, strict=True):
            paid[both] += one[place]
        yield same(f"chain/{name}", found[name], max(paid.values()))


def _records(found: Layer, plan: Plan, training: Plan) -> Finding:
    """Check that calibration and training used the same records, or disjoint ones."""
    first, last = plan.share or (0.0, 1.0)
    start, stop = training.share or (0.0, 1.0)
    if plan.terms.on_training_records:
        holds = (first, last) == (start, stop) and found["records"] == _SAME
        return Finding("chain/records", holds, _SAME)
    apart = last <= start or stop <= first
    return Finding("chain/records", apart and found["records"] == _DISJOINT, _DISJOINT)


def _numbers(terms: FullDataTerms, training: TrainingTerms) -> Iterator[Finding]:
    """Check that the calibration was planned for this training."""
    planned = {
        "training_noise": training.noise_multiplier,
        "training_rate": training.sampling_rate,
        "training_steps": training.rounds * training.local_steps,
        "training_delta": training.privacy_delta,
    }
    yield same("chain/epsilon_loss", training.loss_share, 0.0)
    for name, value in planned.items():
        yield same(f"plan/{name}", getattr(terms, name), value)


def replaced_epsilon(*, noise: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon of DP-SGD when one record is replaced, from the Renyi divergences of its steps.

    A step's divergence at an integer order is the binomial sum of Mironov, Talwar and Zhang (2019).
    That of a replacement at order a m / (a + m - 1) is at most m / (m - 1) times the one at a, plus
    the one at m. Canonne, Kamath and Steinke (2020) convert it.
    """
    steps_cost = _all_orders(noise=noise, rate=rate, steps=steps)
    best = math.inf
    for a in steps_cost:
        for m in (a - 1, a, a + 1):
            if m in steps_cost:
                cost = m / (m - 1) * steps_cost[a] + steps_cost[m]
                best = min(best, _converted(cost, a * m / (a + m - 1), delta))
    return best


def added_epsilon(*, noise: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon of DP-SGD when one record is added or removed, by the same divergences."""
    steps_cost = _all_orders(noise=noise, rate=rate, steps=steps)
    return min(_converted(cost, order, delta) for order, cost in steps_cost.items())


def _all_orders(*, noise: float, rate: float, steps: int) -> dict[int, float]:
    orders = range(2, _MOST_ORDER + 1)
    return {a: steps * _divergence(a, noise=noise, rate=rate) for a in orders}


def _converted(cost: float, order: float, delta: float) -> float:
    left = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
    return max(cost + left, 0.0)


def _divergence(order: int, *, noise: float, rate: float) -> float:
    if rate == 1:
        return order / (2 * noise**2)
    k = np.arange(order + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, order + 1)))])
    terms = (
        factorials[order]
        - factorials[k]
        - factorials[order - k]
        + (order - k) * math.log1p(-rate)
        + k * math.log(rate)
        + k * (k - 1) / (2 * noise**2)
    )
    largest = float(terms.max())
    return (largest + math.log(float(np.exp(terms - largest).sum()))) / (order - 1)
