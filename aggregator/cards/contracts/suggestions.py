"""The smallest changes under which an infeasible contract would be feasible."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from confide.aggregator.cards.contracts.clauses import judge
from confide.aggregator.cards.contracts.contract import Configuration, Contract, decimal
from confide.protocol.cards.card import Layer
from confide.protocol.methods.base import MOST_RECORDS

MOST_EPSILON = 40.0
# Suggested epsilons are rounded up to this many decimals.
EPSILON_DECIMALS = 3


def suggestions(contract: Contract, configurations: Sequence[Configuration]) -> list[Layer]:
    """The smallest changes of records, epsilon, gamma and target that make one feasible."""
    found = []
    for change in (_more_records, _more_epsilon, _higher_gamma, _lower_target):
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
                    "configuration": configuration.layer(),
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
    """Raise the budgets of contract and calibration together, in steps of the last decimal."""
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


def _higher_gamma(contract: Contract, configuration: Configuration) -> Change:
    """Aim at the share of scores whose level is the target; the change is how far that is."""
    gamma = decimal(contract.coverage) + decimal(contract.beta)
    changed = replace(configuration, gamma=float(gamma))
    if configuration.gamma >= changed.gamma or not _feasible(contract, changed):
        return None
    return float(gamma - decimal(configuration.gamma)), contract, changed


def _lower_target(contract: Contract, configuration: Configuration) -> Change:
    level = judge(contract, configuration)["level"]
    if not level or level >= contract.coverage:
        return None
    lower = replace(contract, coverage=level)
    return (-level, lower, configuration) if _feasible(lower, configuration) else None


def _least(holds: Callable[[int], bool], start: int, most: int) -> int | None:
    """The least integer from start to most at which a monotone property holds, if there is one."""
    if not holds(most):
        return None
    low, high, step = start - 1, start, 1
    while not holds(high):
        low, high, step = high, min(most, high + step), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
