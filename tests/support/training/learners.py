"""Owners that take part in a federated training, and its plan."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.client.training.computing import USUAL, Computing
from confide.protocol.exact.sampling import Entropy, SeededEntropy
from confide.protocol.methods.training.query import TrainingQuery
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest, write_query
from confide.protocol.privacy.renyi import training_noise
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse
from tests.support.networks.stacks import layered
from tests.support.owners.owners import NOW, PLAN, POLICY, signed

ROUNDS, LOCAL, OWNERS = 6, 8, 3
DELTA = 1e-5
TERMS = TrainingTerms(
    epsilon=4.0,
    privacy_delta=DELTA,
    **layered(4, 3),
    noise_multiplier=training_noise(
        epsilon=4.0, delta=DELTA, sampling_rate=0.2, steps=ROUNDS * LOCAL
    ),
    sampling_rate=0.2,
    rounds=ROUNDS,
    local_steps=LOCAL,
    clip=1.0,
    batch=80.0,
    learning_rate=4.0,
)
TRAINING = replace(PLAN, labels=3, terms=TERMS)
LEARNS = replace(
    POLICY, methods=frozenset({"training"}), delta_per_record=1e-5, delta_per_campaign=1e-5
)


def people(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Three labels, each with a feature of its own that is high."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    features = rng.random((n, 4)) * 0.5
    features[np.arange(n), labels] += 0.5
    return features, labels


def learner(folder: Path, seed: int, policy: Policy | Callable[[], Policy] = LEARNS) -> Respondent:
    folder.mkdir(exist_ok=True)
    features, labels = people(400, seed)
    names = tuple(f"{seed}/{i}".encode() for i in range(400))
    return Respondent(
        records=Records(names, None, labels, None, features),
        policy=policy if callable(policy) else lambda: policy,
        ledger=Ledger(folder / "ledger.sqlite"),
        secret=bytes([seed]) * 32,
        entropy=SeededEntropy(seed),
        now=lambda: NOW,
    )


def answer(one: Respondent, plan: Plan, weights: Any, round_: int) -> wire.Answer:
    assert isinstance(plan.terms, TrainingTerms)
    query = TrainingQuery(plan.terms, weights)
    written = write_query(query, plan=digest(plan.to_bytes()), round_=round_)
    return parse(wire.Answer, one.answer(signed(plan), written))


def rows(
    n: int,
    features: Any,
    labels: Any,
    folder: Path,
    *,
    policy: Policy | Callable[[], Policy] = LEARNS,
    secret: int = 1,
    entropy: Entropy | None = None,
    computing: Computing = USUAL,
) -> Respondent:
    folder.mkdir(exist_ok=True)
    return Respondent(
        records=Records(tuple(str(i).encode() for i in range(n)), None, labels, None, features),
        policy=policy if callable(policy) else lambda: policy,
        ledger=Ledger(folder / "ledger.sqlite"),
        secret=bytes([secret]) * 32,
        entropy=entropy or SeededEntropy(1),
        now=lambda: NOW,
        computing=computing,
    )
