"""Releases of several parts: what they cost together, by the exact laws of all of them.

Records are in bins of two classes, or in none. Replacing a record may take it from any of these
cells to any other.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction

import pytest

from confide.aggregator.procedures.counts.central_parts import part_mechanism, private_rank
from confide.aggregator.quantiles.base import ADD_REMOVE, Mechanism
from confide.aggregator.quantiles.divided import DividedMechanism
from confide.aggregator.quantiles.rank_exponential import RankExponential
from confide.protocol.errors import BadInput
from confide.protocol.exact.exponentials import log_up
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.counts.central import CentralTerms
from tests.support.truth.quantiles import compositions, on_grid

BINS, CLASSES, ALPHA = 3, 2, 0.5
Counts = tuple[int, ...]


def terms(epsilon: float, **changes: object) -> CentralTerms:
    given: dict[str, object] = {
        "variant": "trusted",
        "mechanism": "rank-exponential",
        "epsilon": epsilon,
        "bins": BINS,
        "beta": 0.25,
        "by": "class",
        "parts": CLASSES,
    }
    return CentralTerms(**(given | changes))  # type: ignore[arg-type]


def cells(n: int) -> Iterator[Counts]:
    """The counts of two classes in three bins, and last those of no class."""
    return compositions(n, CLASSES * BINS + 1)


def replaced(counts: Counts) -> Iterator[Counts]:
    """One record moved to another cell."""
    for a, b in itertools.permutations(range(len(counts)), 2):
        if counts[a]:
            yield tuple(c - (i == a) + (i == b) for i, c in enumerate(counts))


def worst(mechanism: RankExponential, n: int) -> float:
    """The exact loss of all releases together, over all neighbours of n records."""
    known: dict[Counts, list[Fraction]] = {}

    def law(row: Counts) -> list[Fraction]:
        if row not in known:
            made = on_grid(row)
            known[row] = mechanism.law(made, private_rank(mechanism, n=made.n, alpha=ALPHA))
        return known[row]

    most = Fraction(1)
    for counts in cells(n):
        for other in replaced(counts):
            ratio = Fraction(1)
            # Releases are independent, so the worst ratio of all is the product of the worst ones.
            for first in range(0, CLASSES * BINS, BINS):
                p, q = law(counts[first : first + BINS]), law(other[first : first + BINS])
                ratio *= max(a / b for a, b in zip(p, q, strict=True))
            most = max(most, ratio)
    return log_up(most)


@pytest.mark.parametrize("beta", [0.25, 0.0])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_record_that_changes_its_class_costs_the_sum_of_two_releases(
    epsilon: float, beta: float
) -> None:
    """All thresholds together are within epsilon, by exact laws of all neighbours; with the whole
    epsilon for each class they are not, and the same check says so."""
    made = part_mechanism(terms(epsilon, beta=beta))
    assert isinstance(made, RankExponential)
    assert (made.epsilon, made.adjacency) == (epsilon / 2, ADD_REMOVE)
    assert epsilon / 2 < worst(made, 3) <= epsilon
    planted = RankExponential(bins=BINS, epsilon=epsilon, beta=beta or None, adjacency=ADD_REMOVE)
    assert worst(planted, 3) > epsilon


def test_a_class_is_answered_whatever_its_number_of_records() -> None:
    """Ranks rise by 0 or 1 with every record, from none on. A mechanism for public numbers would
    refuse a class with few records, and so tell how many it has."""
    for mechanism in (
        RankExponential(bins=64, epsilon=0.5, adjacency=ADD_REMOVE),
        RankExponential(bins=64, epsilon=0.5, beta=0.02, adjacency=ADD_REMOVE),
    ):
        ranks = [private_rank(mechanism, n=n, alpha=0.1) for n in range(400)]
        assert {b - a for a, b in itertools.pairwise(ranks)} == {0, 1}
        few = on_grid([0] * 63 + [1])
        release = DividedMechanism(mechanism).release([few], [ranks[1]], SeededEntropy(0))
        assert (release.parts[0].rank, release.parts[0].mechanism) == (None, "rank-exponential")
    public = RankExponential(bins=64, epsilon=0.5)
    with pytest.raises(BadInput, match="infeasible"):
        public.release(few, ranks[1], SeededEntropy(0))


def test_groups_have_the_whole_epsilon_and_mechanisms_for_private_parts_are_named() -> None:
    """A record that takes another's place has its group; pps is proved for public numbers only."""
    grouped = terms(2.0, by="group", parts=2, group_column="ward", groups=("a", "b"))
    made = part_mechanism(grouped)
    assert made.privacy.epsilon is not None
    assert (made.adjacency, 1.9 < made.privacy.epsilon <= 2.0) == ("replace-one", True)
    with pytest.raises(BadInput, match="accepted is one whose proof covers add-remove"):
        part_mechanism(terms(2.0, mechanism="pps"))


def test_stored_releases_of_another_number_of_parts_are_refused() -> None:
    """What was drawn is read back as it was, and not for other parts."""
    mechanism: Mechanism = RankExponential(bins=4, epsilon=1.0, adjacency=ADD_REMOVE)
    divided = DividedMechanism(mechanism)
    rows = [on_grid([3, 1, 0, 0]), on_grid([0, 0, 2, 9])]
    drawn = divided.release(rows, [4, 9], SeededEntropy(1))
    values = {"parts": [one.__dict__ | {"privacy": one.privacy.__dict__} for one in drawn.parts]}
    assert divided.read(values, [4, 9]) == drawn
    with pytest.raises(BadInput, match="2 releases for 3 parts"):
        divided.read(values, [4, 9, 9])
