"""The contract of a central calibration, and the configurations that are tried for it."""

import math
from dataclasses import MISSING, asdict, dataclass, fields
from fractions import Fraction
from itertools import product
from typing import Any

from confide.aggregator.quantiles.base import ADD_REMOVE, REPLACE_ONE
from confide.aggregator.quantiles.registry import MECHANISMS
from confide.protocol.errors import BadInput, check_choice, check_epsilon, check_probability
from confide.protocol.exact.grids import GRID_NAMES, GRIDS, MIXED, check_bins
from confide.protocol.methods.base import MOST_RECORDS

MOST_OWNERS = 100_000


@dataclass(frozen=True)
class Contract:
    """The promises that a central calibration must make.

    `beta` is the part of the miss that is left to the mechanism; 0 averages coverage over its
    draws. With a `failure_probability` the promise is PAC, and beta is a part of that instead.
    `max_inflation` bounds the certified inflation as a share of the ranks.

    Privacy is counted per record. It also holds per client if no client has more than one record,
    which `records_per_client` states.
    """

    name: str
    coverage: float
    beta: float
    epsilon_train: float
    epsilon_calibration: float
    delta: float = 0.0
    max_inflation: float | None = None
    adjacency: str = REPLACE_ONE
    unit: str = "record"
    records_per_client: int | None = None
    failure_probability: float | None = None

    def __post_init__(self) -> None:
        check_probability("coverage", self.coverage)
        if self.beta:
            check_probability("beta", self.beta)
        check_choice("adjacency", self.adjacency, (REPLACE_ONE, ADD_REMOVE))
        check_choice("unit", self.unit, ("record", "client"))
        if self.records_per_client != (1 if self.unit == "client" else None):
            raise BadInput(
                f"unit is {self.unit} and records_per_client {self.records_per_client}; accepted "
                "are record without it, and client with 1: nothing here protects a client with "
                "more records"
            )
        for name in ("epsilon_train", "epsilon_calibration"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise BadInput(f"{name} is {getattr(self, name)!r}; it must be 0 or more")
        if not 0 <= self.delta < 1:
            raise BadInput(f"delta is {self.delta!r}; it must be 0 or more and below 1")
        if self.max_inflation is not None:
            check_probability("max_inflation", self.max_inflation)
        if self.failure_probability is not None:
            check_probability("failure_probability", self.failure_probability)
            if self.beta >= self.failure_probability:
                raise BadInput(
                    f"beta is {self.beta} at failure_probability {self.failure_probability}; beta "
                    "must be below it, of which it is a part"
                )
        elif decimal(self.beta) + decimal(self.coverage) >= 1:
            raise BadInput(
                f"beta is {self.beta} at coverage {self.coverage}; beta must be below 1 - "
                "coverage, of which it is a part"
            )


@dataclass(frozen=True)
class Configuration:
    """One point of the searched grid."""

    mechanism: str
    gamma: float
    n: int
    bins: int
    epsilon_train: float
    delta_train: float
    epsilon_calibration: float
    delta_calibration: float = 0.0
    noised_by: str = "aggregator"
    owners: int = 1
    noise_variance: int = 0
    grid: str = MIXED
    # How many of the owners' counts a record may move, where they count parts of records apart.
    moved: int = 1

    def layer(self) -> dict[str, Any]:
        """The fields, as cards show them."""
        shown = asdict(self)
        if self.moved == 1:
            del shown["moved"]
        return shown

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, MECHANISMS)
        check_choice("noised_by", self.noised_by, ("aggregator", "owners"))
        mechanism = MECHANISMS[self.mechanism]
        if self.noised_by == "owners" and not mechanism.owners_can_noise:
            accepted = " or ".join(name for name, one in MECHANISMS.items() if one.owners_can_noise)
            raise BadInput(
                f"{self.mechanism} noised by owners; accepted is {accepted} where owners add the "
                "noise"
            )
        check_probability("gamma", self.gamma)
        check_epsilon(self.epsilon_calibration)
        check_bins(self.bins)
        check_choice("grid", self.grid, GRID_NAMES)
        for name, least, most in (
            ("n", 1, MOST_RECORDS),
            ("owners", 1, MOST_OWNERS),
            ("noise_variance", 0, MOST_RECORDS),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadInput(
                    f"{name} is {value!r}; accepted is a whole number from {least} to {most}"
                )
        if (
            self.epsilon_train < 0
            or not 0 <= self.delta_train < 1
            or not 0 <= self.delta_calibration < 1
        ):
            raise BadInput(
                f"epsilon_train {self.epsilon_train}, delta_train {self.delta_train}, "
                f"delta_calibration {self.delta_calibration}; accepted are an epsilon of 0 or more "
                "and deltas from 0 to below 1"
            )
        if mechanism.needs_delta and self.delta_calibration == 0:
            raise BadInput(
                f"{self.mechanism} has Gaussian noise and needs delta_calibration above 0"
            )


def decimal(value: float) -> Fraction:
    """The exact decimal that a float prints as; levels and ranks are decided with these numbers."""
    return Fraction(repr(value))


def read_grid(values: dict[str, Any]) -> list[Configuration]:
    """Make every combination of the given values; a single value counts as a list of one.

    Grids whose edges stand in a plan are not accepted: a contract has no such edges.
    """
    own = [field for field in fields(Configuration) if field.name != "moved"]
    names = [field.name for field in own]
    defaults = {field.name: field.default for field in own if field.default is not MISSING}
    optional: dict[str, list[Any]] = {
        name: [value] for name, value in (defaults | {"delta_train": 0.0}).items()
    }
    unknown, missing = (
        sorted(set(values) - set(names)),
        sorted(set(names) - set(values) - set(optional)),
    )
    if unknown or missing:
        raise BadInput(
            f"[grid] has unknown: {', '.join(unknown) or 'none'}; missing: "
            f"{', '.join(missing) or 'none'}"
        )
    given = optional | {
        name: value if isinstance(value, list) else [value] for name, value in values.items()
    }
    for name in given["grid"]:
        check_choice("grid of a contract", name, GRIDS)
    return [
        Configuration(**dict(zip(names, point, strict=True)))
        for point in product(*(given[name] for name in names))
    ]
