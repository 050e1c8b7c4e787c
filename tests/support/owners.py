"""Data owners for tests: real policies, ledgers on disk, signed plans."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.admission import Sent
from confide.client.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.reader import Records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import Entropy, SeededEntropy
from confide.protocol.plan import Plan, sign_plan
from tests.support.known import label_population

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
MODEL = bytes(32)
K = 5

POLICY = Policy(
    epsilon_per_record=8.0,
    epsilon_per_campaign=4.0,
    methods=frozenset({"bits", "labels"}),
    features_may_leave=True,
    minimum_group=5,
    aggregators=frozenset({PUBLIC}),
    models=frozenset({MODEL}),
)
PLAN = Plan(
    campaign="test",
    method="bits",
    variant="certified",
    score="hps",
    channel="bit",
    epsilon=4.0,
    labels=K,
    alpha=0.1,
    delta=0.1,
    expected_records=6_000,
    minimum_reports=100,
    model=MODEL,
    issued=NOW - timedelta(days=1),
    expires=NOW + timedelta(days=30),
)
LABEL_PLAN = replace(PLAN, method="labels", channel="k-rr")


def signed(plan: Plan = PLAN, **changes: Any) -> bytes:
    return sign_plan(replace(plan, **changes), KEY)


def records(n: int, seed: int) -> Records:
    probs, labels = label_population(n, K, np.random.default_rng(seed), ties=False)
    names = tuple(f"{seed}/{i}".encode() for i in range(n))
    return Records(names, probs.astype(np.float32), labels, MODEL)


class Repeatable(Respondent):
    """A seeded owner whose draws are a function of its seed and the query, whichever process makes
    them."""

    def __init__(self, seed: int, **given: Any) -> None:
        super().__init__(entropy=SeededEntropy("owner", seed), **given)
        self._seed = seed

    def answer(self, signed_plan: bytes, query: bytes) -> bytes:
        self._entropy = SeededEntropy("owner", self._seed, query.hex())
        return super().answer(signed_plan, query)


def owner(
    folder: Path,
    *,
    seed: int = 0,
    n: int = 2_000,
    policy: Policy = POLICY,
    entropy: Entropy | None = None,
    now: Callable[[], datetime] = lambda: NOW,
    held: Records | None = None,
) -> Respondent:
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "records": records(n, seed) if held is None else held,
        "policy": lambda: policy,
        "ledger": Ledger(folder / "ledger.sqlite"),
        "secret": bytes([seed]) * 32,
        "now": now,
    }
    return Repeatable(seed, **given) if entropy is None else Respondent(entropy=entropy, **given)


def asking(plan: bytes, owners: Iterable[Respondent]) -> Callable[[bytes], list[Sent]]:
    """Ask every owner in turn."""
    everyone = list(owners)
    return lambda query: [
        Sent(bytes([number]), one.answer(plan, query)) for number, one in enumerate(everyone)
    ]
