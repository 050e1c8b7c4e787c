"""A campaign and its rounds as values, as they are read from the database."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import NamedTuple

from confide.aggregator.campaigns.planning.settings import check
from confide.protocol.errors import BadInput, Refused
from confide.protocol.plan import Plan, digest, signer
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import parse

DRAFT, OPEN, CLOSED, CALIBRATED, PUBLISHED = "draft", "open", "closed", "calibrated", "published"
# The end of a campaign that has weights and no card.
TRAINED = "trained"
# Why a round was closed.
DEADLINE, ENOUGH, OPERATOR = "deadline", "enough", "operator"


@dataclass(frozen=True)
class Settings:
    """When a round ends.

    It ends after `round_seconds`, or when `enough` reports are stored, if the plan's
    `minimum_owners` have contributed; or as soon as `owners` have finished. 0 switches off `enough`
    or `owners`. An owner that declined has finished but has not contributed.
    """

    round_seconds: float = 3600.0
    owners: int = 0
    enough: int = 0

    def __post_init__(self) -> None:
        check({name.replace("_", "-"): value for name, value in vars(self).items()})

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Read stored settings; those that another version wrote may be refused."""
        try:
            return cls(**json.loads(text))
        except BadInput:
            raise
        except (TypeError, ValueError):
            raise BadInput(
                f"settings are {text[:200]!r}; accepted are {', '.join(cls.__dataclass_fields__)}"
            ) from None

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Campaign:
    """A campaign as stored; its plan and settings are parsed on first use.

    One that is not `readable` was written by another version, whose programs may be able to
    continue it, so this version leaves it alone.
    """

    id: str
    signed_plan: bytes
    stored_settings: str
    state: str
    reason: str | None

    @cached_property
    def readable(self) -> bool:
        try:
            return bool(self.plan and self.settings)
        except (BadInput, Refused):
            return False

    @cached_property
    def settings(self) -> Settings:
        return Settings.from_json(self.stored_settings)

    @cached_property
    def plan_bytes(self) -> bytes:
        return parse(wire.SignedPlan, self.signed_plan).plan

    @cached_property
    def signer(self) -> bytes:
        """The public key whose cards the owners of this campaign accept."""
        return signer(self.signed_plan)

    @cached_property
    def plan(self) -> Plan:
        return Plan.from_bytes(self.plan_bytes)

    @cached_property
    def digest(self) -> bytes:
        return digest(self.plan_bytes)


@dataclass(frozen=True)
class Round:
    """A query that was asked; a closed round has a time and a reason, and a tally once counted.

    `digest` is the SHA-256 of the query, which may be long (`RoundStore.query`). A tally that is
    bytes is not here either (`RoundStore.long_tally`).
    """

    number: int
    digest: bytes
    opened: float
    deadline: float
    closed: float | None
    because: str | None
    tally: str | None


class Turnout(NamedTuple):
    """Owners that have finished a round, owners whose reports are counted, and reports."""

    finished: int
    contributed: int
    reports: int
