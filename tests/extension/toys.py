"""A score, a label channel, a quantile mechanism and a method that the product knows nothing of.

`register` is all that is needed on either side.
"""

import json
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from confide.aggregator.procedures import registry as procedures
from confide.aggregator.quantiles import registry as quantiles
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.cards.card import Layer
from confide.protocol.cards.verify.counts import recompute
from confide.protocol.cards.verify.findings import CLOSE, Finding, same
from confide.protocol.cards.verify.local import rules as local_cards
from confide.protocol.certificate import PAC, LocalCertificate
from confide.protocol.channels import registry as channels
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.errors import BadInput, Refused, check_probability
from confide.protocol.methods import registry as methods
from confide.protocol.methods.base import Batch, Columns, Explanation, Query, ReportScores, Tally
from confide.protocol.methods.local import LocalTerms
from confide.protocol.methods.subjects import Subjects
from confide.protocol.methods.thresholds import BitEvidence
from confide.protocol.plan import Plan
from confide.protocol.scores import registry as scores
from confide.protocol.scores.label_score import LabelScore
from confide.protocol.wire import wire_pb2 as wire

SQUARE = LabelScore("toy-square", lambda ranking: (1 - ranking.own) ** 2)


@dataclass(frozen=True)
class Bytes(KaryRR):
    """Randomised response whose reports take a byte."""

    name: ClassVar[str] = "toy-bytes"

    @property
    def report_bits(self) -> int:
        return 8

    def pack(self, reports: Any) -> bytes:
        return bytes(reports.astype(np.uint8))

    def check(self, data: bytes, n: int) -> None:
        if len(data) != n or max(data, default=0) >= self.k:
            raise Refused(wire.Code.MALFORMED)

    def unpack(self, data: bytes, n: int) -> Any:
        return np.frombuffer(data, dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class Renamed(RankExponential):
    """The default mechanism under a name of its own."""

    name: ClassVar[str] = "toy-exponential"


@dataclass(frozen=True)
class OnesTally(Tally):
    """How many reports arrived, and how many were one."""

    answers: int
    ones: int

    def to_json(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class GuessQuery(Query):
    """Ask every record for a randomised bit about one threshold."""

    channel: Bit
    guess: float
    start: float = 0.0
    stop: float = 1.0

    def to_body(self) -> bytes:
        return b"{}"

    def answer(self, subjects: Subjects) -> Columns:
        below = subjects.scores() <= self.guess
        return {"bits": self.channel.randomize(below, subjects.entropy)}

    def pack(self, columns: Columns) -> bytes:
        return self.channel.pack(columns["bits"])

    def check(self, body: bytes, n: int, *, most: int) -> None:
        self.channel.check(body, n)

    def unpack(self, body: bytes, n: int) -> Columns:
        return {"bits": self.channel.unpack(body, n)}

    def tally(self, batches: Sequence[Batch], scores: ReportScores) -> OnesTally:
        ones = sum(int(batch.columns["bits"].sum()) for batch in batches)
        return OnesTally(sum(len(batch) for batch in batches), ones)

    def tally_from_json(self, values: dict[str, int]) -> OnesTally:
        return OnesTally(**values)

    def evidence(self, tally: OnesTally | None) -> list[BitEvidence]:
        answers, ones = (tally.answers, tally.ones) if tally else (0, 0)
        return [BitEvidence(self.guess, answers, ones, self.channel)]


@dataclass(frozen=True, kw_only=True)
class GuessTerms(LocalTerms):
    """Tests one threshold that the plan names, by Hoeffding's inequality; else it is 1."""

    guess: float

    method: ClassVar[str] = "toy-guess"
    variants: ClassVar[tuple[str, ...]] = ("hoeffding",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability("guess", self.guess)

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        try:
            made = cls(**json.loads(data))
        except (TypeError, ValueError) as error:
            raise BadInput(f"terms are {data[:80]!r}: {error}; accepted is JSON") from None
        if made.to_bytes() != data:
            raise BadInput("terms are spelled otherwise; accepted is one spelling")
        return made

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        return cls(
            variant=variant,
            epsilon=float(settings["epsilon"]),
            delta=float(settings["failure-probability"]),
            guess=float(settings["guess"]),
        )

    def make_channel(self, *, labels: int) -> Bit:
        return Bit(epsilon=self.epsilon)

    def read_query(self, body: bytes, *, labels: int) -> GuessQuery:
        if body != b"{}":
            raise Refused(wire.Code.MALFORMED)
        return GuessQuery(self.make_channel(labels=labels), self.guess)

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        return Explanation(self.epsilon, "tests one threshold", "From each record leaves one bit.")


def slack(*, epsilon: float, delta: float, n: int) -> float:
    """What the estimate of n bits may be too high by, except with probability delta."""
    gain = (math.exp(epsilon) - 1) / (math.exp(epsilon) + 1)
    return math.sqrt(math.log(1 / delta) / (2 * n)) / gain


def guessing(plan: Plan) -> Generator[GuessQuery, OnesTally, LocalCertificate]:
    terms = GuessTerms.of(plan.terms)
    channel = terms.make_channel(labels=plan.labels)
    tally = yield GuessQuery(channel, terms.guess)
    share = tally.ones / max(tally.answers, 1)
    coverage = (share - float(channel.spill)) / float(channel.hit - channel.spill)
    found = None
    if tally.answers:
        found = slack(epsilon=channel.epsilon, delta=terms.delta, n=tally.answers)
    passed = found is not None and coverage - found >= 1 - plan.alpha
    return LocalCertificate(
        method=terms.method,
        variant=terms.variant,
        kind=PAC,
        threshold=terms.guess if passed else 1.0,
        level=1 - plan.alpha,
        alpha=plan.alpha,
        delta=terms.delta,
        n=tally.answers,
        channel=channel.name,
        epsilon=channel.epsilon,
        slack=found,
        reason=None if passed else "the guess does not cover",
    )


def evidence(found: Layer, max_corrupt: int) -> Iterator[Finding]:
    expected = slack(epsilon=found["epsilon"], delta=found["delta"], n=max(found["n"], 1))
    close = found["slack"] is not None and abs(found["slack"] - expected) <= CLOSE * expected
    yield Finding("certificate/slack", close, f"recomputed {expected:.6g}")
    yield same("certificate/level", found["level"], 1 - found["alpha"])


RULES = local_cards.LocalRules(
    variants=GuessTerms.variants, channels=lambda _: (Bit.name,), evidence=evidence
)


def register() -> None:
    """Make all of them known, as a package that defines them would do when it is imported."""
    scores.register(SQUARE)
    channels.register(Bytes)
    quantiles.register(Renamed)
    recompute.register(
        Renamed.name,
        inflation=recompute.INFLATION[RankExponential.name],
        averaged_rank=recompute.AVERAGED[RankExponential.name],
    )
    methods.register(GuessTerms)
    procedures.register(GuessTerms.method, lambda plan, _: guessing(plan))
    local_cards.register(GuessTerms.method, RULES)


def forget() -> None:
    """Leave the registries as they were: other tests run over all that is registered."""
    del scores.SCORES[SQUARE.name]
    del channels.LABEL_CHANNELS[Bytes.name]
    del quantiles.MECHANISMS[Renamed.name]
    del recompute.INFLATION[Renamed.name]
    del methods.METHODS[GuessTerms.method]
    del procedures.PROCEDURES[GuessTerms.method]
    del local_cards.RULES[GuessTerms.method]
