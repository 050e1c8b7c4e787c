"""Contracts for central calibration: search a grid of configurations for one that keeps them.

A configuration is feasible when every clause holds: it is certified, its rank exists, its level
reaches the target, and its budgets and inflation stay within the contract's. All of it is decided
before any record is seen. An infeasible contract gets a card too, with the margin it failed by and
the smallest change of each kind that would make it feasible.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from fractions import Fraction
from itertools import product
from typing import Any

from confide.aggregator.cards.released import decision
from confide.aggregator.procedures.central import noise_offset
from confide.aggregator.quantiles.base import ADD_REMOVE, CERTIFIED, REPLACE_ONE
from confide.aggregator.quantiles.registry import GAUSSIAN, MECHANISMS, within_budget
from confide.protocol.cards.card import INFORMATIVE, RANDOMNESS, Layer
from confide.protocol.certificate import MARGINAL
from confide.protocol.errors import BadInput, check_choice, check_epsilon, check_probability
from confide.protocol.exact.grids import check_bins
from confide.protocol.methods.base import MOST_RECORDS
from confide.protocol.privacy.zcdp import search_steps, search_variance

MOST_OWNERS = 100_000
MOST_EPSILON = 40.0
# Suggested epsilons are rounded up to so many decimals.
EPSILON_DECIMALS = 3


@dataclass(frozen=True)
class Contract:
    """What a central calibration must promise. `max_inflation` bounds the certified inflation as a
    share of the ranks.

    Privacy is counted a record. It is a client's too where no client has more than one:
    `records_per_client` says so.
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

    def __post_init__(self) -> None:
        check_probability("coverage", self.coverage)
        check_probability("beta", self.beta)
        check_choice("adjacency", self.adjacency, (REPLACE_ONE, ADD_REMOVE))
        check_choice("unit", self.unit, ("record", "client"))
        if self.records_per_client != (1 if self.unit == "client" else None):
            raise BadInput(
                f"unit is {self.unit} and records_per_client {self.records_per_client}; accepted "
                "are record without it, and "
                "client with 1: nothing here protects a client with more records"
            )
        for name in ("epsilon_train", "epsilon_calibration"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise BadInput(f"{name} is {getattr(self, name)!r}; it must be 0 or more")
        if not 0 <= self.delta < 1:
            raise BadInput(f"delta is {self.delta!r}; it must be 0 or more and below 1")
        if self.max_inflation is not None:
            check_probability("max_inflation", self.max_inflation)
        if decimal(self.beta) + decimal(self.coverage) >= 1:
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

    def __post_init__(self) -> None:
        check_choice("mechanism", self.mechanism, MECHANISMS)
        check_choice("noised_by", self.noised_by, ("aggregator", "owners"))
        if self.noised_by == "owners" and self.mechanism != "gaussian-search":
            raise BadInput(
                f"{self.mechanism} noised by owners; accepted is gaussian-search where owners add "
                "the noise"
            )
        check_probability("gamma", self.gamma)
        check_epsilon(self.epsilon_calibration)
        check_bins(self.bins)
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
                "delta_calibration "
                f"{self.delta_calibration}; accepted are an epsilon of 0 or more and deltas from 0 "
                "to below 1"
            )
        if self.mechanism in GAUSSIAN and self.delta_calibration == 0:
            raise BadInput(
                f"{self.mechanism} has Gaussian noise and needs delta_calibration above 0"
            )


def decimal(value: float) -> Fraction:
    """The number that a float prints as: levels and ranks are decided in these."""
    return Fraction(repr(value))


