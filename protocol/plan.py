"""The plan of a campaign, and its signature. The digest of a plan's bytes names the campaign
everywhere."""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.message import DecodeError

from confide.protocol.channels.base import MOST_LABELS, Channel, LabelChannel
from confide.protocol.channels.kinds import LABEL_CHANNELS, Bit
from confide.protocol.errors import BadInput, Refused, check_epsilon, check_probability
from confide.protocol.exact.grids import check_bins
from confide.protocol.methods.training import Terms
from confide.protocol.privacy.zcdp import search_steps, zcdp_epsilon
from confide.protocol.scores.classification import SCORES
from confide.protocol.wire import wire_pb2 as wire

AnyMessage = TypeVar(
    "AnyMessage", wire.Plan, wire.SignedPlan, wire.Query, wire.ReportBatch, wire.Answer
)

VERSION = 1
# Signatures cover this prefix too, so that a signature over a plan means nothing anywhere else.
_SIGNED = b"confide plan v1\0"
LOCAL_VARIANTS = {
    "labels": ("certified", "published", "published-star"),
    "bits": ("certified", "published", "published-star", "one-shot"),
}
VARIANTS = LOCAL_VARIANTS | {
    "central": ("trusted", "owner-noised"),
    "training": ("federated-averaging",),
}
# Far below any delta with a meaning, and far above where floats lose digits.
LEAST_DELTA = 1e-100
# Records of one owner, and of all that a campaign counts.
MOST_RECORDS = 10**9
# Noise beyond this would hide any number of records that an owner may have.
MOST_VARIANCE = 1 << 52
# What leaves an owner in a central calibration: exact counts to an aggregator it trusts, or counts
# with its own noise.
EXACT_COUNTS, NOISED_COUNTS = "exact-counts", "discrete-gaussian"
RELEASES = {
    "trusted": ("rank-exponential", "laplace-counts", "pps", "gaussian-search", "above-threshold"),
    "owner-noised": ("gaussian-search",),
}


