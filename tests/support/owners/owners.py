"""Data owners for tests: real policies, ledgers on disk, signed plans."""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.aggregator.campaigns.admission import Sent
from confide.client.ledger.ledger import Ledger
from confide.client.policy import Policy
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.exact.sampling import Entropy, SeededEntropy
from confide.protocol.levels import Levels
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.methods.local import LocalTerms
from confide.protocol.plan import Plan, sign_plan
from tests.support.truth.known import label_population

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
MODEL = bytes(32)
K = 5
# The public groups of records.
WARDS = ("north", "south", "west")
BY_WARD: dict[str, Any] = {"group_column": "ward", "groups": WARDS}

POLICY = Policy(
    epsilon_per_record=8.0,
    epsilon_per_campaign=4.0,
    methods=frozenset({"bits", "labels", "pairs"}),
    probabilities_may_leave=True,
    columns_may_leave=frozenset({"ward"}),
    minimum_group=5,
    aggregators=frozenset({PUBLIC}),
    models=frozenset({MODEL}),
)
PLAN = Plan(
    campaign="test",
    terms=BitTerms(variant="certified", epsilon=4.0, delta=0.1),
    score="hps",
    labels=K,
    alpha=0.1,
    expected_records=6_000,
    minimum_reports=100,
    model=MODEL,
    issued=NOW - timedelta(days=1),
    expires=NOW + timedelta(days=30),
)
LABEL_PLAN = replace(
    PLAN, terms=LabelTerms(variant="certified", channel="k-rr", epsilon=4.0, delta=0.1)
)


def changed(plan: Plan, **changes: Any) -> Plan:
    """Return the plan with other values of its own fields or of its terms' fields."""
    names = {field.name for field in fields(plan.terms)}
    own = {name: value for name, value in changes.items() if name in names}
    rest = {name: value for name, value in changes.items() if name not in names}
    if own:
        plan = replace(plan, terms=replace(plan.terms, **own))
    return replace(plan, **rest)


def level_fields(levels: Levels) -> dict[str, Any]:
    """Return the fields of terms that certify these levels."""
    alphas, deltas = zip(*levels, strict=True)
    return {"level_alphas": alphas, "level_deltas": deltas}


def central(plan: Plan) -> CentralTerms:
    """Return the terms of a central plan."""
    assert isinstance(plan.terms, CentralTerms)
    return plan.terms


def channel_of(plan: Plan) -> Any:
    """Return the channel of a local plan."""
    assert isinstance(plan.terms, LocalTerms)
    return plan.terms.make_channel(labels=plan.labels)


def signed(plan: Plan = PLAN, **changes: Any) -> bytes:
    return sign_plan(changed(plan, **changes), KEY)


def records(n: int, seed: int) -> Records:
    probs, labels = label_population(n, K, np.random.default_rng(seed), ties=False)
    names = tuple(f"{seed}/{i}".encode() for i in range(n))
    wards = np.random.default_rng([seed, 1]).choice(np.array(WARDS), n, p=(0.5, 0.4, 0.1))
    return Records(names, probs.astype(np.float32), labels, MODEL, public={"ward": wards})


def scored(given: Records) -> Any:
    """Return the probabilities that records came with."""
    assert given.results is not None
    return given.results


class Repeatable(Respondent):
    """A seeded owner whose draws depend on its seed and the query only, in any process."""

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
    route: bytes = b"",
) -> Respondent:
    folder.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "records": records(n, seed) if held is None else held,
        "policy": lambda: policy,
        "ledger": Ledger(folder / "ledger.sqlite"),
        "secret": bytes([seed]) * 32,
        "now": now,
        "route": route,
    }
    return Repeatable(seed, **given) if entropy is None else Respondent(entropy=entropy, **given)


def asking(plan: bytes, owners: Iterable[Respondent]) -> Callable[[bytes], list[Sent]]:
    """Return a function that asks every owner in turn."""
    everyone = list(owners)
    return lambda query: [
        Sent(bytes([number]), one.answer(plan, query)) for number, one in enumerate(everyone)
    ]