def judge(contract: Contract, configuration: Configuration) -> Layer:
    """A configuration with what follows from it, clause by clause."""
    rank = math.ceil((configuration.n + 1) * decimal(configuration.gamma))
    certified, inflation = _certified(contract, configuration, rank)
    level = (
        float(max(Fraction(0), decimal(configuration.gamma) - decimal(contract.beta)))
        if certified
        else None
    )
    share = None if inflation is None else inflation / configuration.n
    delta = decimal(configuration.delta_train) + decimal(configuration.delta_calibration)
    flags = {
        "certified": certified,
        "rank": rank <= configuration.n,
        "coverage": level is not None and level >= contract.coverage,
        "epsilon_train": configuration.epsilon_train <= contract.epsilon_train,
        "epsilon_calibration": configuration.epsilon_calibration <= contract.epsilon_calibration,
        "delta": delta <= decimal(contract.delta),
        "inflation": contract.max_inflation is None
        or (share is not None and share <= contract.max_inflation),
    }
    return asdict(configuration) | {
        "rank": rank,
        "level": level,
        "inflation_ranks": inflation,
        "inflation_share": share,
        "flags": flags,
        "feasible": all(flags.values()),
    }


def _certified(
    contract: Contract, configuration: Configuration, rank: int
) -> tuple[bool, int | None]:
    """Whether the mechanism certifies its side of the threshold, and its inflation where the rank
    exists."""
    bins, possible = configuration.bins, rank <= configuration.n
    try:
        if configuration.noised_by == "owners":
            least = search_variance(
                bins=bins,
                epsilon=configuration.epsilon_calibration,
                delta=configuration.delta_calibration,
            )
            variance = configuration.noise_variance or least
            if contract.adjacency != REPLACE_ONE or variance < least:
                return False, None
            offset = noise_offset(
                variance, configuration.owners, contract.beta / search_steps(bins)
            )
            return True, 2 * offset if possible else None
        mechanism = within_budget(
            configuration.mechanism,
            bins=bins,
            beta=contract.beta,
            adjacency=contract.adjacency,
            epsilon=configuration.epsilon_calibration,
            delta=configuration.delta_calibration,
        )
        # PPS proves its guarantee for ranks from n/2 on.
        certified = mechanism.certificate == CERTIFIED and not (
            mechanism.name == "pps" and 2 * rank < configuration.n
        )
        return certified, mechanism.inflation(
            n=configuration.n, rank=rank
        ) if certified and possible else None
    except BadInput:
        return False, None


def search(contract: Contract, grid: Iterable[Configuration]) -> Layer:
    """The formal layer of a central card: every configuration judged, one selected or none."""
    configurations = list(grid)
    if not configurations:
        raise BadInput("the grid is empty; accepted is at least one configuration")
    judged = [judge(contract, configuration) for configuration in configurations]
    shortlist = _shortlist(judged)
    best = min(
        range(len(judged)), key=lambda i: (_failures(judged[i]), -(judged[i]["level"] or 0.0), i)
    )
    selected = min(shortlist, key=lambda i: _preference(judged[i])) if shortlist else None
    shown = judged[best if selected is None else selected]
    failed = [name for name, holds in shown["flags"].items() if not holds]
    return {
        "track": "central",
        "contract": {"kind": MARGINAL, **asdict(contract)},
        "searched": judged,
        "shortlist": shortlist,
        "selected": selected,
        "best": best if selected is None else selected,
        "flags": {"configuration": selected is not None, RANDOMNESS: True, INFORMATIVE: True},
        "decision": decision(failed),
        "margin": None
        if shown["level"] is None
        else float(decimal(shown["level"]) - decimal(contract.coverage)),
        "failed": failed,
        "suggestions": suggestions(contract, configurations) if selected is None else [],
        "total": {
            "epsilon": float(
                decimal(shown["epsilon_train"]) + decimal(shown["epsilon_calibration"])
            ),
            "delta": float(decimal(shown["delta_train"]) + decimal(shown["delta_calibration"])),
            "composition": "sequential",
        },
        "plan": None,
        "released": None,
    }


