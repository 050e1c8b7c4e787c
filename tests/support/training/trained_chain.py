"""A chain in process: three owners train a linear network on a part of their records."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import Outcome, run_campaign, run_training
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.architectures.export import to_onnx
from confide.protocol.exact.sampling import OPERATING_SYSTEM, SeededEntropy
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan, digest
from tests.support.owners.owners import NOW, signed
from tests.support.training.learners import LEARNS, TRAINING, people

OWNERS, N, SPLIT = 3, 400, 0.6
TRAINS = replace(TRAINING, share=(0.0, SPLIT))
ALLOWS = replace(
    LEARNS,
    methods=frozenset({"training", "bits", "central", "full-data"}),
    delta_per_record=1e-4,
    delta_per_campaign=1e-4,
    epsilon_per_record=40.0,
    exact_counts_may_leave=True,
    trained_models=True,
)
BITS = BitTerms(variant="certified", epsilon=4.0, delta=0.1)
COUNTS = CentralTerms(
    variant="trusted", mechanism="rank-exponential", epsilon=1.0, bins=256, beta=0.002
)


def owner(
    folder: Path,
    seed: int,
    policy: Policy,
    model: bytes | None = None,
    *,
    persons: tuple[bytes, ...] | None = None,
) -> Respondent:
    features, labels = people(N, seed)
    folder.mkdir(exist_ok=True)
    names = tuple(f"{seed}/{i}".encode() for i in range(N))
    return Respondent(
        records=Records(names, None, labels, None, features, persons),
        policy=lambda: policy,
        ledger=Ledger(folder / f"{seed}.sqlite"),
        secret=bytes([seed]) * 32,
        entropy=SeededEntropy(seed, (model or b"").hex()[:64]),
        now=lambda: NOW,
        model=None if model is None else Model.of(model),
    )


def asked(plan: Plan, owners: list[Respondent]) -> Callable[[bytes], Iterable[Sent]]:
    def ask(query: bytes) -> Iterable[Sent]:
        for i, one in enumerate(owners):
            yield Sent(i.to_bytes(8, "big"), one.answer(signed(plan), query))

    return ask


@dataclass(frozen=True)
class Chain:
    folder: Path
    model: bytes

    def plan(self, terms: Any, **changes: Any) -> Plan:
        given = {
            "terms": terms,
            "model": hashlib.sha256(self.model).digest(),
            "training": digest(TRAINS.to_bytes()),
            "share": (SPLIT, 1.0),
            "minimum_reports": 50,
            "expected_records": 480,
            "campaign": f"{terms.method} of a trained model",
        }
        return replace(TRAINS, **(given | changes))

    def owners(self, policy: Policy = ALLOWS) -> list[Respondent]:
        return [owner(self.folder, seed, policy, self.model) for seed in range(1, OWNERS + 1)]

    def outcome(self, plan: Plan) -> Outcome:
        found = run_campaign(plan, asked(plan, self.owners()))
        return replace(found, certificate=replace(found.certificate, randomness=OPERATING_SYSTEM))


@cache
def chain() -> Chain:
    folder = Path(mkdtemp(prefix="confide-chain-"))
    owners = [owner(folder, seed, ALLOWS) for seed in range(1, OWNERS + 1)]
    learned, _ = run_training(TRAINS, asked(TRAINS, owners))
    terms = TrainingTerms.of(TRAINS.terms)
    return Chain(folder, to_onnx(terms.network(), learned.weights, centre=terms.centre))
