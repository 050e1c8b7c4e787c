"""Deals the records of a simulation to its owners, and leaves some for the test."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from confide.protocol.errors import BadInput

Array = NDArray[Any]
Floats = NDArray[np.float64]

# The most records that are drawn with replacement.
MOST_DRAWN = 100_000_000


class Dealt(NamedTuple):
    """Places of the records: of each owner, of the test, and of the test by owner."""

    shares: list[Array]
    test: Array
    tested: list[Array]


def deal(
    labels: Array,
    *,
    owners: int,
    records: int,
    sizes: str = "1",
    concentration: float = 0.0,
    replacement: bool = False,
    tilt: Floats | None = None,
    seed: int,
) -> Dealt:
    """Deal `records` of the records with these labels to owners; the others are the test.

    Records are dealt at random, in proportion to `sizes` (numbers repeated over the owners: "1" is
    even, "1 1 10" makes every third owner ten times as large). With a positive concentration each
    owner has label frequencies of its own, drawn from a Dirichlet distribution around its size: the
    smaller the concentration, the less alike the owners are. With replacement, records are
    independent draws from the given ones, which are then both the whole population and the test
    records. Test records are split by the same rule, to show what an owner's new records meet.

    With a `tilt`, a weight above 0 for every record, owners' records are draws with replacement, in
    proportion to it, from those that are not of the test: a covariate shift if the weights follow
    from the features alone.
    """
    most = MOST_DRAWN if replacement else len(labels) - 1
    if not 1 <= records <= most or owners < 1 or not 0 <= concentration < math.inf:
        raise BadInput(
            f"{records} records to {owners} owners, concentration {concentration}; accepted are 1 "
            f"to {most} records, at least 1 owner and a concentration of 0 or more"
        )
    shares = np.resize(_sizes(sizes), owners)
    shares = shares / shares.sum()
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    dealt, rest = order[:records], order[records:]
    if replacement:
        dealt, rest = rng.integers(len(labels), size=records), order
    if tilt is not None:
        pool = order if replacement else order[:records]
        dealt = rng.choice(pool, size=records, p=tilt[pool] / tilt[pool].sum())
    if concentration == 0:
        return Dealt(_cut(dealt, shares), rest, _cut(rest, shares))
    weights = rng.dirichlet(concentration * owners * shares, labels.max() + 1)
    held, tested = (_drawn(labels[rows], weights, rng) for rows in (dealt, rest))
    return Dealt(
        [dealt[held == owner] for owner in range(owners)],
        rest,
        [rest[tested == owner] for owner in range(owners)],
    )


def deal_by_column(holders: Array, *, records: int, seed: int) -> Dealt:
    """Deal `records` of the records to the owners that hold them; the others are the test.

    `holders` has the number of its owner for every record.
    """
    if not 1 <= records < len(holders):
        raise BadInput(
            f"{records} of {len(holders)} records are dealt; accepted are 1 to {len(holders) - 1}"
        )
    order = np.random.default_rng(seed).permutation(len(holders))
    dealt, rest = order[:records], order[records:]
    owners = range(int(holders.max()) + 1)
    return Dealt(
        [dealt[holders[dealt] == owner] for owner in owners],
        rest,
        [rest[holders[rest] == owner] for owner in owners],
    )


def _cut(rows: Array, shares: Floats) -> list[Array]:
    return np.split(rows, np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64))


def _drawn(labels: Array, weights: Floats, rng: np.random.Generator) -> Array:
    """Draw the owner of every record, by the weights that owners have for its label."""
    drawn, owners = rng.random(len(labels)), np.empty(len(labels), dtype=np.int64)
    for label, row in enumerate(weights):
        chosen = labels == label
        bounds = row.cumsum()
        owners[chosen] = (bounds / bounds[-1]).searchsorted(drawn[chosen], side="right")
    return owners


def _sizes(text: str) -> Floats:
    """Parse relative sizes from a text of numbers."""
    try:
        sizes = np.array([float(word) for word in text.split()])
    except ValueError:
        sizes = np.empty(0)
    if not sizes.size or not np.all(np.isfinite(sizes) & (sizes > 0)):
        raise BadInput(
            f"sizes are {text!r}; accepted are one or more numbers above 0, separated by spaces"
        )
    return sizes