@dataclass(frozen=True)
class Plan:
    """What a campaign asks of data owners; every field is public and covered by the signature."""

    campaign: str
    method: str
    variant: str
    score: str
    channel: str
    epsilon: float
    labels: int
    alpha: float
    delta: float
    expected_records: int
    minimum_reports: int
    model: bytes
    issued: datetime
    expires: datetime
    max_corrupt: int = 0
    mechanism: str = ""
    bins: int = 0
    beta: float = 0.0
    privacy_delta: float = 0.0
    noise_variance: int = 0
    training: Terms | None = None
    minimum_owners: int = 0

    def __post_init__(self) -> None:
        check_choice("method", self.method, VARIANTS)
        check_choice(f"variant of {self.method}", self.variant, VARIANTS[self.method])
        check_choice("score", self.score, SCORES)
        check_choice(f"channel of {self.method}", self.channel, self._channels())
        check_epsilon(self.epsilon)
        check_probability("alpha", self.alpha)
        if not (self.privacy_delta == 0 or LEAST_DELTA <= self.privacy_delta < 1):
            raise BadInput(
                f"privacy_delta is {self.privacy_delta}; it must be 0, or from {LEAST_DELTA} to "
                "below 1"
            )
        if (self.training is not None) != (self.method == "training"):
            raise BadInput(
                f"method {self.method} with training terms {self.training}; they go together"
            )
        if self.central:
            self._check_central()
        elif self.training is not None:
            self._check_training(self.training)
        elif self.mechanism or self.bins or self.beta or self.privacy_delta or self.noise_variance:
            raise BadInput(
                f"method {self.method} has no mechanism, bins, beta, privacy_delta or "
                "noise_variance; leave them out"
            )
        else:
            check_probability("delta", self.delta)
        if not 1 <= len(self.campaign) <= 200 or not self.campaign.isprintable():
            raise BadInput(
                f"campaign is {self.campaign[:200]!r}; accepted are 1 to 200 printable characters"
            )
        counts = self.expected_records, self.minimum_reports, self.max_corrupt, self.minimum_owners
        if self.expected_records < 1 or min(counts) < 0 or max(counts) > MOST_RECORDS:
            raise BadInput(
                f"expected_records {self.expected_records}, minimum_reports "
                f"{self.minimum_reports}, max_corrupt "
                f"{self.max_corrupt}, minimum_owners {self.minimum_owners}; accepted are at least "
                "1, 0, 0 and 0, and at most "
                f"{MOST_RECORDS}"
            )
        if not 2 <= self.labels <= MOST_LABELS:
            raise BadInput(f"labels is {self.labels}; accepted are 2 to {MOST_LABELS}")
        if len(self.model) != 32:
            raise BadInput(f"model digest has {len(self.model)} bytes; accepted is a SHA-256 of 32")
        if self.expires <= self.issued:
            raise BadInput(
                f"plan expires {self.expires} and was issued {self.issued}; it must expire later"
            )
        if not self.central and self.training is None:
            self.make_channel()

    @property
    def central(self) -> bool:
        """Whether owners send counts instead of reports of records."""
        return self.method == "central"

    @property
    def rounds(self) -> int:
        """How often a record takes part: once, but for noised counts and training, whose epsilon is
        for all rounds together."""
        if self.training is not None:
            return self.training.rounds
        return search_steps(self.bins) if self.channel == NOISED_COUNTS else 1

    def _channels(self) -> Collection[str]:
        central = (EXACT_COUNTS if self.variant == "trusted" else NOISED_COUNTS,)
        return {
            "labels": LABEL_CHANNELS,
            "bits": ("bit",),
            "central": central,
            "training": ("dp-sgd",),
        }[self.method]

    def _check_training(self, terms: Terms) -> None:
        """The terms must cost a record no more than epsilon at privacy_delta."""
        if terms.layers[-1] != self.labels:
            raise BadInput(
                f"layers end in {terms.layers[-1]} and labels are {self.labels}; the last layer "
                "must have them all"
            )
        check_probability("privacy_delta", self.privacy_delta)
        spent = terms.epsilon(self.privacy_delta)
        if spent > self.epsilon:
            raise BadInput(
                f"{terms.rounds * terms.local_steps} steps with noise multiplier "
                f"{terms.noise_multiplier} cost epsilon "
                f"{spent:.6g} at delta {self.privacy_delta}; the plan says {self.epsilon}"
            )

    def _check_central(self) -> None:
        check_choice(f"mechanism of {self.variant}", self.mechanism, RELEASES[self.variant])
        check_probability("beta", self.beta)
        if self.beta >= self.alpha:
            raise BadInput(
                f"beta is {self.beta} and alpha {self.alpha}; beta must be below alpha, of which "
                "it is a part"
            )
        check_bins(self.bins)
        if self.max_corrupt:
            raise BadInput(
                f"max_corrupt is {self.max_corrupt}; one owner's counts can move a threshold "
                "anywhere: 0 is accepted"
            )
        if self.delta:
            raise BadInput(
                f"delta is {self.delta}; central certificates are marginal and have none: leave it "
                "at 0"
            )
        if self.channel == EXACT_COUNTS:
            if self.noise_variance:
                raise BadInput(f"noise_variance is {self.noise_variance}; exact counts have none")
            return
        if not 1 <= self.noise_variance <= MOST_VARIANCE:
            raise BadInput(
                f"noise_variance is {self.noise_variance}; owners add noise of variance 1 to "
                f"{MOST_VARIANCE}"
            )
        spent = zcdp_epsilon(self.rounds / (2 * self.noise_variance), self.privacy_delta)
        if spent > self.epsilon:
            raise BadInput(
                f"{self.rounds} counts with noise of variance {self.noise_variance} cost epsilon "
                f"{spent:.6g} at delta "
                f"{self.privacy_delta}; the plan says {self.epsilon}"
            )

    def make_channel(self) -> Channel:
        """The channel that every report of a local-DP campaign goes through."""
        return Bit(epsilon=self.epsilon) if self.method == "bits" else self.label_channel()

    def label_channel(self) -> LabelChannel:
        return LABEL_CHANNELS[self.channel](k=self.labels, epsilon=self.epsilon)

    def to_bytes(self) -> bytes:
        values = asdict(self) | {"issued": _seconds(self.issued), "expires": _seconds(self.expires)}
        if self.training is not None:
            values["training"] = wire.Training(**asdict(self.training))
        return wire.Plan(version=VERSION, **values).SerializeToString(deterministic=True)

    @staticmethod
    def from_bytes(data: bytes) -> "Plan":
        """Read a plan; anything that is not one is refused with a code."""
        message = parse(wire.Plan, data)
        values = {field.name: getattr(message, field.name) for field in fields(Plan)}
        try:
            moments = {
                name: datetime.fromtimestamp(values[name], UTC) for name in ("issued", "expires")
            }
            terms = None
            if message.HasField("training"):
                found = {
                    field.name: getattr(message.training, field.name) for field in fields(Terms)
                }
                terms = Terms(**found | {"layers": tuple(message.training.layers)})
            return Plan(**values | moments | {"training": terms})
        except (BadInput, ValueError, OverflowError, OSError):
            raise Refused(wire.Code.MALFORMED) from None


