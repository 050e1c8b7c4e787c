"""The plan of a campaign and its signature.

The digest of a plan's bytes names the campaign everywhere.
"""

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from confide.protocol.chain_cost import ChainCost
from confide.protocol.channels.base import MOST_LABELS
from confide.protocol.errors import BadInput, Refused, check_probability
from confide.protocol.methods.base import MOST_RECORDS, Query, Terms
from confide.protocol.methods.registry import METHODS
from confide.protocol.methods.sealed import SealedQuery
from confide.protocol.methods.thresholds import check_slice
from confide.protocol.scores.registry import check_text, find_score
from confide.protocol.scores.task import Task
from confide.protocol.shuffling import Shuffling, check_apart
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION, parse, serialise

# Signatures cover this prefix too, so that a signature over a plan means nothing anywhere else.
_SIGNED = b"confide plan v2\0"
MOST_CALIBRATIONS = 100


@dataclass(frozen=True)
class Plan:
    """The questions and conditions of a campaign: the common fields and the terms of its method.

    Every field is public and covered by the signature. If a campaign of this federation trained the
    model, `training` is the digest of its plan. `share` is the slice of [0, 1) of the records that
    take part; a training and the calibrations of its model split records by the same positions
    (`split_name`), so that disjoint slices are disjoint records. `chain` has the costs of all
    calibrations of a chain; a plan without them calibrates alone. `score` is the whole text of a
    score, and `labels` is 0 if it is one of numbers. With `shuffling`, reports reach the aggregator
    through a shuffler only.
    """

    campaign: str
    terms: Terms
    score: str
    labels: int
    alpha: float
    expected_records: int
    minimum_reports: int
    model: bytes
    issued: datetime
    expires: datetime
    minimum_owners: int = 0
    training: bytes = b""
    share: tuple[float, ...] = ()
    chain: tuple[ChainCost, ...] = ()
    shuffling: Shuffling | None = None

    def __post_init__(self) -> None:
        check_text(self.score)
        check_probability("alpha", self.alpha)
        find_score(self.score).check_labels(self.labels)
        if self.labels > MOST_LABELS:
            raise BadInput(f"labels is {self.labels}; accepted are at most {MOST_LABELS}")
        if not 1 <= len(self.campaign) <= 200 or not self.campaign.isprintable():
            raise BadInput(
                f"campaign is {self.campaign[:200]!r}; accepted are 1 to 200 printable characters"
            )
        counts = self.expected_records, self.minimum_reports, self.max_corrupt, self.minimum_owners
        if self.expected_records < 1 or min(counts) < 0 or max(counts) > MOST_RECORDS:
            raise BadInput(
                f"expected_records {self.expected_records}, minimum_reports "
                f"{self.minimum_reports}, max_corrupt {self.max_corrupt}, minimum_owners "
                f"{self.minimum_owners}; accepted are at least 1, 0, 0 and 0, and at most "
                f"{MOST_RECORDS}"
            )
        if len(self.model) != 32:
            raise BadInput(f"model digest has {len(self.model)} bytes; accepted is a SHA-256 of 32")
        if self.expires <= self.issued:
            raise BadInput(
                f"plan expires {self.expires} and was issued {self.issued}; it must expire later"
            )
        if len(self.training) not in (0, 32):
            raise BadInput(
                f"training has {len(self.training)} bytes; accepted is the digest of a plan, 32"
            )
        if self.training and self.terms.features is not None:
            # Its records would be split by other positions than those of its calibrations.
            raise BadInput(
                f"a plan of training names the training {self.training.hex()}; accepted is that in "
                "plans that calibrate its model"
            )
        if self.terms.on_training_records and not self.training:
            raise BadInput(
                f"a plan of {self.method} names no training; accepted is the digest of the plan "
                "that trained its model on the same records"
            )
        if self.share:
            if len(self.share) != 2:
                raise BadInput(f"share is {self.share}; accepted are two numbers, or none")
            check_slice(*self.share)
        if self.chain:
            self._check_chain()
        if self.shuffling is not None:
            self._check_shuffling(self.shuffling)
        self._check_method()

    def _check_method(self) -> None:
        if self.task.of_risk and not self.terms.of_risks:
            found = f"score is {self.score!r} with method {self.method}"
            raise BadInput(f"{found}; accepted is bits, central or monitor")
        if self.task.of_risk and self.terms.by_label:
            raise BadInput(f"by is class with score {self.score!r}; accepted is by group, or none")
        self.terms.check(labels=self.labels, alpha=self.alpha)

    def _check_chain(self) -> None:
        if not self.training or self.cost not in self.chain or len(self.chain) > MOST_CALIBRATIONS:
            raise BadInput(
                f"chain has {len(self.chain)} calibrations; accepted are up to "
                f"{MOST_CALIBRATIONS} of one training, with {self.cost} among them"
            )
        for one in self.chain:
            one.check()

    def _check_shuffling(self, shuffling: Shuffling) -> None:
        if not self.terms.row_bytes:
            raise BadInput(
                f"a shuffler is given for a plan of {self.method}, whose messages tell owners or "
                "records apart; accepted is one for bits"
            )
        if shuffling.crowd <= self.max_corrupt:
            raise BadInput(
                f"crowd is {shuffling.crowd} and max_corrupt {self.max_corrupt}; accepted is a "
                "crowd with honest reports in it"
            )

    @property
    def cost(self) -> ChainCost:
        """What this campaign costs each record that it asks."""
        return ChainCost(f"{self.method}:{self.variant}", self.epsilon, self.privacy_delta)

    @property
    def task(self) -> Task:
        """What is predicted: labels (classification), or numbers (regression)."""
        return find_score(self.score).task

    @property
    def method(self) -> str:
        """The name of the method that answers the plan."""
        return self.terms.method

    @property
    def variant(self) -> str:
        """The form of the method."""
        return self.terms.variant

    @property
    def epsilon(self) -> float:
        """The privacy loss allowed a record."""
        return self.terms.epsilon

    @property
    def privacy_delta(self) -> float:
        """The delta of that loss; 0 if it is pure."""
        return self.terms.privacy_delta

    @property
    def max_corrupt(self) -> int:
        """The number of reports that may be lies."""
        return self.terms.max_corrupt

    def to_bytes(self) -> bytes:
        """Return the bytes that are signed, whose digest names the campaign."""
        shared = {name: getattr(self, name) for name in _SHARED}
        shared["chain"] = [one._asdict() for one in self.chain]
        shared["shuffling"] = None if self.shuffling is None else asdict(self.shuffling)
        moments = {name: int(getattr(self, name).timestamp()) for name in ("issued", "expires")}
        own = {"method": self.method, "terms": self.terms.to_bytes()}
        return serialise(wire.Plan(version=VERSION, **shared | moments | own))

    @staticmethod
    def from_bytes(data: bytes) -> "Plan":
        """Read a plan from bytes; refuse anything else with a code."""
        message = parse(wire.Plan, data)
        if message.method not in METHODS:
            raise Refused(wire.Code.MALFORMED)
        shared = {name: getattr(message, name) for name in _SHARED}
        shared["share"] = tuple(shared["share"])
        shared["chain"] = tuple(ChainCost(x.campaign, x.epsilon, x.delta) for x in message.chain)
        try:
            named = message.HasField("shuffling")
            shared["shuffling"] = Shuffling.of(message.shuffling) if named else None
            for name in ("issued", "expires"):
                shared[name] = datetime.fromtimestamp(shared[name], UTC)
            return Plan(terms=METHODS[message.method].from_bytes(message.terms), **shared)
        except (BadInput, ValueError, OverflowError, OSError):
            raise Refused(wire.Code.MALFORMED) from None


