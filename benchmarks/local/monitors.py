"""How soon a monitor sees that coverage fell, and how often it raises a false alarm.

Run with the project's environment: `python benchmarks/local/monitors.py [--runs 1000] [--seed 1]
[--markdown]`. Coverage of 0.9 is watched at delta 0.1. A quiet run has coverage 0.9 exactly for
400 rounds; in the others it is 0.85 from the first bit, or after 50 quiet rounds. Tallies are drawn
from their law, as thousands of rounds through owners would give. Rounds are a tenth or less of what
the evidence needs, so that delays do not hide in their length.
"""

import argparse
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import beta as beta_law

from confide.protocol.methods.monitor import E_DETECTOR, E_PROCESS, MonitorTerms
from confide.protocol.methods.parts import BitTally

ALPHA, DELTA, QUIET_ROUNDS, BEFORE = 0.1, 0.1, 400, 50
EACH = {1.0: 225, 4.0: 25}


@dataclass(frozen=True)
class Cell:
    """A variant and an epsilon; `each` is the number of bits in a round."""

    variant: str
    epsilon: float
    delta: float

    @property
    def each(self) -> int:
        return EACH[self.epsilon]

    def alarm_round(self, coverage: NDArray[np.float64], rng: np.random.Generator) -> int | None:
        """The first round, from 1, that raises an alarm; None if none does."""
        terms = MonitorTerms(
            variant=self.variant,
            epsilon=self.epsilon,
            delta=self.delta,
            threshold=0.5,
            card=bytes(32),
            periods=len(coverage),
        )
        channel = terms.make_channel(labels=0)
        rates = np.array([float(channel.observed(Fraction(one))) for one in coverage])
        tallies: list[BitTally] = []
        for number, ones in enumerate(rng.binomial(self.each, rates).tolist(), start=1):
            tallies.append(BitTally((self.each,), (ones,)))
            if terms.alarm(tallies, alpha=ALPHA).raised:
                return number
        return None


def upper_limit(count: int, runs: int) -> float:
    """The 95 % upper confidence limit of a probability (Clopper and Pearson)."""
    return float(beta_law.ppf(0.95, count + 1, runs - count)) if count < runs else 1.0


def delays(cell: Cell, rng: np.random.Generator, *, runs: int, before: int) -> list[int]:
    """Bits from the fall to the alarm, of the runs without an alarm before the fall."""
    coverage = np.concatenate([np.full(before, 0.9), np.full(4_000, 0.85)])
    found = [cell.alarm_round(coverage, rng) for _ in range(runs)]
    return [cell.each * (one - before) for one in found if one is not None and one > before]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="quiet runs; a tenth of them fall")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", action="store_true", help="print the table of the page")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    rows = []
    for variant, delta in ((E_PROCESS, DELTA), (E_DETECTOR, 1e-3)):
        for epsilon in (1.0, 4.0):
            cell = Cell(variant, epsilon, delta)
            quiet = np.full(QUIET_ROUNDS, 0.9)
            runs = given.runs if variant == E_PROCESS else given.runs // 10
            alarms = sum(cell.alarm_round(quiet, rng) is not None for _ in range(runs))
            at_once = delays(cell, rng, runs=max(given.runs // 10, 1), before=0)
            later = delays(cell, rng, runs=max(given.runs // 10, 1), before=BEFORE)
            rows.append(
                [
                    variant,
                    f"{epsilon:g}",
                    f"{delta:g}",
                    f"{alarms} of {runs:,} (limit {upper_limit(alarms, runs):.3f})",
                    *(
                        f"{np.median(one):,.0f} ({np.quantile(one, 0.95):,.0f})"
                        for one in (at_once, later)
                    ),
                ]
            )
    heads = ["variant", "epsilon", "delta", f"alarms in {QUIET_ROUNDS} quiet rounds"]
    heads += ["bits to see 0.85 (95 %)", f"after {BEFORE} quiet rounds"]
    if given.markdown:
        print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
        print("\n".join("| " + " | ".join(row) + " |" for row in rows))
        return
    table = Table(*heads)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