def parse(kind: type[AnyMessage], data: bytes) -> AnyMessage:
    """Decode a message of this protocol version that is exactly as long as its known fields need,
    or refuse.

    Decoders keep fields they do not know and take the last of a field that comes twice, so a
    message could otherwise carry any number of bytes that no check looks at.
    """
    try:
        message = kind.FromString(data)
    except DecodeError:
        raise Refused(wire.Code.MALFORMED) from None
    if not isinstance(message, wire.SignedPlan) and message.version != VERSION:
        raise Refused(wire.Code.WRONG_VERSION)
    # Typed as anything: protobuf's stubs do not know this method.
    whole: Any = message
    whole.DiscardUnknownFields()
    if message.ByteSize() != len(data):
        raise Refused(wire.Code.MALFORMED)
    return message


def digest(plan_bytes: bytes) -> bytes:
    """The name of a campaign on the wire and in every ledger."""
    return hashlib.sha256(plan_bytes).digest()


def sign_plan(plan: Plan, key: Ed25519PrivateKey) -> bytes:
    """A SignedPlan, serialised."""
    data = plan.to_bytes()
    signed = wire.SignedPlan(
        plan=data, key=key.public_key().public_bytes_raw(), signature=key.sign(_SIGNED + data)
    )
    return signed.SerializeToString(deterministic=True)


def open_plan(signed: bytes, *, trusted: Collection[bytes], now: datetime) -> tuple[Plan, bytes]:
    """The plan and its digest, if a trusted key signed exactly these bytes and it is valid now;
    else refused with a code."""
    message = parse(wire.SignedPlan, signed)
    if not message.key or not message.signature:
        raise Refused(wire.Code.UNSIGNED)
    if message.key not in trusted:
        raise Refused(wire.Code.UNKNOWN_KEY)
    try:
        Ed25519PublicKey.from_public_bytes(message.key).verify(
            message.signature, _SIGNED + message.plan
        )
    except (InvalidSignature, ValueError):
        raise Refused(wire.Code.BAD_SIGNATURE) from None
    plan = Plan.from_bytes(message.plan)
    if now < plan.issued:
        raise Refused(wire.Code.NOT_YET_VALID)
    if now >= plan.expires:
        raise Refused(wire.Code.EXPIRED)
    return plan, digest(message.plan)


def signer(signed: bytes) -> bytes:
    """The public key that a signed plan was opened with."""
    return parse(wire.SignedPlan, signed).key


def check_choice(what: str, value: str, accepted: Iterable[str]) -> None:
    """Accept one of the given names."""
    if value not in accepted:
        raise BadInput(f"{what} is {value!r}; accepted: {', '.join(accepted)}")


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