_SHARED = [field.name for field in fields(Plan) if field.name != "terms"]


def digest(plan_bytes: bytes) -> bytes:
    """Return the SHA-256 digest that names a campaign on the wire and in every ledger."""
    return hashlib.sha256(plan_bytes).digest()


def split_name(plan: Plan, plan_digest: bytes) -> bytes:
    """Return what names the split of records that a plan's share is a part of."""
    return plan.training or plan_digest


def sign_plan(plan: Plan, key: Ed25519PrivateKey) -> bytes:
    """Sign a plan and return the serialised SignedPlan."""
    data = plan.to_bytes()
    public, signature = key.public_key().public_bytes_raw(), key.sign(_SIGNED + data)
    return serialise(wire.SignedPlan(plan=data, key=public, signature=signature))


def open_plan(signed: bytes, *, trusted: Collection[bytes], now: datetime) -> tuple[Plan, bytes]:
    """Check and read a signed plan; return the plan and its digest.

    Refuses, with a code, a plan unless a trusted key signed exactly these bytes and it is valid
    now.
    """
    message = parse(wire.SignedPlan, signed)
    if not message.key or not message.signature:
        raise Refused(wire.Code.UNSIGNED)
    if message.key not in trusted:
        raise Refused(wire.Code.UNKNOWN_KEY)
    plan, name = _signed_plan(signed)
    check_apart(plan.shuffling, signer=message.key)
    if now < plan.issued:
        raise Refused(wire.Code.NOT_YET_VALID)
    if now >= plan.expires:
        raise Refused(wire.Code.EXPIRED)
    return plan, name


@lru_cache(maxsize=8)
def _signed_plan(signed: bytes) -> tuple[Plan, bytes]:
    """Read the plan of a signed plan, and its digest, if the signature is that of its key.

    An answer opens its plan twice, and a process of simulated owners for each of them: what
    follows from the bytes alone is found out once.
    """
    message = parse(wire.SignedPlan, signed)
    try:
        Ed25519PublicKey.from_public_bytes(message.key).verify(
            message.signature, _SIGNED + message.plan
        )
    except (InvalidSignature, ValueError):
        raise Refused(wire.Code.BAD_SIGNATURE) from None
    return Plan.from_bytes(message.plan), digest(message.plan)


def signer(signed: bytes) -> bytes:
    """Return the public key that a signed plan was signed with."""
    return parse(wire.SignedPlan, signed).key


def write_query(query: Query, *, plan: bytes, round_: int) -> bytes:
    """Serialise a query of the campaign with this plan digest."""
    return serialise(wire.Query(version=VERSION, plan=plan, round=round_, body=query.to_body()))


def read_query(data: bytes, *, plan: Plan, plan_digest: bytes) -> tuple[Query, int]:
    """Return the query and its round if it belongs to this plan; else refuse it with a code.

    If the plan has a shuffler, answers to the query are sealed.
    """
    message = parse(wire.Query, data)
    if message.plan != plan_digest:
        raise Refused(wire.Code.WRONG_PLAN)
    try:
        query = plan.terms.read_query(message.body, labels=plan.labels)
        if plan.shuffling is not None:
            recipient = plan.shuffling.recipient
            query = SealedQuery.of(
                query, recipient=recipient, plan=plan_digest, round_=message.round
            )
    except BadInput:
        raise Refused(wire.Code.MALFORMED) from None
    if query.whole and message.round >= plan.terms.rounds:
        raise Refused(wire.Code.MALFORMED)
    return query, message.round


def round_of(data: bytes) -> int:
    """Return the round that a query says it is of; refuse what is no query with a code."""
    return parse(wire.Query, data).round


def query_digest(data: bytes) -> bytes:
    """Return the digest that names a query in ledgers: the same bytes are the same query."""
    return hashlib.sha256(data).digest()