def read_grid(values: dict[str, Any]) -> list[Configuration]:
    """Every combination of the values given; a single value stands for a list of one."""
    names = [field.name for field in fields(Configuration)]
    defaults = {
        field.name: field.default for field in fields(Configuration) if field.default is not MISSING
    }
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
    return [
        Configuration(**dict(zip(names, point, strict=True)))
        for point in product(*(given[name] for name in names))
    ]


def _failures(judged: Layer) -> int:
    return sum(not holds for holds in judged["flags"].values())


def _preference(judged: Layer) -> tuple[float, float, float, float]:
    """Least certified inflation first, as a share of the records; then the lower nominal coverage,
    then the smaller budget."""
    share = math.inf if judged["inflation_share"] is None else judged["inflation_share"]
    return (
        share,
        judged["gamma"],
        judged["epsilon_train"] + judged["epsilon_calibration"],
        judged["bins"],
    )


def _shortlist(judged: Sequence[Layer]) -> list[int]:
    """Of the feasible configurations with the same budgets, the one of least inflation: the others
    cannot do better."""
    best: dict[tuple[float, float], int] = {}
    for i, entry in enumerate(judged):
        if entry["feasible"]:
            budgets = entry["epsilon_train"], entry["epsilon_calibration"]
            if budgets not in best or _preference(entry) < _preference(judged[best[budgets]]):
                best[budgets] = i
    return sorted(best.values())


def suggestions(contract: Contract, configurations: Sequence[Configuration]) -> list[Layer]:
    """The smallest change of each kind (records, epsilon, target) under which some configuration is
    feasible."""
    found = []
    for change in (_more_records, _more_epsilon, _lower_target):
        made = [
            result
            for configuration in configurations
            if (result := change(contract, configuration)) is not None
        ]
        if made:
            _, changed, configuration = min(made, key=lambda result: result[0])
            kind = change.__name__.removeprefix("_").replace("_", " ")
            found.append(
                {
                    "change": kind,
                    "contract": asdict(changed),
                    "configuration": asdict(configuration),
                }
            )
    return found


Change = tuple[float, Contract, Configuration] | None


def _feasible(contract: Contract, configuration: Configuration) -> bool:
    return bool(judge(contract, configuration)["feasible"])


def _more_records(contract: Contract, configuration: Configuration) -> Change:
    n = _least(
        lambda n: _feasible(contract, replace(configuration, n=n)), configuration.n, MOST_RECORDS
    )
    return None if n is None else (n, contract, replace(configuration, n=n))


def _more_epsilon(contract: Contract, configuration: Configuration) -> Change:
    """Budgets of the contract and of calibration raised together; in steps of the last decimal."""
    unit = 10**EPSILON_DECIMALS
    train = max(contract.epsilon_train, configuration.epsilon_train)

    def raised(steps: int) -> tuple[Contract, Configuration]:
        epsilon = steps / unit
        wider = replace(
            contract,
            epsilon_train=train,
            epsilon_calibration=max(epsilon, contract.epsilon_calibration),
        )
        return wider, replace(configuration, epsilon_calibration=epsilon)

    start = math.ceil(decimal(configuration.epsilon_calibration) * unit)
    steps = _least(lambda steps: _feasible(*raised(steps)), start, int(MOST_EPSILON * unit))
    if steps is None:
        return None
    wider, changed = raised(steps)
    return wider.epsilon_train + wider.epsilon_calibration, wider, changed


def _lower_target(contract: Contract, configuration: Configuration) -> Change:
    level = judge(contract, configuration)["level"]
    if not level or level >= contract.coverage:
        return None
    lower = replace(contract, coverage=level)
    return (-level, lower, configuration) if _feasible(lower, configuration) else None


def _least(holds: Callable[[int], bool], start: int, most: int) -> int | None:
    """The least integer from start to most at which a growing property holds; None when it does not
    hold at most."""
    if not holds(most):
        return None
    low, high, step = start - 1, start, 1
    while not holds(high):
        low, high, step = high, min(most, high + step), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
