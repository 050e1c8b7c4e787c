"""Method full-data: counts of scores of the very records that trained the model.

A model knows its own records, so its scores on them are too good. Each variant is a rule for the
rank that makes up for it, with exact counts for a trusted aggregator or with counts that every
owner noises. Records pay for the training and for the calibration: both charges add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from google.protobuf.message import Message

from confide.protocol.errors import BadInput, check_choice, check_probability
from confide.protocol.methods.base import FULL_DATA, Explanation
from confide.protocol.methods.counts.central import (
    GRID_SETTINGS,
    SEARCH,
    CentralTerms,
    counted,
)
from confide.protocol.methods.training.terms import LIMITS, MOST_STEPS
from confide.protocol.privacy.odds import worst_odds
from confide.protocol.privacy.renyi import training_epsilon
from confide.protocol.wire import wire_pb2 as wire

# The rules for the rank: by the training's whole privacy profile; by one point of it; nominal with
# a buffer; nominal.
CERTIFIED, DPCP, SCP_F, SCP_A = "certified", "dpcp", "scp-f", "scp-a"


@dataclass(frozen=True)
class Variant:
    """A rule for the rank, who adds the noise, and the mechanism if it has only one."""

    rule: str
    noised_by_owners: bool = False
    mechanism: str | None = None


# DPCP's exponential mechanism weighs exact counts, so owners cannot noise them.
VARIANTS: dict[str, Variant] = {
    "certified": Variant(CERTIFIED),
    "certified-owner-noised": Variant(CERTIFIED, noised_by_owners=True, mechanism=SEARCH),
    "dpcp": Variant(DPCP, mechanism="dpcp"),
    "scp-f": Variant(SCP_F, mechanism=SEARCH),
    "scp-f-owner-noised": Variant(SCP_F, noised_by_owners=True, mechanism=SEARCH),
    "scp-a": Variant(SCP_A, mechanism=SEARCH),
    "scp-a-owner-noised": Variant(SCP_A, noised_by_owners=True, mechanism=SEARCH),
}


@dataclass(frozen=True, kw_only=True)
class FullDataTerms(CentralTerms):
    """The terms of a calibration on the records of a training.

    The numbers of the training are those of its plan, which the card holds too: noise multiplier,
    sampling rate and steps of DP-SGD, and the delta at which its epsilon is stated.
    """

    training_noise: float
    training_rate: float
    training_steps: int
    training_delta: float

    method: ClassVar[str] = "full-data"
    of_risks: ClassVar[bool] = False
    variants: ClassVar[tuple[str, ...]] = tuple(VARIANTS)
    noised_variants: ClassVar[tuple[str, ...]] = tuple(
        name for name, kind in VARIANTS.items() if kind.noised_by_owners
    )
    message: ClassVar[type[Message]] = wire.FullDataTerms
    track: ClassVar[str] = FULL_DATA
    on_training_records: ClassVar[bool] = True
    settings: ClassVar[dict[str, tuple[str, ...]]] = {
        "mechanism": (CERTIFIED,),
        **GRID_SETTINGS,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind.mechanism is not None:
            check_choice(f"mechanism of {self.variant}", self.mechanism, (self.kind.mechanism,))
        check_probability("training_delta", self.training_delta)
        if self.delta:
            raise BadInput(
                f"delta is {self.delta}; accepted is 0: {self.method} promises averages only"
            )
        for name, value in {
            "noise_multiplier": self.training_noise,
            "sampling_rate": self.training_rate,
        }.items():
            least, most = LIMITS[name]
            if not least <= value <= most:
                raise BadInput(
                    f"{name} of the training is {value!r}; accepted is {least:g} to {most:g}"
                )
        if not 1 <= self.training_steps <= MOST_STEPS:
            raise BadInput(
                f"steps of the training are {self.training_steps}; accepted are 1 to {MOST_STEPS}"
            )

    def check(self, *, labels: int, alpha: float) -> None:
        super().check(labels=labels, alpha=alpha)
        if self.training_delta >= alpha:
            raise BadInput(
                f"delta of the training is {self.training_delta} and alpha {alpha}; it must be "
                "below alpha"
            )

    @classmethod
    def from_settings(cls, variant: str, settings: Mapping[str, Any]) -> Self:
        """Make the terms for the training whose numbers are among the settings (`trained`).

        Mechanisms that need no delta are requested with a privacy-delta of 0.
        """
        check_choice(f"variant of {cls.method}", variant, cls.variants)
        kind, trained = VARIANTS[variant], settings.get("trained")
        if trained is None:
            raise BadInput(
                f"{cls.method}:{variant} calibrates on the records that trained its model, and no "
                "training is given; accepted is such a campaign in a chain"
            )
        if trained.loss_share:
            raise BadInput(
                f"the training has loss-share {trained.loss_share:g}, and {cls.method}:{variant} "
                "states what its steps cost; accepted is a training without a loss"
            )
        delta = 0.0 if kind.rule == DPCP else float(settings["privacy-delta"])
        return cls(
            variant=variant,
            mechanism=kind.mechanism or str(settings["mechanism"]),
            **counted(settings, delta=delta, noised=kind.noised_by_owners),
            training_noise=trained.noise_multiplier,
            training_rate=trained.sampling_rate,
            training_steps=trained.rounds * trained.local_steps,
            training_delta=trained.privacy_delta,
        )

    @property
    def kind(self) -> Variant:
        """The rule, the noise and the mechanism of the variant."""
        return VARIANTS[self.variant]

    @property
    def shows_exact_counts(self) -> bool:
        return not self.kind.noised_by_owners

    @property
    def averages(self) -> bool:
        return False

    @property
    def training_epsilon(self) -> float:
        """What the training has cost a record that is replaced by another, rounded up."""
        return training_epsilon(
            noise_multiplier=self.training_noise,
            sampling_rate=self.training_rate,
            steps=self.training_steps,
            delta=self.training_delta,
        )

    def explain(self, *, labels: int, alpha: float) -> Explanation:
        found = super().explain(labels=labels, alpha=alpha)
        before, delta = self.training_epsilon, self.training_delta
        both = (
            "It asks the records that trained the model, and no others. By this plan they have "
            f"paid epsilon {before:.4f} at delta {delta:g} for the training. They pay for both: "
            f"epsilon {before + self.epsilon:.4f} together (at most "
            f"{worst_odds(before + self.epsilon)} after even odds). Your ledger adds up what it "
            "charged, whatever the plan says."
        )
        return Explanation(found.epsilon, found.purpose, found.leaves, (*found.caveats, both))
