"""Coverage carried from n + 1 records to n where owners hold the records: when it is right.

The training here is made to look at who holds records. In one mode it remembers them (score 0; the
scores of all others are uniform), best where an owner has just one; how likely that mode is depends
on how many owners have none. All numbers are computed from the laws.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

EPSILON, UNSEEN, RECORDS = 1.0, 0.02, 4_000
RANK = RECORDS - 5
NOMINAL = 1 - RANK / (RECORDS + 1)
# The points of the integrals over thresholds.
GRID = (np.arange(20_000) + 0.5) / 20_000


def remembers(empty: int) -> float:
    """The chance of the mode that remembers, if so many owners have no record."""
    return math.exp(-EPSILON * empty) / (1 + math.exp(-EPSILON))


def forgotten(size: int) -> float:
    """The chance that a record is not remembered, in an owner of this many; 0 are unseen ones."""
    return UNSEEN * math.exp(-EPSILON * {0: 0, 1: 2}.get(size, 1))


def law(mode: float, sizes: list[int]) -> list[float]:
    """Probabilities of the mode and of which records, in owners of these sizes, are forgotten."""
    found = []
    for mode_on, *bits in itertools.product((True, False), repeat=1 + len(sizes)):
        chance = mode if mode_on else 1 - mode
        for size, bit in zip(sizes, bits, strict=True):
            out = forgotten(size) if mode_on else UNSEEN
            chance *= out if bit else 1 - out
        found.append(chance)
    return found


def worst_ratio(before: list[float], after: list[float]) -> float:
    return max(max(p / q, q / p) for p, q in zip(before, after, strict=True))


def added(size: int, empty: int) -> float:
    """The ratio of both laws when a record joins an owner of this many, in either direction.

    So many other owners are empty.
    """
    before = law(remembers(empty + (size == 0)), [*[size] * size, 0])
    return worst_ratio(before, law(remembers(empty), [size + 1] * (size + 1)))


def miss(mode: float, share_forgotten: float) -> float:
    """How often a new record is above the RANK-th score of RECORDS that are remembered so well."""
    total = 0.0
    for chance, out in ((mode, share_forgotten), (1 - mode, UNSEEN)):
        below = binom.sf(RANK - 1, RECORDS, 1 - out + out * GRID)
        total += chance * UNSEEN * float(below.mean())
    return total


def test_adding_a_record_tells_little() -> None:
    found = max(added(size, empty) for size in range(6) for empty in range(10))
    assert found < math.exp(EPSILON + 0.1)


@pytest.mark.parametrize("owners", [1, 2, 3, 1_000, RECORDS])
def test_where_the_owner_is_part_of_the_draw_one_added_record_is_enough(owners: int) -> None:
    """Each record falls to one of so many owners by chance: then the bound holds."""
    full = 1 - (1 - 1 / owners) ** RECORDS
    mode = remembers(0) * (full + (1 - full) * math.exp(-EPSILON)) ** owners
    alone = (1 - 1 / owners) ** (RECORDS - 1)
    found = miss(mode, alone * forgotten(1) + (1 - alone) * forgotten(2))
    assert NOMINAL * 0.99 < found <= math.exp(EPSILON + 0.1) * NOMINAL


def test_with_fixed_numbers_of_records_it_is_not() -> None:
    """Every owner has one record, by design: the model knows each twice as well, in epsilon, as
    adding or removing one can show. Replacing one shows it, and bounds coverage there too."""
    found = miss(remembers(0), forgotten(1))
    assert found > 1.5 * math.exp(EPSILON + 0.1) * NOMINAL
    replaced = worst_ratio(law(remembers(0), [1, 0]), law(remembers(0), [0, 1]))
    assert found <= replaced * (RECORDS - RANK + 1) / RECORDS
